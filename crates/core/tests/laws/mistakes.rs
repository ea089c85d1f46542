//! Attempts that cannot be decided: every mistake is the caller's, is named, and charges nothing.

use std::sync::Arc;

use crate::support::{at, plan, policy, rule};
use tollgate_core::key::{FieldKind, Kinds, MOST_FIELD_BYTES, ValueError};
use tollgate_core::lists::Roster;
use tollgate_core::{Attempt, Guard, MAX_EXACT, Mistake, Policies, Policy, Rule, State, Ticket, When};

const IP: FieldKind = FieldKind::Ip { v4: 32, v6: 64 };

fn mail() -> Policy {
    policy(vec![
        rule("sender", &[("sender", FieldKind::Address)], &["5/hour", "100 recipients per attempt"]),
        rule("pair", &[("ip", IP), ("route", FieldKind::Text)], &["5/hour"]),
    ])
}

fn attempt<'a>(fields: &'a [(&'a str, &'a str)]) -> Attempt<'a> {
    Attempt { policy: "policy", fields, cost: 1, id: None }
}

fn mistake(policy: &Policy, attempt: &Attempt<'_>) -> Mistake {
    policy.charges(attempt, Ticket(1)).map(|charges| charges.len()).expect_err("a mistake")
}

/// Checks the mistake and a part of its message.
fn says(policy: &Policy, fields: &[(&str, &str)], expected: &Mistake, piece: &str) {
    let mistake = mistake(policy, &attempt(fields));
    assert_eq!(&mistake, expected);
    assert!(mistake.to_string().contains(piece), "{mistake} should say {piece}");
}

#[test]
fn an_unknown_policy_is_named_with_the_nearest_there_is() {
    let policies = Policies::new(
        true,
        Vec::new(),
        ["mail.accept", "mail.deliver", "login"]
            .map(|name| Policy::new(name.into(), Vec::new(), true))
            .into(),
    );
    for (name, near) in [("mail.acept", Some("mail.accept")), ("logn", Some("login")), ("quota", None)] {
        let mistake = policies.find(name).map(|policy| policy.name.clone()).expect_err(name);
        assert_eq!(mistake, Mistake::UnknownPolicy { policy: name.into(), near: near.map(Into::into) });
        let hint = near.map_or_else(|| format!("`{name}`"), |near| format!("did you mean `{near}`?"));
        assert!(mistake.to_string().ends_with(&hint), "{mistake}");
    }
    assert!(policies.find("login").is_ok());
}

#[test]
fn an_unknown_field_is_named_with_the_nearest_that_some_rule_knows() {
    for (field, near) in [("sendr", Some("sender")), ("recipient", Some("recipients")), ("colour", None)] {
        let expected = Mistake::UnknownField {
            policy: "policy".into(),
            field: field.into(),
            near: near.map(Into::into),
        };
        let piece = near.map_or_else(|| format!("`{field}`"), |near| format!("did you mean `{near}`?"));
        says(&mail(), &[("sender", "a@b"), (field, "1")], &expected, &piece);
    }
}

#[test]
fn a_name_too_long_to_show_is_cut() {
    let long = "ü".repeat(1_000);
    let Mistake::UnknownField { field, near, .. } = mistake(&mail(), &attempt(&[(&long, "1")])) else {
        panic!("the field is unknown");
    };
    assert_eq!((field.chars().count(), near), (64, None));
}

#[test]
fn a_field_sent_twice_is_a_mistake_whether_it_makes_a_key_or_is_bounded() {
    let repeated = |field: &str| Mistake::RepeatedField { field: field.into() };
    says(&mail(), &[("sender", "a@b"), ("sender", "a@b")], &repeated("sender"), "sent twice");
    let twice = [("sender", "a@b"), ("recipients", "1"), ("recipients", "1000")];
    says(&mail(), &twice, &repeated("recipients"), "sent twice");
}

#[test]
fn a_value_is_refused_when_it_is_longer_than_a_key_may_be() {
    let long = |bytes: usize| format!("{}@example.com", "x".repeat(bytes - "@example.com".len()));
    let (longest, too_long) = (long(MOST_FIELD_BYTES), long(MOST_FIELD_BYTES + 1));
    let error = ValueError::TooLong { bytes: 1_025 };
    let bad = Mistake::BadValue { field: "sender".into(), error };
    says(&mail(), &[("sender", &too_long)], &bad, "1025 bytes long; at most 1024");
    assert!(mail().charges(&attempt(&[("sender", &longest)]), Ticket(1)).is_ok());
}

#[test]
fn a_value_is_refused_when_it_is_not_what_its_field_holds() {
    for ip in ["localhost", "192.0.2.256", "192.0.02.7", "1", "fe80::1%eth0"] {
        let bad = Mistake::BadValue { field: "ip".into(), error: ValueError::NotAnIp };
        says(&mail(), &[("ip", ip), ("route", "/")], &bad, "not an IPv4 or IPv6 address");
    }
    for number in ["", "-1", "many", "1.5", "99999999999999999999"] {
        let bad = Mistake::BadValue { field: "recipients".into(), error: ValueError::NotANumber };
        says(&mail(), &[("sender", "a@b"), ("recipients", number)], &bad, "not a whole number");
    }
}

#[test]
fn costs_and_ids_have_their_bounds() {
    let fields = [("sender", "a@b")];
    let with_cost = |cost| Attempt { cost, ..attempt(&fields) };
    assert_eq!(mistake(&mail(), &with_cost(MAX_EXACT + 1)), Mistake::CostTooBig { cost: MAX_EXACT + 1 });
    assert!(mail().charges(&with_cost(MAX_EXACT), Ticket(1)).is_ok());

    let (longest, too_long) = ("i".repeat(256), "i".repeat(257));
    let with_id = |id| Attempt { id: Some(id), ..attempt(&fields) };
    assert_eq!(mistake(&mail(), &with_id(&too_long)), Mistake::IdTooLong { bytes: 257 });
    assert_eq!(mistake(&mail(), &with_id("")), Mistake::IdEmpty);
    assert!(mail().charges(&with_id(&longest), Ticket(1)).is_ok());
}

#[test]
fn an_attempt_to_which_no_rule_applies_is_a_mistake_unless_the_policy_says_otherwise() {
    let fields = ["sender", "ip", "route"].map(Into::into).to_vec();
    let expected = Mistake::NoRuleApplies { policy: "policy".into(), fields };
    says(&mail(), &[], &expected, "sender, ip, route");
    says(&mail(), &[("ip", "192.0.2.7")], &expected, "`allow_unmatched`");
    let mut lenient = mail();
    lenient.allow_unmatched = true;
    assert!(lenient.charges(&attempt(&[]), Ticket(1)).unwrap().is_empty());
}

#[test]
fn a_rule_that_is_switched_off_or_unlimited_applies_and_charges_nothing() {
    let text = [("key", FieldKind::Text)];
    let off = Rule { enabled: false, ..rule("off", &text, &["5/hour"]) };
    for rule in [off, rule("free", &text, &[])] {
        let policy = policy(vec![rule]);
        assert!(policy.charges(&attempt(&[("key", "a")]), Ticket(1)).unwrap().is_empty());
        assert!(matches!(mistake(&policy, &attempt(&[])), Mistake::NoRuleApplies { .. }));
    }
}

#[test]
fn the_number_in_an_attempt_is_bounded_and_nothing_of_it_is_consumed() {
    let policy = mail();
    let mut states = vec![State::Fresh; 2];
    for (recipients, when) in [("100", When::Now), ("101", When::Never), ("100", When::Now), ("0", When::Now)]
    {
        let fields = [("sender", "a@b"), ("recipients", recipients)];
        let charges = policy.charges(&attempt(&fields), Ticket(1)).unwrap();
        let outcome = charges.settle(&mut states, at(0)).unwrap();
        assert_eq!(outcome.readings[1].when, when, "{recipients}");
        assert_eq!(outcome.allowed, when == When::Now);
        let left = 100_u64.saturating_sub(recipients.parse().unwrap());
        assert_eq!((outcome.readings[1].remaining, outcome.readings[1].capacity), (left, 100));
    }
    // The three that passed were charged, the fourth was not.
    let fields = [("sender", "a@b")];
    let charges = policy.charges(&attempt(&fields), Ticket(1)).unwrap();
    let outcome = charges.survey(&mut states, at(0)).unwrap();
    assert_eq!(outcome.readings[0].remaining, 2);
    assert_eq!(outcome.readings[1].when, When::Now, "what is not said is not bounded");
}

#[test]
fn overrides_may_bound_more_fields_than_a_byte_can_count() {
    let mut many = rule("many", &[("key", FieldKind::Text)], &["5/hour"]);
    for index in 0..300 {
        let bound = format!("1 field{index} per attempt");
        many.overrides.insert(format!("key{index}").into(), plan("many", &[&bound]));
    }
    let policy = policy(vec![many]);
    let fields = [("key", "key299"), ("field299", "2")];
    let charges = policy.charges(&attempt(&fields), Ticket(1)).unwrap();
    assert!(!charges.settle(&mut [State::Fresh], at(0)).unwrap().allowed);
}

#[test]
fn a_replaced_rule_is_replaced_in_every_policy_that_shares_it() {
    let shared = Arc::new(rule("shared", &[], &["5/hour"]));
    let names = ["one", "two"];
    let list = names.map(|name| Policy::new(name.into(), vec![Arc::clone(&shared)], false));
    let policies = Policies::new(true, vec![shared], list.into());
    let replaced = policies.with_rule(rule("shared", &[], &["7/hour"]));
    for name in names {
        let limits = |set: &Policies| set.find(name).unwrap().rules[0].plan.to_string();
        assert_eq!((limits(&policies), limits(&replaced)), ("5/hour".into(), "7/hour".into()));
    }
    assert_eq!(replaced.rule("shared").unwrap().plan.to_string(), "7/hour");
    assert!(replaced.iter().map(|policy| &*policy.name).eq(names));
}

#[test]
fn each_of_many_policies_is_found_by_its_name() {
    let names: Vec<String> = (0..20).map(|number| format!("policy-{number}")).collect();
    let policies = names.iter().map(|name| Policy::new(name.as_str().into(), Vec::new(), true)).collect();
    let policies = Policies::new(true, Vec::new(), policies);
    for (number, name) in names.iter().enumerate() {
        let found = policies.find(name).unwrap();
        assert_eq!((&*found.name, found.number()), (name.as_str(), number));
    }
    let Err(Mistake::UnknownPolicy { near, .. }) = policies.find("policy-99") else {
        panic!("there is none")
    };
    assert!(near.is_some());
}

#[test]
fn each_of_many_rules_is_found_by_its_name() {
    let names: Vec<String> = (0..20).map(|number| format!("rule-{number}")).collect();
    let rules =
        names.iter().map(|name| Arc::new(rule(name, &[("key", FieldKind::Text)], &["5/hour"]))).collect();
    let policies = Policies::new(true, rules, Vec::new());
    for name in &names {
        assert_eq!(*policies.rule(name).unwrap().name, **name);
    }
    assert!(policies.rule("rule-99").is_none());
}

#[test]
fn field_kinds_survive_a_change_of_rules() {
    let kinds = [("net".into(), FieldKind::Ip { v4: 24, v6: 48 }), ("ip".into(), FieldKind::Text)];
    let one = Arc::new(rule("one", &[("key", FieldKind::Text)], &["5/hour"]));
    let policies = Policies::new(true, vec![one], Vec::new())
        .with_roster(Arc::new(Roster::new(Kinds::new(kinds), Vec::new())));
    for set in [
        &policies,
        &policies.with_rule(rule("one", &[("key", FieldKind::Text)], &["7/hour"])),
        &policies.in_outage(),
        &policies.beside(&Policies::default()),
    ] {
        assert_eq!(set.kind_of("net"), FieldKind::Ip { v4: 24, v6: 48 });
        assert_eq!([set.kind_of("ip"), set.kind_of("other")], [FieldKind::Text; 2]);
        assert_eq!(set.kind_of("domain"), FieldKind::Domain);
    }
}

#[test]
fn guards_of_another_set_stand_beside_ones_own_and_do_not_replace_them() {
    let guarded = |guards| Policies::default().with_guards(guards);
    let own = guarded(vec![Guard::new("login", "new")]);
    let both = own.beside(&guarded(vec![Guard::new("login", "old"), Guard::new("admin", "old")]));
    assert_eq!(both.guards(), [Guard::new("login", "new"), Guard::new("admin", "old")]);
}
