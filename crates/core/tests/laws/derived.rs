//! Derived fields: a missing field is derived from its source.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::support::{policy, rule};
use tollgate_core::key::{FieldKind, Kinds, ValueError};
use tollgate_core::{Attempt, Guard, Mistake, Policies, Policy, Roster, Ticket};

const IP: FieldKind = FieldKind::Ip { v4: 32, v6: 64 };
const NETWORK: FieldKind = FieldKind::Ip { v4: 24, v6: 48 };

fn kinds() -> Kinds {
    let said = Kinds::new([("domain".into(), FieldKind::Domain), ("network".into(), NETWORK)]);
    said.derive("domain", "sender").unwrap().derive("network", "ip").unwrap()
}

fn set(policy: Policy) -> Policies {
    let rules = policy.rules.clone();
    Policies::new(true, rules, vec![policy]).with_roster(Arc::new(Roster::new(kinds(), Vec::new())))
}

/// Rules by the domain and by the network; the sender is in no rule.
fn mail() -> Policies {
    set(policy(vec![
        rule("domain", &[("domain", FieldKind::Domain)], &["1/hour"]),
        rule("network", &[("network", NETWORK)], &["1/hour"]),
        rule("pair", &[("ip", IP), ("domain", FieldKind::Domain)], &["1/hour"]),
    ]))
}

fn keys(set: &Policies, fields: &[(&str, &str)]) -> Result<Vec<String>, Mistake> {
    let attempt = Attempt { policy: "policy", fields, cost: 1, id: None };
    let mut charges = tollgate_core::Charges::new(Ticket(1), 1, None);
    set.find("policy").unwrap().charge_listed(&attempt, set.roster(), &mut charges)?;
    Ok(charges.iter().map(|charge| charges.key(charge).to_string()).collect())
}

#[test]
fn a_missing_field_is_derived_from_its_source() {
    let all = ["example.com", "192.0.2.0/24", "192.0.2.7,example.com"];
    for sender in ["a@example.com", "<\"a\"@Example.COM.>", "\"@\"@example.com"] {
        assert_eq!(keys(&mail(), &[("sender", sender), ("ip", "192.0.2.7")]).unwrap(), all, "{sender}");
    }
    assert_eq!(keys(&mail(), &[("sender", "a@[192.0.2.1]")]).unwrap(), ["[192.0.2.1]"]);
    assert_eq!(keys(&mail(), &[("ip", "192.0.2.7")]).unwrap(), ["192.0.2.0/24"]);
}

#[test]
fn a_field_that_is_brought_needs_no_source_and_must_agree_with_one() {
    assert_eq!(keys(&mail(), &[("domain", "b.example")]).unwrap(), ["b.example"]);
    for domain in ["example.com", "EXAMPLE.com."] {
        let fields = [("domain", domain), ("sender", "a@example.com")];
        assert_eq!(keys(&mail(), &fields).unwrap(), ["example.com"]);
    }
    let network = [("network", "192.0.2.0/24"), ("ip", "192.0.2.7")];
    assert_eq!(keys(&mail(), &network).unwrap(), ["192.0.2.0/24"]);
    let other = keys(&mail(), &[("domain", "b.example"), ("sender", "a@example.com")]).unwrap_err();
    let error = ValueError::NotDerived { source: "sender".into() };
    assert_eq!(other, Mistake::BadValue { field: "domain".into(), error });
    assert_eq!(
        other.to_string(),
        "the value of `domain` is not the one of `sender`, from which it is derived; leave it out"
    );
    // The null sender contradicts nothing.
    assert_eq!(keys(&mail(), &[("domain", "b.example"), ("sender", "<>")]).unwrap(), ["b.example"]);
}

#[test]
fn a_source_without_such_a_part_derives_nothing_and_a_bad_one_is_a_mistake() {
    for sender in ["<>", "", "postmaster"] {
        assert_eq!(keys(&mail(), &[("sender", sender), ("ip", "192.0.2.7")]).unwrap(), ["192.0.2.0/24"]);
    }
    let bad = keys(&mail(), &[("sender", "a b@example.com")]).unwrap_err();
    assert!(bad.to_string().starts_with("the value of `sender` is not a mail address"), "{bad}");
    assert!(matches!(keys(&mail(), &[("colour", "red")]), Err(Mistake::UnknownField { .. })));
}

#[test]
fn derivations_stay_when_the_set_is_changed() {
    let other = rule("domain", &[("domain", FieldKind::Domain)], &["7/hour"]);
    let changed = mail().with_rule(other);
    for set in [
        changed.clone(),
        changed.in_outage(),
        Policies::default().with_roster(changed.roster().clone()).beside(&changed),
    ] {
        assert_eq!(keys(&set, &[("sender", "a@example.com")]).unwrap(), ["example.com"]);
    }
    let beside: Vec<_> = changed.find("policy").unwrap().fields().collect();
    assert_eq!(beside, ["domain", "network", "ip", "sender"]);
}

#[test]
fn a_guard_needs_the_source_where_the_field_can_be_derived() {
    let ladder = rule("logins", &[("domain", FieldKind::Domain)], &["ladder 4 +2s then 11 lock 15m"]);
    let set = set(policy(vec![ladder]));
    let guard = Guard::new("login", "policy");
    assert_eq!(set.missing_fields(&guard, &[]), ["sender"]);
    assert_eq!(set.missing_fields(&guard, &[("sender", "a@b")]), Vec::<&str>::new());
    assert_eq!(set.missing_fields(&guard, &[("domain", "b")]), Vec::<&str>::new());
}

#[test]
fn lists_match_derived_fields() {
    let kinds = kinds();
    let fields = [("sender", "a@Example.com")];
    assert_eq!(
        kinds.complete(&fields).unwrap().to_vec(),
        [("sender", "a@Example.com"), ("domain", "Example.com")]
    );
    assert_eq!(Kinds::default().complete(&fields), None);
}

#[test]
fn only_domains_of_addresses_and_networks_of_addresses_are_derived() {
    let said = || {
        Kinds::new([("d".into(), FieldKind::Domain), ("n".into(), NETWORK), ("t".into(), FieldKind::Text)])
    };
    for (field, source) in
        [("d", "ip"), ("n", "sender"), ("t", "sender"), ("d", "t"), ("d", "d"), ("d", "domain")]
    {
        let problem = said().derive(field, source).unwrap_err();
        assert!(problem.contains("derived"), "{problem}");
    }
    let problem = said().derive("n", "ip").unwrap().derive("client_ip", "n").unwrap_err();
    assert_eq!(problem, "`n` is derived itself: name the field that it is derived from");
    let problem = said().derive("d", "d").unwrap_err();
    assert_eq!(problem, "`d` cannot be derived from itself");
}
