//! The most memory that the keys of each rule can take: no more keys than can exist, and no more entries than the other
//! rules of its policies let pass.
//!
//! The relay knows its accounts and tenants. Keys that callers of the API choose are bounded only by `max_keys`, even if
//! they use a policy of the relay; that is not considered, since such a caller has an access key.

use std::collections::BTreeSet;

use tollgate_core::limit::Limit;
use tollgate_core::{Plan, Policies, Policy, Rule, Span};
use tollgate_store::memory::Footprint;

use super::MemoryNeed;
use crate::config::Config;
use crate::config::limits::most_within;

/// What the keys of one rule can take.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    /// How many keys can exist; `None` if there is no bound.
    keys: Option<u64>,
    /// What each key takes.
    each: u64,
    /// What all of them take beside that: their overrides, and what they share.
    shared: u64,
}

impl Demand {
    /// The memory if there may be so many keys.
    fn bytes(&self, max_keys: u64) -> u64 {
        self.each.saturating_mul(self.keys.unwrap_or(max_keys)).saturating_add(self.shared)
    }
}

/// The sum of all demands. Of keys without a bound there are as many as there is room for, all of the costliest rule.
pub(super) fn need(demands: impl Iterator<Item = Demand>, max_keys: u64) -> MemoryNeed {
    let (mut costliest, mut bounded) = (None, 0_u64);
    for Demand { keys, each, shared } in demands {
        if keys.is_none() {
            costliest = costliest.max(Some(each));
        }
        let own = each.saturating_mul(keys.unwrap_or(0)).saturating_add(shared);
        bounded = bounded.saturating_add(own);
    }
    let (keys, key_bytes) = costliest.map_or((0, 0), |each| (max_keys, each));
    MemoryNeed { keys, key_bytes, bytes: keys.saturating_mul(key_bytes).saturating_add(bounded) }
}

impl Config {
    /// What the keys of a rule can take.
    pub(super) fn demand(&self, policies: &Policies, rule: &Rule, max_keys: u64) -> Demand {
        let own = Some(&rule.plan).filter(|plan| self.counts(plan)).map(|plan| Footprint::of(plan));
        let overrides = rule.overrides.values().filter(|plan| self.counts(plan));
        let overrides: Vec<Footprint> = overrides.map(|plan| Footprint::of(plan)).collect();
        let keys = match own {
            Some(_) => self.possible_keys(rule).map(|keys| keys.saturating_sub(rule.overrides.len() as u64)),
            None => Some(0),
        };
        let sum = |of: fn(&Footprint) -> u64| overrides.iter().map(of).fold(0, u64::saturating_add);
        let alone = Demand { keys, each: own.map_or(0, |print| print.most()), shared: sum(Footprint::most) };
        let takes = self.most_takes(policies, rule).map(|takes| {
            let entry = overrides.iter().chain(&own).map(|print| print.entry).max().unwrap_or(0);
            let shared = entry.saturating_mul(takes).saturating_add(sum(|print| print.key));
            Demand { each: own.map_or(0, |print| print.key), shared, ..alone }
        });
        let (most, bytes) = own.map_or((0, 0), |print| print.most_of_holds);
        let holds = self.most_holds(policies, rule).zip(bytes.checked_div(most)).map(|(holds, one)| {
            let shared = one.saturating_mul(holds).saturating_add(alone.shared);
            Demand { each: alone.each - bytes, shared, ..alone }
        });
        let least = [Some(alone), takes, holds].into_iter().flatten();
        least.min_by_key(|demand| demand.bytes(max_keys)).unwrap_or(alone)
    }

    /// Whether a plan has anything to count in this process.
    fn counts(&self, plan: &Plan) -> bool {
        !plan.limits().is_empty() && (!self.store.is_shared() || plan.has_share())
    }

    /// How many keys of a rule can exist.
    fn possible_keys(&self, rule: &Rule) -> Option<u64> {
        if rule.by.is_empty() {
            return Some(1);
        }
        let relay = &self.relay.as_ref()?.settings;
        let of_relay = [Some(&*relay.deliver), relay.accept.policy.as_deref()];
        if !self.is_only_in(rule, &of_relay) || !is_of_accounts(rule) {
            return None;
        }
        // Mail that is delivered directly has an account of its own for each tenant.
        let direct = if relay.direct.is_some() { self.tenants() } else { 0 };
        let has_account = rule.by.iter().any(|field| &*field.name == "account");
        Some(if has_account { relay.accounts.len() as u64 + direct } else { self.tenants() })
    }

    /// How many tenants can send mail.
    fn tenants(&self) -> u64 {
        let Some(relay) = &self.relay else { return 0 };
        let settings = &relay.settings;
        let mut names: BTreeSet<&str> = settings.accounts.iter().map(|account| &*account.tenant).collect();
        names.extend(settings.server.users.tenants());
        names.insert(&settings.server.network_tenant);
        names.extend(self.keys.iter().filter_map(|key| Some(&*key.tenant.as_ref()?.name)));
        names.len() as u64
    }

    /// Whether a rule is in no other policies than these.
    fn is_only_in(&self, rule: &Rule, policies: &[Option<&str>]) -> bool {
        let mut own = self.policies.iter().filter(|policy| has(policy, rule));
        own.all(|policy| policies.contains(&Some(&*policy.name)))
    }

    /// How many holds all keys of a rule have at most: as many as another rule without keys allows in each of its
    /// policies, or as the relay has connections, if only they take them.
    fn most_holds(&self, policies: &Policies, rule: &Rule) -> Option<u64> {
        let server = self.relay.as_ref().map(|relay| &relay.settings.server);
        let connect = server.and_then(|server| server.connect.as_deref());
        if let (Some(server), Some(connect)) = (server, connect)
            && self.is_only_in(rule, &[Some(connect)])
        {
            return Some(server.max_connections as u64);
        }
        let is_hold = |limit: &&Limit| limit.holds();
        let lasts = rule.plan.limits().iter().find(is_hold)?.period();
        let bound = |other: &Rule| {
            let exact = other.name != rule.name && other.by.is_empty() && other.enabled && !other.observes();
            let mut limits = other.plan.limits().iter().filter(|_| exact).filter(is_hold);
            limits.find(|limit| limit.period() == lasts).map(Limit::number)
        };
        let own = policies.iter().filter(|policy| has(policy, rule));
        let most = own.map(|policy| policy.rules.iter().filter_map(|other| bound(other)).min());
        most.sum::<Option<u64>>()
    }

    /// How many takes the logs of a rule have at most at all keys together, if in each of its policies another rule with
    /// a known number of keys bounds them.
    fn most_takes(&self, policies: &Policies, rule: &Rule) -> Option<u64> {
        let limits = || rule.overrides.values().chain([&rule.plan]).flat_map(|plan| plan.limits());
        if limits().any(|limit| limit.holds() || limit.ladder().is_some()) {
            return None;
        }
        let within = limits().filter_map(Limit::period).max()?;
        let mut all = 0_u64;
        for policy in policies.iter().filter(|policy| has(policy, rule)) {
            let others = policy.rules.iter().filter(|other| other.name != rule.name);
            let most = others.filter_map(|other| self.most_within(policy, other, within)).min()?;
            all = all.saturating_add(most);
        }
        Some(all)
    }

    /// How many attempts of a policy a rule lets pass within a time at most, if every attempt must pass it.
    fn most_within(&self, policy: &Policy, rule: &Rule, within: Span) -> Option<u64> {
        let deliver = self.relay.as_ref().map(|relay| &*relay.settings.deliver);
        let always = rule.by.is_empty() || deliver == Some(&*policy.name) && is_of_accounts(rule);
        let exact = rule.enabled && !rule.observes() && rule.count.is_none() && rule.count_when.is_none();
        if !always || !exact {
            return None;
        }
        let others = self.possible_keys(rule)?.saturating_sub(rule.overrides.len() as u64);
        let mut plans = rule.overrides.values().map(|plan| (1, plan)).chain([(others, &rule.plan)]);
        plans.try_fold(0_u64, |all, (keys, plan)| {
            if keys == 0 {
                return Some(all);
            }
            let most = plan.limits().iter().filter_map(|limit| most_within(limit, within)).min()?;
            Some(all.saturating_add(keys.saturating_mul(most)))
        })
    }
}

/// Whether a rule counts only by what the relay knows all values of.
fn is_of_accounts(rule: &Rule) -> bool {
    rule.by.iter().all(|field| matches!(&*field.name, "tenant" | "account"))
}

fn has(policy: &Policy, rule: &Rule) -> bool {
    policy.rules.iter().any(|own| own.name == rule.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Format, load_str};

    fn need_of(text: &str) -> MemoryNeed {
        let config = load_str(text, Format::Yaml, "t.yaml", std::iter::empty());
        config.unwrap_or_else(|error| panic!("{error}")).memory_need()
    }

    const RELAY: &str = "
store: memory
relay:
  hostname: a.example
  listen: [{ smtp: 127.0.0.1:0 }]
  networks: [127.0.0.0/8]
  network_tenant: acme
  deliver: deliver
  accounts:
    acme/one: { host: one.example }
    acme/two: { host: two.example, limits: 10/hour sliding }
";

    #[test]
    fn an_account_is_a_key_only_if_the_relay_knows_it() {
        let rule = "rules: { account: { by: [tenant, account], limits: 50000/day sliding } }\n";
        let only = need_of(&format!("{RELAY}{rule}policies: {{ deliver: [account] }}\n"));
        assert!(only.keys == 0 && only.bytes < 2 * 50_000 * 40, "{only:?}");
        let any = need_of(&format!("{RELAY}{rule}policies: {{ deliver: [account], other: [account] }}\n"));
        assert!(any.keys == 1_000_000 && any.bytes > 1_000_000 * 50_000, "{any:?}");
    }

    #[test]
    fn recipient_domains_log_no_more_than_the_accounts_send() {
        let with = |account: &str| {
            need_of(&format!(
                "{RELAY}policies: {{ deliver: [account, domain] }}
rules:
  account: {{ by: [tenant, account]{account} }}
  domain: {{ by: recipient_domain, limits: 20000/hour sliding }}
"
            ))
        };
        let bounded = with(", limits: 840/hour sliding");
        assert!(bounded.keys == 1_000_000 && bounded.bytes < 300 << 20, "{bounded:?}");
        for account in [", limits: unlimited", ", limits: 840/hour sliding, on_exceed: observe"] {
            let free = with(account);
            assert!(free.bytes > 900_000 * 20_000 * 30, "{account} bounds nothing: {free:?}");
        }
    }

    #[test]
    fn an_override_is_one_key_and_a_rule_without_keys_another() {
        let need = need_of(
            "store: { memory: { max_keys: 1000 } }
rules:
  user: { by: user, limits: 10/hour, overrides: { ada: 100000/day sliding } }
  all: { limits: 100000/day sliding }
policies: { api: [user, all] }
",
        );
        assert!((2 * 3_400_000..8 << 20).contains(&need.bytes), "{need:?}");
    }
}
