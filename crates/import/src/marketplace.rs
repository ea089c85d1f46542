//! The ad marketplace: `rate-limit:` with tiers, business limits and outbound rates.
//!
//! Its file tells how much, but not who is counted: that is asked, or taken from the name.

use tollgate_tree::{Node, Path};

use crate::api_gateway::spring_redis;
use crate::draft::{PolicyDraft, RuleDraft};
use crate::section::Section;
use crate::store;
use crate::work::{Work, shorten};

/// How long calls to other APIs wait for their turn.
const OUTBOUND_WAIT: &str = "30s";

pub(crate) fn read(tree: &Node, work: &mut Work<'_>) {
    let Some(mut top) = Section::of(tree, Path::default(), work) else { return };
    let address = spring_redis(&mut top, work);
    if let Some(mut limits) = top.section("rate-limit", work) {
        let place = limits.place.clone();
        if let Some((enabled, place)) = limits.flag("enabled", work) {
            work.draft.disabled = !enabled;
            work.exact(
                place,
                if enabled { "limits are enforced" } else { "`enabled: false`: nothing is limited" },
            );
        }
        let prefix = limits.text("redis-key-prefix", work);
        if let Some((prefix, place)) = &prefix {
            work.exact(place, format!("`key_prefix: {prefix}`"));
        }
        let prefix = prefix.map(|(prefix, _)| prefix);
        store::redis(
            address.as_ref().map(|(url, place)| (url.clone(), place)),
            prefix.as_deref(),
            &place,
            work,
        );
        if let Some(tiers) = limits.section("tiers", work) {
            read_tiers(tiers, work);
        }
        if let Some(business) = limits.section("business", work) {
            read_business(business, work);
        }
        if let Some(outbound) = limits.section("outbound", work) {
            read_outbound(outbound, work);
        }
        limits.leave("the marketplace has no such setting", work);
    }
    top.leave("it is not about limits", work);
}

fn read_tiers(mut tiers: Section<'_>, work: &mut Work<'_>) {
    let path = tiers.path.clone();
    for entry in tiers.take_all() {
        let Some(mut tier) = Section::of(&entry.node, path.key(&entry.key), work) else { continue };
        let rate = tier.number("rate", work);
        let burst = tier.whole("burst", work);
        let window = tier.text("window", work).map_or("60s".to_owned(), |(window, _)| window);
        let path = tier.path.clone();
        tier.leave("the marketplace has no such setting", work);
        let Some((rate, place)) = rate else {
            work.wrong(&entry.key_place, format!("`{path}` has no `rate`"));
            continue;
        };
        let burst = match burst {
            Some((burst, _)) => burst.to_string(),
            None => {
                work.differs(place, format!("`{path}` has no `burst`, so the bucket holds its rate"));
                rate.to_string()
            }
        };
        let Some(limit) = work.rewrite(place, &format!("{rate}/{window} burst={burst}")) else { continue };
        work.exact(place, format!("`{path}` is `{}`", limit.limit));
        let assumed = if entry.key.starts_with("auth") { "ip" } else { "user" };
        let by = work.fields_of(
            &entry.key_place,
            &entry.key,
            assumed,
            "the file does not tell whose requests the tier counts",
        );
        let comment = format!("The tier {}: a token bucket that starts full.", shorten(&entry.key));
        add(
            &entry.key,
            RuleDraft { by, limits: vec![limit.limit], comments: vec![comment], ..RuleDraft::default() },
            work,
        );
    }
}

/// `max-active-deals-per-advertiser`, `max-deals-per-channel-per-day`.
fn read_business(mut business: Section<'_>, work: &mut Work<'_>) {
    let path = business.path.clone();
    for entry in business.take_all() {
        let wrapped = std::slice::from_ref(entry);
        let mut one = Section::of_entries(wrapped, path.clone(), &entry.node.place);
        let Some((number, place)) = one.whole(&entry.key, work) else { continue };
        let Some(Business { things, by, limit }) = Business::of(&entry.key, number) else {
            work.left_out(
                &entry.key_place,
                format!("`{}`: it does not read as `max-THINGS-per-FIELD-per-PERIOD`", path.key(&entry.key)),
            );
            continue;
        };
        if number == 0 {
            work.left_out(
                place,
                format!("`{}`: 0 would allow none of them; here 0 is no limit", path.key(&entry.key)),
            );
            continue;
        }
        let Some(limit) = work.limit(place, &limit) else { continue };
        let code = format!("max-{things}").to_ascii_uppercase().replace('-', "_");
        if limit.ends_with("calendar") {
            work.differs(place, format!("`{}` is `{limit}`, by days in UTC. For the days of another zone write `{limit} in Europe/Berlin`", path.key(&entry.key)));
        } else {
            work.exact(
                place,
                format!("`{}` is `{limit}` by `{by}`, with the code `{code}`", path.key(&entry.key)),
            );
        }
        let by = work.answered_fields(&things).unwrap_or_else(|| vec![by]);
        let comment = match limit.split_once(" at once") {
            Some(_) => {
                "Counted by holds: take one with the id of the entity, and release it when it ends. `count_rows` counts rows of your tables instead."
            }
            None => "Charged when the entity is created; `count_rows` counts rows of your tables instead.",
        };
        add(
            &things,
            RuleDraft {
                code: Some(code),
                by,
                limits: vec![limit],
                comments: vec![comment.to_owned()],
                ..RuleDraft::default()
            },
            work,
        );
    }
}

/// What the name of a business limit says.
struct Business {
    things: String,
    by: String,
    limit: String,
}

impl Business {
    fn of(key: &str, number: u64) -> Option<Self> {
        let parts: Vec<&str> = key.strip_prefix("max-")?.split("-per-").collect();
        let (things, by, period) = match *parts.as_slice() {
            [things, by] => (things, by, None),
            [things, by, period] => (things, by, Some(period)),
            _ => return None,
        };
        let limit = match period {
            None if things.starts_with("active-") => format!("{number} at once"),
            None => format!("{number} in total"),
            Some("day") => format!("{number}/day calendar"),
            Some("week") => format!("{number}/week sliding"),
            Some("hour") => format!("{number}/hour sliding"),
            Some("month") => format!("{number}/month calendar"),
            Some(_) => return None,
        };
        let named = !things.is_empty() && tollgate_core::key::check_field_name(by).is_ok();
        named.then(|| Self { things: things.to_owned(), by: by.to_owned(), limit })
    }
}

/// `ton-api-rate: 10.0`: calls in a second.
fn read_outbound(mut outbound: Section<'_>, work: &mut Work<'_>) {
    let path = outbound.path.clone();
    for entry in outbound.take_all() {
        let wrapped = std::slice::from_ref(entry);
        let mut one = Section::of_entries(wrapped, path.clone(), &entry.node.place);
        let Some((rate, place)) = one.number(&entry.key, work) else { continue };
        let Some(limit) = work.rewrite(place, &format!("{rate}/s burst=1")) else { continue };
        let name = entry.key.strip_suffix("-rate").unwrap_or(&entry.key);
        work.exact(
            place,
            format!("`{}` is `{}`, and callers wait for their turn", path.key(&entry.key), limit.limit),
        );
        work.differs(place, format!("`{name}`: calls are spaced evenly. After a quiet second, Guava's limiter lets a second's calls through at once"));
        work.differs(
            place,
            format!(
                "`{name}`: a call waits {OUTBOUND_WAIT} at most, where `acquire` of Guava blocks for ever"
            ),
        );
        let comment =
            "Asked with `POST /api/v1/acquire` or `tollgate acquire`: the answer comes when it is its turn.";
        add(
            name,
            RuleDraft {
                limits: vec![limit.limit],
                on_exceed: Some(format!("wait {OUTBOUND_WAIT}")),
                comments: vec![comment.to_owned()],
                ..RuleDraft::default()
            },
            work,
        );
    }
}

/// Adds a rule, and a policy of the same name.
fn add(name: &str, rule: RuleDraft, work: &mut Work<'_>) {
    let name = work.rule_names.free(name);
    let first = work.draft.policies.is_empty();
    let comments = if first {
        vec!["One policy for each limit. A policy may list several rules, which are charged together or not at all.".to_owned()]
    } else {
        Vec::new()
    };
    work.draft.policies.push(PolicyDraft { name: name.clone(), comments, rules: vec![name.clone()] });
    work.draft.rules.push(RuleDraft { name, ..rule });
}
