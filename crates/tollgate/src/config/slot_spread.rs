//! Finds policies whose rules are in different slots of a Cluster.
//!
//! A script uses keys of one slot. Rules without a common tag are in different slots, so an attempt with
//! several of them is settled in parts: no limit is exceeded, but an attempt may be denied because of another
//! that is denied itself.

use tollgate_core::Policies;
use tollgate_redis::Topology;

use super::{Config, StoreConfig};

/// A policy whose rules are in different slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSpread {
    /// Its name.
    pub policy: String,
    /// Its rules that charge anything.
    pub rules: Vec<String>,
}

impl SlotSpread {
    /// What that means, as text.
    pub fn words(&self) -> String {
        format!(
            "the rules {} are in different slots of the Cluster, which is weaker than all or nothing: no limit is exceeded, but concurrent attempts may deny each other",
            self.rules.join(", ")
        )
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        format!(
            "write `{}: {{ rules: [{}], hash_tag: {} }}`; policies that share a rule have the same tag",
            self.policy,
            self.rules.join(", "),
            self.policy
        )
    }
}

impl Config {
    /// The policies that are not all or nothing under concurrency, because of their store.
    pub fn slot_spread(&self) -> Vec<SlotSpread> {
        of(&self.store, &self.policies)
    }
}

/// The policies whose rules are in different slots of this store.
pub fn of(store: &StoreConfig, policies: &Policies) -> Vec<SlotSpread> {
    let StoreConfig::Redis(settings) = store else { return Vec::new() };
    let Topology::Cluster { .. } = settings.topology else { return Vec::new() };
    let mut found = Vec::new();
    for policy in policies.iter() {
        let rules: Vec<&str> =
            policy.rules.iter().filter(|rule| rule.enabled).map(|rule| &*rule.name).collect();
        let tags: Vec<_> = rules.iter().map(|rule| settings.tags.get(*rule)).collect();
        let together = tags.iter().all(|tag| tag.is_some() && *tag == tags[0]);
        if rules.len() > 1 && !together {
            let rules = rules.into_iter().map(str::to_owned).collect();
            found.push(SlotSpread { policy: policy.name.to_string(), rules });
        }
    }
    found
}
