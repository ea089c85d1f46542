//! Policies created while the engine runs, and the names that they are assigned to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{Stand, decide, policies, rule, start};
use futures_lite::future::{block_on, poll_once};
use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Attempt, Policies, Records, Roster, Span};
use tollgate_engine::runtime_config::{BadSpec, PolicyDraft, PolicySpec};
use tollgate_engine::{ChangeFault, Engine, Parts};
use tollgate_store::MemoryStore;
use tollgate_store::faulty::{Call, FaultyStore, Meeting};

fn draft(name: &str, limits: &[&str]) -> PolicyDraft {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    let by = vec!["route".to_owned(), "ip".to_owned()];
    PolicyDraft { name: name.into(), by, limits, ..PolicyDraft::default() }
}

fn spec(name: &str, limits: &[&str]) -> PolicySpec {
    PolicySpec::new(draft(name, limits)).unwrap()
}

fn by(name: &str, by: &[&str], limits: &[&str]) -> PolicySpec {
    let by = by.iter().map(|field| (*field).to_owned()).collect();
    PolicySpec::new(PolicyDraft { by, ..draft(name, limits) }).unwrap()
}

fn base() -> Policies {
    policies(vec![rule::rejecting("own", &["ip"], &["7/hour"])], &[("filed", &["own"])])
}

fn make(engine: &Engine, spec: PolicySpec) {
    block_on(engine.config.create_policy(spec)).unwrap();
}

fn allowed(engine: &Engine, policy: &str, fields: &[(&str, &str)]) -> bool {
    decide(engine, &engine.pin(), policy, fields).unwrap().allowed()
}

/// The names that prevent the deletion of a policy.
fn in_use(fault: Result<impl std::fmt::Debug, ChangeFault>) -> Vec<String> {
    match fault {
        Err(ChangeFault::InUse { users, .. }) => users,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_policy_that_was_made_limits_clients_on_routes_and_consumers_on_all_of_them_or_takes_nothing() {
    let stand = Stand::new(base());
    make(&stand.engine, spec("orders", &["2/hour"]));
    make(&stand.engine, spec("search", &["9/hour"]));
    block_on(stand.engine.config.set_override("consumer", "acme", vec!["3/hour".parse().unwrap()])).unwrap();
    let fields = |ip, consumer| [("route", "r"), ("ip", ip), ("consumer", consumer)];
    let allowed = |policy, ip, consumer| allowed(&stand.engine, policy, &fields(ip, consumer));
    assert!(allowed("orders", "192.0.2.1", "acme") && allowed("orders", "192.0.2.1", "acme"));
    assert!(!allowed("orders", "192.0.2.1", "acme"), "the client has had its two");
    assert!(allowed("search", "192.0.2.2", "acme"), "and the refused one cost the consumer nothing");
    assert!(!allowed("search", "192.0.2.2", "acme"), "the consumer has had its three");
    assert!(allowed("orders", "192.0.2.3", "other"), "other consumers are not bounded");
    let pinned = stand.pin();
    let full = fields("192.0.2.2", "acme");
    let denied = decide(&stand.engine, &pinned, "search", &full).unwrap();
    assert_eq!(&*denied.denied_by().unwrap().rule.name, "consumer");
    let fields = fields("192.0.2.2", "ada");
    let search = decide(&stand.engine, &pinned, "search", &fields).unwrap();
    assert_eq!(search.outcome.readings[0].remaining, 7, "one before, one now, and none of the refused");
}

#[test]
fn a_missing_field_is_not_limited_and_an_unknown_field_is_a_mistake() {
    let stand = Stand::new(base());
    make(&stand.engine, by("tokens", &["subject"], &["1/hour"]));
    for _ in 0..3 {
        assert!(allowed(&stand.engine, "tokens", &[]));
        assert!(allowed(&stand.engine, "tokens", &[("consumer", "acme")]));
    }
    let subject = [("subject", "ada")];
    assert!(allowed(&stand.engine, "tokens", &subject) && !allowed(&stand.engine, "tokens", &subject));
    assert!(decide(&stand.engine, &stand.pin(), "tokens", &[("sujbect", "ada")]).is_err());
}

#[test]
fn a_policy_that_was_made_survives_a_restart_and_a_reload() {
    let stand = Stand::new(base());
    let made = block_on(stand.engine.config.create_policy(spec("orders", &["2/hour"]))).unwrap();
    block_on(stand.engine.config.assign("checkout", "orders")).unwrap();
    let fields = [("route", "checkout"), ("ip", "192.0.2.1")];
    assert!(allowed(&stand.engine, "orders", &fields));
    let restarted = start(base(), &stand.store);
    restarted.reload(base());
    assert_eq!(restarted.pin().dynamic_policies()["orders"], made);
    assert_eq!(&*restarted.pin().assigned_policy("checkout").unwrap().name, "orders");
    assert!(allowed(&restarted, "orders", &fields) && !allowed(&restarted, "orders", &fields));
}

#[test]
fn a_taken_name_is_refused_and_says_if_it_is_configured() {
    let stand = Stand::new(base());
    make(&stand.engine, spec("orders", &["2/hour"]));
    let fault =
        |name: &str| block_on(stand.engine.config.create_policy(spec(name, &["1/hour"]))).unwrap_err();
    assert_eq!(fault("orders"), ChangeFault::Taken { name: "orders".into() });
    for name in ["own", "filed", "consumer"] {
        assert_eq!(fault(name), ChangeFault::Configured { name: name.into() });
    }
    assert_eq!(stand.pin().dynamic_policies().len(), 1);
}

#[test]
fn a_policy_is_left_out_while_the_configuration_uses_its_name() {
    let stand = Stand::new(base());
    make(&stand.engine, by("orders", &["ip"], &["2/hour"]));
    block_on(stand.engine.config.assign("checkout", "orders")).unwrap();
    let number = || {
        let pinned = stand.pin();
        let decision = decide(&stand.engine, &pinned, "orders", &[("ip", "192.0.2.1")]).unwrap();
        decision.binding().unwrap().0.number()
    };
    assert_eq!(number(), 2);
    let filed = || rule::rejecting("orders", &["ip"], &["5/hour"]);
    stand.engine.reload(policies(vec![filed()], &[("orders", &["orders"])]));
    assert_eq!((number(), stand.pin().holds("orders")), (5, false));
    assert_eq!(&*stand.pin().assigned_policy("checkout").unwrap().name, "orders", "now the file's");
    stand.engine.reload(policies(vec![filed()], &[("other", &["orders"])]));
    assert!(decide(&stand.engine, &stand.pin(), "orders", &[]).is_err(), "a rule has the name, no policy");
    assert!(stand.pin().assigned_policy("checkout").is_none());
    stand.engine.reload(base());
    assert_eq!((number(), stand.pin().holds("orders")), (2, true));
    assert!(stand.pin().assigned_policy("checkout").is_some());
}

#[test]
fn the_configurations_own_rule_of_consumers_stands_in_for_the_built_in_one() {
    let consumer = rule::rejecting("consumer", &["consumer"], &["1/hour"]);
    let stand = Stand::new(policies(vec![consumer], &[]));
    make(&stand.engine, spec("orders", &["9/hour"]));
    let fields = [("route", "r"), ("ip", "192.0.2.1"), ("consumer", "acme")];
    assert!(allowed(&stand.engine, "orders", &fields) && !allowed(&stand.engine, "orders", &fields));
}

#[test]
fn fields_have_the_kinds_of_the_configuration() {
    let kinds = [("ip".into(), FieldKind::Ip { v4: 24, v6: 48 }), ("consumer".into(), FieldKind::Domain)];
    let stand = Stand::new(base().with_roster(Arc::new(Roster::new(Kinds::new(kinds), Vec::new()))));
    make(&stand.engine, by("orders", &["ip"], &["1/hour"]));
    assert!(allowed(&stand.engine, "orders", &[("ip", "192.0.2.1")]));
    assert!(!allowed(&stand.engine, "orders", &[("ip", "192.0.2.200")]), "the same network");
    block_on(stand.engine.config.set_override("consumer", "acme.example", vec!["1/hour".parse().unwrap()]))
        .unwrap();
    assert!(allowed(&stand.engine, "orders", &[("consumer", "ACME.example")]));
    assert!(!allowed(&stand.engine, "orders", &[("consumer", "acme.example.")]));
}

#[test]
fn limits_that_no_attempt_could_meet_are_refused_and_left_out_where_they_came_about() {
    let stand = Stand::new(base());
    let clash =
        |spec| matches!(block_on(stand.engine.config.create_policy(spec)), Err(ChangeFault::Clash(_)));
    assert!(clash(by("a", &["size"], &["5 size per attempt"])));
    assert!(clash(by("a", &["size"], &["5 consumer per attempt"])));
    block_on(stand.engine.config.set_override(
        "consumer",
        "acme",
        vec!["5 size per attempt".parse().unwrap()],
    ))
    .unwrap();
    assert!(clash(by("a", &["size"], &["9/hour"])), "what was set for a consumer bounds it");
    make(&stand.engine, by("a", &["ip"], &["9/hour", "5 size per attempt"]));
    assert!(matches!(
        block_on(stand.engine.config.change_policy(by("a", &["size"], &["9/hour"]), None)),
        Err(ChangeFault::Clash(_))
    ));
    stand.engine.reload(policies(vec![rule::rejecting("consumer", &["size"], &["9/hour"])], &[]));
    assert!(!stand.pin().holds("a"));
    stand.engine.reload(base());
    assert!(stand.pin().holds("a"));
}

#[test]
fn a_change_keeps_counts_and_is_made_from_the_state_that_is_expected() {
    let stand = Stand::new(base());
    let made = block_on(stand.engine.config.create_policy(spec("orders", &["2/hour"]))).unwrap();
    let fields = [("route", "r"), ("ip", "192.0.2.1")];
    assert!(allowed(&stand.engine, "orders", &fields) && allowed(&stand.engine, "orders", &fields));
    stand.clock.advance(Span::from_secs(5));
    let change =
        block_on(stand.engine.config.change_policy(spec("orders", &["3/hour"]), Some(&[made.tag()])))
            .unwrap();
    assert_eq!((&change.before, change.after.version, change.after.created), (&made, 2, made.created));
    assert_eq!(change.after.updated, made.updated + Span::from_secs(5));
    assert!(allowed(&stand.engine, "orders", &fields) && !allowed(&stand.engine, "orders", &fields));
    let stale = block_on(stand.engine.config.change_policy(spec("orders", &["9/hour"]), Some(&[made.tag()])));
    assert_eq!(stale.unwrap_err(), ChangeFault::Changed { name: "orders".into() });
    let stale = block_on(stand.engine.config.delete_policy("orders", Some(&[made.tag()]), &[]));
    assert_eq!(stale.unwrap_err(), ChangeFault::Changed { name: "orders".into() });
    assert_eq!(
        block_on(stand.engine.config.change_policy(spec("order", &["9/hour"]), None)).unwrap_err(),
        ChangeFault::Unknown { name: "order".into() }
    );
    block_on(stand.engine.config.delete_policy("orders", None, &[])).unwrap();
    stand.clock.advance(Span::from_secs(5));
    let again = block_on(stand.engine.config.create_policy(spec("orders", &["2/hour"]))).unwrap();
    assert_ne!(again.tag(), made.tag(), "it is another one");
}

#[test]
fn an_unassigned_policy_is_deleted_with_its_overrides() {
    let stand = Stand::new(base());
    make(&stand.engine, by("orders", &["ip"], &["2/hour"]));
    block_on(stand.engine.config.set_override("orders", "192.0.2.1", vec!["1/hour".parse().unwrap()]))
        .unwrap();
    for name in ["b", "a"] {
        assert_eq!(block_on(stand.engine.config.assign(name, "orders")).unwrap(), None);
    }
    assert_eq!(block_on(stand.engine.config.assign("a", "filed")).unwrap().as_deref(), Some("orders"));
    let delete =
        |configured: &[String]| block_on(stand.engine.config.delete_policy("orders", None, configured));
    assert_eq!(in_use(delete(&["c".into(), "b".into()])), ["b", "c"]);
    assert_eq!(block_on(stand.engine.config.unassign("b")).unwrap().as_deref(), Some("orders"));
    assert_eq!(block_on(stand.engine.config.unassign("b")).unwrap(), None);
    assert_eq!(in_use(delete(&["c".into()])), ["c"]);
    delete(&[]).unwrap();
    assert_eq!(delete(&[]).unwrap_err(), ChangeFault::Unknown { name: "orders".into() });
    assert!(decide(&stand.engine, &stand.pin(), "orders", &[]).is_err());
    let records = block_on(stand.store.changes(Namespace::Config, None)).unwrap().entries;
    let names: Vec<&str> = records.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["route/a"]);
    make(&stand.engine, by("orders", &["ip"], &["2/hour"]));
    assert!(allowed(&stand.engine, "orders", &[("ip", "192.0.2.1")]));
    assert!(allowed(&stand.engine, "orders", &[("ip", "192.0.2.1")]), "as many as everybody else");
}

#[test]
fn overrides_of_a_removed_rule_do_not_apply_to_a_new_one_of_its_name() {
    let stand = Stand::new(base());
    block_on(stand.engine.config.set_override("own", "192.0.2.1", vec!["1/hour".parse().unwrap()])).unwrap();
    stand.engine.reload(policies(Vec::new(), &[]));
    make(&stand.engine, by("own", &["ip"], &["2/hour"]));
    let fields = [("ip", "192.0.2.1")];
    assert!(allowed(&stand.engine, "own", &fields) && allowed(&stand.engine, "own", &fields));
    assert!(!stand.engine.config.is_overridden("own", "192.0.2.1"));
}

#[test]
fn a_name_gets_any_policy_there_is_and_no_other() {
    let stand = Stand::new(base());
    assert!(stand.pin().assigned_policy("r").is_none());
    block_on(stand.engine.config.assign("r", "filed")).unwrap();
    let pinned = stand.pin();
    assert_eq!(&*pinned.assigned_policy("r").unwrap().name, "filed");
    assert!(pinned.is_configured(pinned.assigned_policy("r").unwrap()));
    assert!(pinned.assigned_policy("other").is_none());
    let fault = block_on(stand.engine.config.assign("r", "filled")).unwrap_err();
    assert_eq!(fault.to_string(), "there is no policy `filled`; did you mean `filed`?");
    stand.engine.reload(policies(Vec::new(), &[]));
    assert!(stand.pin().assigned_policy("r").is_none(), "there is no such policy any more");
    assert_eq!(stand.pin().assignments().len(), 1, "and it is not forgotten");
}

fn put(store: &MemoryStore, record: &str, value: &[u8]) {
    block_on(store.change(Namespace::Config, &[Edit::put(record, value)])).unwrap();
}

#[test]
fn a_record_that_cannot_be_read_is_left_out_and_can_be_replaced() {
    let stand = Stand::new(base());
    for (record, value) in [
        ("policy/orders", &b"limit nonsense"[..]),
        ("route/r", b"\xff"),
        ("override/own/192.0.2.1", b"nonsense"),
        ("something/else", b"of a newer node"),
    ] {
        put(&stand.store, record, value);
    }
    let engine = start(base(), &stand.store);
    assert!(engine.pin().dynamic_policies().is_empty() && engine.pin().assignments().is_empty());
    make(&engine, spec("orders", &["2/hour"]));
    block_on(engine.config.assign("r", "orders")).unwrap();
    block_on(engine.config.set_override("own", "192.0.2.1", vec!["1/hour".parse().unwrap()])).unwrap();
    let engine = start(base(), &stand.store);
    assert_eq!(&*engine.pin().assigned_policy("r").unwrap().name, "orders");
    assert!(engine.config.is_overridden("own", "192.0.2.1"));
}

#[test]
fn there_is_a_bound_on_everything_that_can_be_made() {
    let stand = Stand::new(base());
    let record = "version 1\ncreated 1\nupdated 1\nby ip\nlimit 2/hour";
    for number in 0..10_000 {
        put(&stand.store, &format!("policy/p{number}"), record.as_bytes());
        put(&stand.store, &format!("route/r{number}"), b"filed");
    }
    for number in 0..100_000 {
        put(&stand.store, &format!("override/consumer/{number}"), b"2/hour");
    }
    let engine = start(base(), &stand.store);
    assert!(allowed(&engine, "p9999", &[("ip", "192.0.2.1")]));
    let most = |fault| match fault {
        ChangeFault::TooMany { most, .. } => most,
        other => panic!("{other}"),
    };
    assert_eq!(most(block_on(engine.config.create_policy(spec("more", &["2/hour"]))).unwrap_err()), 10_000);
    assert_eq!(most(block_on(engine.config.assign("more", "p1")).unwrap_err()), 10_000);
    let limits = || vec!["3/hour".parse().unwrap()];
    assert_eq!(most(block_on(engine.config.set_override("own", "more", limits())).unwrap_err()), 100_000);
    block_on(engine.config.set_override("consumer", "7", limits())).unwrap();
    block_on(engine.config.assign("r7", "p7")).unwrap();
    block_on(engine.config.change_policy(by("p7", &["ip"], &["3/hour"]), None)).unwrap();
    block_on(engine.config.remove_override("consumer", "8")).unwrap();
    block_on(engine.config.set_override("own", "more", limits())).unwrap();
}

#[test]
fn an_invalid_policy_is_refused() {
    let bad = |draft| PolicySpec::new(draft).unwrap_err();
    let long = "x".repeat(65);
    for name in ["", "Orders", "a/b", "ä", "a b", ".", "..", &long] {
        assert_eq!(bad(draft(name, &[])), BadSpec::Name, "{name}");
    }
    assert!(PolicySpec::new(draft(&long[..64], &[])).is_ok());
    let fields = |by: &[&str]| {
        let by = by.iter().map(|field| (*field).to_owned()).collect();
        bad(PolicyDraft { by, ..draft("a", &[]) })
    };
    assert_eq!(fields(&[]), BadSpec::FieldCount { count: 0 });
    assert_eq!(fields(&["a", "b", "c", "d", "e"]), BadSpec::FieldCount { count: 5 });
    assert_eq!(fields(&["a", "b c"]), BadSpec::Field { field: "b c".into() });
    assert_eq!(fields(&["a", "a"]), BadSpec::FieldTwice { field: "a".into() });
    let described = |text: String| PolicySpec::new(PolicyDraft { description: text, ..draft("a", &[]) });
    assert!(described("é\n\t".repeat(256)).is_ok());
    assert_eq!(described("x".repeat(1_025)).unwrap_err(), BadSpec::LongDescription { bytes: 1_025 });
    assert_eq!(described("\x1b[31m".into()).unwrap_err(), BadSpec::UnprintableDescription);
    assert!(matches!(bad(draft("a", &["1/hour", "2/hour"])), BadSpec::Plan(_)));
    assert!(matches!(bad(draft("a", &["1/day calendar in Europe/Berin"])), BadSpec::Zone { .. }));
    let alone = |on_outage: &str| PolicyDraft {
        on_outage: Some(on_outage.parse().unwrap()),
        ..draft("a", &["5 in total"])
    };
    assert!(matches!(bad(alone("local 50%")), BadSpec::NoShare { .. }));
    assert!(PolicySpec::new(alone("deny")).is_ok());
}

#[test]
fn a_recorded_change_takes_effect_even_if_its_caller_did_not_wait() {
    let stand = Stand::new(base());
    // Records are written, but no write is confirmed.
    let records = FaultyStore::with_records(Arc::clone(&stand.store), |call| match call {
        Call::Change(_) => Meeting::answered_after(std::future::pending()),
        _ => Meeting::Pass,
    });
    let records = Arc::new(records);
    let parts = Parts { store: Arc::clone(&stand.store) as _, records, fallback: None };
    let engine = block_on(Engine::start(base(), parts)).unwrap();
    let left = |change: &mut dyn FnMut() -> bool| {
        assert!(change(), "it waits for ever");
        block_on(engine.tend());
    };
    left(&mut || {
        block_on(poll_once(engine.config.create_policy(by("orders", &["ip"], &["1/hour"])))).is_none()
    });
    left(&mut || block_on(poll_once(engine.config.assign("r", "orders"))).is_none());
    let limits = || vec!["2/hour".parse().unwrap()];
    left(&mut || block_on(poll_once(engine.config.set_override("orders", "192.0.2.1", limits()))).is_none());
    let fields = [("ip", "192.0.2.1")];
    assert!(allowed(&engine, "orders", &fields) && allowed(&engine, "orders", &fields));
    assert!(!allowed(&engine, "orders", &fields));
    assert!(engine.pin().assigned_policy("r").is_some());
    let attempt = Attempt { policy: "orders", fields: &[("ip", "192.0.2.2")], cost: 1, id: None };
    let pinned = engine.pin();
    assert!(block_on(engine.decide(&pinned, &attempt)).unwrap().allowed());
}
