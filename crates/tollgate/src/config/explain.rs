//! Explains what each rule limits, as text. Pure: no I/O.

mod counting;
mod limit;
mod logins;
mod numbers;
mod outage;

use serde::Serialize;
use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::rows::RowCount;
use tollgate_core::{Banning, Field, OnExceed, Plan, Policies, Rule};

pub use counting::count_when;
pub use limit::limit;
pub use logins::{LoginInWords, login};
use numbers::{Whole, spell};
pub use outage::on_outage;

/// A rule as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleInWords {
    /// Its name.
    pub name: String,
    /// Its code for applications, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What each of its counters stands for.
    pub scope: String,
    /// Its limits; none if it has no limit.
    pub limits: Vec<LimitInWords>,
    /// The limits of single keys.
    pub overrides: Vec<OverrideInWords>,
    /// The field whose number is counted instead of the cost, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Which rows it counts, if it counts rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_rows: Option<RowsInWords>,
    /// Which attempts it counts, if that depends on their responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_when: Option<String>,
    /// What happens when a limit is exceeded.
    pub on_exceed: String,
    /// What happens while a shared store is down.
    pub on_outage: String,
    /// When it blocks a key, if it ever does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ban: Option<String>,
    /// The policies that use it, in the order of the configuration.
    pub policies: Vec<String>,
    /// Whether it is enabled.
    pub enabled: bool,
}

/// The rows that a rule counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowsInWords {
    /// The database they are in.
    pub database: String,
    /// The query that counts them.
    pub query: String,
    /// How long counting may take.
    pub timeout: String,
    /// How long a count may be used again to deny attempts.
    pub cache: String,
}

/// A limit as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitInWords {
    /// The limit as written.
    pub limit: String,
    /// What it limits.
    pub bounds: String,
}

/// The limits of one key as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverrideInWords {
    /// The key; a rule whose keys are secret shows `***`.
    pub key: String,
    /// Its limits; none if it has no limit.
    pub limits: Vec<LimitInWords>,
}

/// Explains a rule.
pub fn rule(rule: &Rule, policies: &Policies) -> RuleInWords {
    let mut overrides: Vec<_> = rule.overrides.iter().collect();
    overrides.sort_by_key(|(key, _)| *key);
    let shown = |key: &str| if rule.secret { "***".to_owned() } else { key.to_owned() };
    RuleInWords {
        name: rule.name.to_string(),
        code: rule.code.as_ref().map(ToString::to_string),
        scope: scope(&rule.by, policies.roster().kinds()),
        limits: plan(&rule.plan),
        overrides: overrides
            .into_iter()
            .map(|(key, limits)| OverrideInWords { key: shown(key), limits: plan(limits) })
            .collect(),
        count: rule.count.as_ref().map(ToString::to_string),
        count_rows: rule.rows.as_deref().map(rows),
        count_when: rule.count_when.map(|classes| count_when(&classes.into())),
        on_exceed: on_exceed(rule.on_exceed),
        on_outage: on_outage(rule),
        ban: rule.ban.map(ban),
        policies: policies
            .iter()
            .filter(|policy| policy.rule(&rule.name).is_some())
            .map(|policy| policy.name.to_string())
            .collect(),
        enabled: rule.enabled,
    }
}

fn rows(rows: &RowCount) -> RowsInWords {
    RowsInWords {
        database: rows.database.to_string(),
        query: rows.query.to_string(),
        timeout: rows.timeout.to_string(),
        cache: rows.cache.to_string(),
    }
}

/// What each counter of a rule with these fields stands for.
pub fn scope(by: &[Field], kinds: &Kinds) -> String {
    let noun = |field: &Field| {
        let derived = kinds.derived().iter().find(|derived| derived.field == field.name);
        let of = derived.map_or_else(String::new, |derived| format!(" (derived from `{}`)", derived.source));
        format!("{}{of}", noun(field))
    };
    let nouns: Vec<String> = by.iter().map(noun).collect();
    match nouns.as_slice() {
        [] => "for all attempts together".to_owned(),
        [noun] => format!("for each {noun}"),
        [first @ .., last] => format!("for each combination of {} and {last}", first.join(", ")),
    }
}

/// What happens when a limit is exceeded.
pub fn on_exceed(on_exceed: OnExceed) -> String {
    match on_exceed {
        OnExceed::Reject => "the attempt is denied".to_owned(),
        OnExceed::Wait(span) => {
            format!("the caller is told to wait up to {}, and denied beyond that", spell(span))
        }
        OnExceed::Observe => "the attempt passes: it is only counted and reported".to_owned(),
        OnExceed::Defer(deferral) => {
            let when = if deferral.aligned {
                "the next boundary of the limit's period in UTC"
            } else {
                "the moment at which it passes"
            };
            let spread = match deferral.jitter.as_micros() {
                0 => String::new(),
                _ => format!(", spread over {}", spell(deferral.jitter)),
            };
            format!("the attempt is deferred to {when}{spread}")
        }
    }
}

/// When a rule blocks a key, and for how long.
pub fn ban(ban: Banning) -> String {
    let (after, within, lasts) = (Whole(ban.after()), spell(ban.within()), spell(ban.lasts()));
    let denials = if ban.after() == 1 { "denial" } else { "denials" };
    let grows = match ban.most() {
        Some(most) => format!(", twice as long each time, up to {}", spell(most)),
        None => String::new(),
    };
    format!("a key with {after} {denials} in {within} is banned for {lasts}{grows}")
}

fn plan(plan: &Plan) -> Vec<LimitInWords> {
    plan.limits().iter().map(|one| LimitInWords { limit: one.to_string(), bounds: limit(one) }).collect()
}

fn noun(field: &Field) -> String {
    let name = field.name.replace('_', " ");
    let FieldKind::Ip { v4, v6 } = field.kind else { return name };
    let cuts: Vec<String> = [("IPv4", v4, 32), ("IPv6", v6, 128)]
        .into_iter()
        .filter(|(_, prefix, whole)| prefix != whole)
        .map(|(family, prefix, _)| format!("{family} by /{}", Whole(prefix.into())))
        .collect();
    let noun = match &*field.name {
        "ip" | "client_ip" => "client address".to_owned(),
        _ => format!("{name} address"),
    };
    if cuts.is_empty() { noun } else { format!("{noun} ({})", cuts.join(", ")) }
}

#[cfg(test)]
mod tests {
    //! Scopes and consequences, case by case.

    use tollgate_core::{Deferral, Span};

    use super::*;

    fn field(name: &str) -> Field {
        Field { name: name.into(), kind: FieldKind::of_name(name) }
    }

    #[test]
    fn scopes_say_what_each_counter_stands_for() {
        let peer = Field { name: "peer".into(), kind: FieldKind::Ip { v4: 24, v6: 56 } };
        let exact = Field { name: "peer".into(), kind: FieldKind::Ip { v4: 32, v6: 128 } };
        let table = [
            (vec![], "for all attempts together"),
            (vec![field("ip")], "for each client address (IPv6 by /64)"),
            (vec![peer], "for each peer address (IPv4 by /24, IPv6 by /56)"),
            (vec![exact], "for each peer address"),
            (vec![field("recipient_domain")], "for each recipient domain"),
            (
                vec![field("user"), field("route"), field("ip")],
                "for each combination of user, route and client address (IPv6 by /64)",
            ),
        ];
        for (by, words) in table {
            assert_eq!(scope(&by, &Kinds::default()), words);
        }
    }

    #[test]
    fn bans_say_which_key_they_block_and_for_how_long() {
        let table = [
            ("after 100 denials in 10m ban 1h", "a key with 100 denials in 10 minutes is banned for 1 hour"),
            (
                "after 1 denial in 1s ban 15m up to 1d",
                "a key with 1 denial in 1 second is banned for 15 minutes, twice as long each time, up to 1 day",
            ),
        ];
        for (written, words) in table {
            assert_eq!(ban(written.parse().unwrap()), words);
        }
    }

    #[test]
    fn consequences_say_what_happens_to_the_attempt() {
        let deferral = |aligned, secs| Deferral { aligned, jitter: Span::from_secs(secs) };
        let table = [
            (OnExceed::Reject, "the attempt is denied"),
            (OnExceed::Observe, "the attempt passes: it is only counted and reported"),
            (
                OnExceed::Wait(Span::from_secs(5)),
                "the caller is told to wait up to 5 seconds, and denied beyond that",
            ),
            (OnExceed::Defer(deferral(false, 0)), "the attempt is deferred to the moment at which it passes"),
            (
                OnExceed::Defer(deferral(true, 30)),
                "the attempt is deferred to the next boundary of the limit's period in UTC, spread over 30 seconds",
            ),
        ];
        for (consequence, words) in table {
            assert_eq!(on_exceed(consequence), words);
        }
    }
}
