//! Guards: who is notified of a lock, how often, and what operators see of locks and can do about them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{
    self,
    cluster::{Centre, Mode},
};
use crate::support::{START, Stand, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::store::Refunded;
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Guard, OnExceed, Policies, Receipt, ReceiptLine, Rule, Span, Ticket};
use tollgate_engine::guard::{Ending, Notice};
use tollgate_engine::receipt::{Kind, Seal};
use tollgate_engine::{Engine, Finished};

const LADDER: &str = "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m";
/// Locks at the second failure.
const SHORT: &str = "ladder 2 lock 15m notify";
const ADA: [(&str, &str); 1] = [("user", "ada")];
const ADA_AT_HOME: [(&str, &str); 2] = [("user", "ada"), ("ip", "192.0.2.1")];

fn guarded(rules: Vec<Rule>, own: &[&str]) -> Policies {
    policies(rules, &[("login", own)]).with_guards(vec![Guard::new("door", "login")])
}

fn by_user(ladder: &str) -> Policies {
    guarded(vec![rule::rejecting("account", &["user"], &[ladder])], &["account"])
}

fn begin(engine: &Arc<Engine>, fields: &[(&str, &str)]) -> Option<String> {
    support::begin(engine, "door", fields).ticket
}

fn finish(engine: &Engine, ticket: &str, ending: Ending) -> Finished {
    block_on(engine.guards.finish(&engine.pin(), ticket, ending)).unwrap()
}

fn fail(engine: &Arc<Engine>, fields: &[(&str, &str)]) -> Vec<Notice> {
    let ticket = begin(engine, fields).expect("it may begin");
    finish(engine, &ticket, Ending::Failure).notices
}

/// The locked keys, as operators may see them, and until when.
fn locks(engine: &Engine) -> Vec<(String, Span)> {
    let pinned = engine.pin();
    let (locks, more) =
        block_on(engine.guards.locks(&pinned, pinned.policies.guard("door").unwrap(), None, 100)).unwrap();
    assert_eq!(more, None);
    locks.into_iter().map(|lock| (lock.key, lock.until.since(START))).collect()
}

fn unlock(engine: &Engine, fields: &[(&str, &str)]) -> Vec<String> {
    let pinned = engine.pin();
    let guard = pinned.policies.guard("door").unwrap();
    let unlocked = block_on(engine.guards.unlock(&pinned, guard, fields)).unwrap();
    unlocked.into_iter().map(|(rule, key)| format!("{rule} {key}")).collect()
}

#[test]
fn the_failure_that_locks_is_told_once() {
    let stand = Stand::new(by_user(LADDER));
    let mut notices = stand.engine.guards.take_notices(10);
    for number in 1..=10 {
        assert_eq!(fail(&stand.engine, &ADA), [], "failure {number}");
        stand.clock.advance(Span::from_secs(5));
    }
    let told = fail(&stand.engine, &ADA);
    let at = START + Span::from_secs(50);
    let expected = Notice {
        guard: "door".into(),
        rule: "account".into(),
        key: "ada".into(),
        fields: vec![("user".into(), "ada".into())],
        failures: 11,
        at,
        locked_until: Some(at + Span::from_secs(900)),
        notify: true,
    };
    assert_eq!(told, std::slice::from_ref(&expected));
    assert_eq!(notices.try_recv().ok(), Some(expected));
    assert!(begin(&stand.engine, &ADA).is_none());
    assert!(notices.try_recv().is_err(), "a refused attempt sends no notice");
    assert_eq!(stand.engine.guards.meters().of("door"), [11, 1, 11, 1]);
    let journal = stand.engine.observer.journal.latest(100);
    let entry = journal.iter().find(|entry| entry.locked.is_some()).unwrap();
    assert_eq!((entry.key.as_deref(), entry.locked), (Some("ada"), Some(Span::from_secs(900))));
    stand.clock.advance(Span::from_secs(900));
    for _ in 0..10 {
        assert_eq!(fail(&stand.engine, &ADA), [], "all was forgotten with the end of the lock");
        stand.clock.advance(Span::from_secs(5));
    }
    assert_eq!(fail(&stand.engine, &ADA).len(), 1, "another episode");
}

#[test]
fn a_success_or_abandonment_on_the_last_attempt_sends_no_notice() {
    let stand = Stand::new(by_user(SHORT));
    let mut notices = stand.engine.guards.take_notices(10);
    assert_eq!(fail(&stand.engine, &ADA), []);
    for ending in [Ending::Abandoned, Ending::Success] {
        let ticket = begin(&stand.engine, &ADA).unwrap();
        assert!(begin(&stand.engine, &ADA).is_none(), "while it lasts, it may be a failure");
        let finished = finish(&stand.engine, &ticket, ending);
        assert_eq!((finished.refunded, finished.notices), (Refunded::Done, vec![]));
    }
    assert!(notices.try_recv().is_err());
    assert_eq!(locks(&stand.engine), []);
}

#[test]
fn an_attempt_without_an_end_sends_its_notice_after_five_minutes() {
    let stand = Stand::new(by_user(SHORT));
    let mut notices = stand.engine.guards.take_notices(10);
    assert_eq!(fail(&stand.engine, &ADA), []);
    let ticket = begin(&stand.engine, &ADA).unwrap();
    stand.clock.advance(Span::from_secs(299));
    block_on(stand.engine.tend());
    assert!(notices.try_recv().is_err());
    stand.clock.advance(Span::from_secs(1));
    block_on(stand.engine.tend());
    let notice = notices.try_recv().unwrap();
    assert_eq!((notice.failures, notice.locked_until), (2, Some(START + Span::from_secs(900))));
    assert_eq!(finish(&stand.engine, &ticket, Ending::Failure).refunded, Refunded::Already);
    block_on(stand.engine.tend());
    assert!(notices.try_recv().is_err());
}

#[test]
fn an_attempt_begun_on_one_node_and_ended_on_another_sends_one_notice() {
    let centre = Centre::new();
    let (here, there) = (centre.node(by_user(SHORT)), centre.node(by_user(SHORT)));
    let (mut told_here, mut told_there) =
        (here.engine.guards.take_notices(10), there.engine.guards.take_notices(10));
    let first = begin(&here.engine, &ADA).unwrap();
    let second = begin(&here.engine, &ADA).unwrap();
    assert_eq!(finish(&there.engine, &second, Ending::Failure).notices.len(), 1);
    assert_eq!(finish(&there.engine, &first, Ending::Failure).notices, []);
    assert_eq!(finish(&here.engine, &second, Ending::Failure).refunded, Refunded::Already);
    here.advance(Span::from_secs(400));
    here.tend();
    assert!(told_there.try_recv().is_ok());
    assert!(told_there.try_recv().is_err() && told_here.try_recv().is_err());
    assert_eq!(locks(&here.engine), locks(&there.engine));
    assert_eq!(locks(&here.engine).len(), 1, "all nodes know who is locked");
}

#[test]
fn notices_beyond_the_queue_are_dropped_and_counted() {
    let stand = Stand::new(by_user("ladder 1 lock 1m notify"));
    let mut notices = stand.engine.guards.take_notices(2);
    for user in ["a", "b", "c"] {
        assert_eq!(fail(&stand.engine, &[("user", user)]).len(), 1);
    }
    let told: Vec<String> = std::iter::from_fn(|| notices.try_recv().ok()).map(|notice| notice.key).collect();
    assert_eq!(told, ["a", "b"]);
    assert_eq!(stand.engine.guards.meters().missed(), 1);
    assert_eq!(locks(&stand.engine).len(), 3);
}

#[test]
fn a_lock_that_is_renewed_is_listed_and_not_told_of_again() {
    let stand = Stand::new(by_user("ladder 1 lock 1m notify forget 1h"));
    assert_eq!(fail(&stand.engine, &ADA).len(), 1);
    assert_eq!(locks(&stand.engine), [("ada".into(), Span::from_secs(60))]);
    stand.clock.advance(Span::from_secs(60));
    assert_eq!(locks(&stand.engine), []);
    block_on(stand.engine.tend());
    assert_eq!(fail(&stand.engine, &ADA), [], "it is the same step");
    assert_eq!(locks(&stand.engine), [("ada".into(), Span::from_secs(120))]);
}

#[test]
fn a_listed_lock_is_still_in_force_when_it_is_read() {
    let stand = Stand::new(by_user(SHORT));
    let first = begin(&stand.engine, &ADA).unwrap();
    let second = begin(&stand.engine, &ADA).unwrap();
    assert_eq!(finish(&stand.engine, &second, Ending::Failure).notices.len(), 1);
    assert_eq!(locks(&stand.engine).len(), 1);
    assert_eq!(finish(&stand.engine, &first, Ending::Abandoned).refunded, Refunded::Done);
    assert_eq!(locks(&stand.engine), [], "one failure does not lock");
    assert!(begin(&stand.engine, &ADA).is_some());
}

#[test]
fn locks_survive_a_restart_and_go_when_they_end() {
    let stand = Stand::new(by_user(SHORT));
    for _ in 0..2 {
        fail(&stand.engine, &ADA);
    }
    let again = support::start(by_user(SHORT), &stand.store);
    assert_eq!(locks(&again), [("ada".into(), Span::from_secs(900))]);
    stand.clock.advance(Span::from_secs(900));
    block_on(again.tend());
    let third = support::start(by_user(SHORT), &stand.store);
    assert_eq!(locks(&third), []);
}

#[test]
fn a_record_of_another_version_or_secret_is_left_out_and_the_others_are_listed() {
    let stand = Stand::new(by_user(SHORT));
    for user in ["ada", "ada", "bob", "bob"] {
        fail(&stand.engine, &[("user", user)]);
    }
    let line = ReceiptLine { rule: "account".into(), key: "eve".into(), cost: 2 };
    let lock = Receipt { ticket: Ticket(1), at: START, taken: vec![line] };
    let own = Seal::new(stand.store.secret());
    let sealed = own.seal(Kind::Lock, &lock);
    let version = |version: u8| {
        let mut bytes = data_encoding::BASE64URL_NOPAD.decode(sealed.as_bytes()).unwrap();
        bytes[0] = version;
        data_encoding::BASE64URL_NOPAD.encode(&bytes)
    };
    let until = (START + Span::from_secs(900)).as_micros();
    let unreadable = [
        format!("{until}\n{}", version(3)),
        format!("{until}\n{}", version(17)),
        format!("{until}\n{}", Seal::new([9; 32]).seal(Kind::Lock, &lock)),
        format!("{until}\n{}", own.seal(Kind::Pause, &lock)),
        until.to_string(),
    ];
    // By their names these records come before and after the ones that can be read.
    let edits = unreadable.iter().enumerate().flat_map(|(number, value)| {
        ["!", "~"].map(|mark| Edit::put(format!("door/account/{mark}{number}"), value.clone()))
    });
    let edits: Vec<Edit> = edits.collect();
    block_on(tollgate_core::Records::change(&*stand.store, Namespace::Locks, &edits)).unwrap();
    let again = Arc::new(support::start(by_user(SHORT), &stand.store));
    let sorted = |mut keys: Vec<String>| {
        keys.sort();
        keys
    };
    assert_eq!(sorted(locks(&again).into_iter().map(|(key, _)| key).collect()), ["ada", "bob"]);
    let (mut keys, mut after) = (Vec::new(), None::<String>);
    loop {
        let pinned = again.pin();
        let guard = pinned.policies.guard("door").unwrap();
        let page = block_on(again.guards.locks(&pinned, guard, after.as_deref(), 1)).unwrap();
        keys.extend(page.0.into_iter().map(|lock| lock.key));
        after = page.1;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(sorted(keys), ["ada", "bob"], "page by page");
    assert_eq!(unlock(&again, &ADA), ["account ada"]);
    assert!(begin(&again, &[("user", "eve")]).is_some(), "eve was never locked");
}

#[test]
fn an_operator_unlocks_by_any_known_field() {
    let account =
        rule::with("account", &["user"], &["ladder 10 captcha then 100 +1m captcha"], OnExceed::Observe);
    let rules = || vec![rule::rejecting("own", &["user", "ip"], &[SHORT]), account.clone()];
    let stand = Stand::new(guarded(rules(), &["own", "account"]));
    for (user, ip) in [("ada", "192.0.2.1"), ("ada", "192.0.2.2"), ("bob", "192.0.2.1")] {
        for _ in 0..2 {
            fail(&stand.engine, &[("user", user), ("ip", ip)]);
        }
    }
    assert_eq!(locks(&stand.engine).len(), 3);
    let pinned = stand.pin();
    let guard = pinned.policies.guard("door").unwrap();
    let standings = block_on(stand.engine.guards.standings(&pinned, guard, &ADA_AT_HOME)).unwrap();
    let until = Some(START + Span::from_secs(900));
    assert_eq!(
        standings.iter().map(|own| (&*own.rule, own.failures, own.locked_until)).collect::<Vec<_>>(),
        [("own", 2, until), ("account", 4, None)]
    );
    let mut unlocked = unlock(&stand.engine, &ADA);
    unlocked.sort();
    assert_eq!(unlocked, ["account ada", "own ada,192.0.2.1", "own ada,192.0.2.2"]);
    assert_eq!(locks(&stand.engine).len(), 1, "bob's");
    assert!(begin(&stand.engine, &ADA_AT_HOME).is_some());
    assert_eq!(unlock(&stand.engine, &[("ip", "192.0.2.1")]), ["own bob,192.0.2.1"]);
    assert_eq!(locks(&stand.engine), []);
    assert_eq!(unlock(&stand.engine, &[("ip", "192.0.2.9")]), Vec::<String>::new());
}

#[test]
fn secret_keys_are_not_revealed_by_lists_the_journal_or_the_records() {
    let secret = rule::rejecting("account", &["user"], &["ladder 1 lock 1m notify"]).with_secret_keys();
    let stand = Stand::new(guarded(vec![secret], &["account"]));
    let user = [("user", "ada.lovelace@example.com")];
    let told = fail(&stand.engine, &user);
    assert_eq!(told[0].key, user[0].1, "a receiver that notifies the user needs the account");
    let listed = locks(&stand.engine);
    assert!(listed[0].0.starts_with('#'), "{listed:?}");
    let journal = stand.engine.observer.journal.latest(100);
    assert!(journal.iter().all(|entry| !format!("{entry:?}").contains("lovelace")));
    let records =
        block_on(tollgate_core::Records::changes(&*stand.store, Namespace::Locks, None)).unwrap().entries;
    assert_eq!(records.len(), 1);
    for (name, value) in records {
        let value = String::from_utf8(value.unwrap()).unwrap();
        let sealed = value.lines().last().unwrap();
        let bytes = data_encoding::BASE64URL_NOPAD.decode(sealed.as_bytes()).unwrap();
        assert!(
            !name.contains("lovelace") && !bytes.windows(8).any(|window| window == b"lovelace"),
            "{name} {value}"
        );
    }
    assert_eq!(unlock(&stand.engine, &user).len(), 1);
    assert_eq!(locks(&stand.engine), []);
}

#[test]
fn a_reload_replaces_guards_and_a_ticket_of_one_that_is_gone_can_be_ended() {
    let stand = Stand::new(by_user(SHORT));
    fail(&stand.engine, &ADA);
    let ticket = begin(&stand.engine, &ADA).unwrap();
    stand.engine.reload(by_user(SHORT).with_guards(vec![Guard::new("other", "login")]));
    let pinned = stand.pin();
    assert!(pinned.policies.guard("door").is_none());
    let mistake = pinned.policies.find_guard("othr").unwrap_err();
    assert_eq!(mistake.to_string(), "there is no guard `othr`; did you mean `other`?");
    let finished = finish(&stand.engine, &ticket, Ending::Failure);
    assert_eq!((finished.refunded, &*finished.guard, finished.notices.len()), (Refunded::Done, "door", 1));
}

#[test]
fn while_the_store_is_gone_nothing_that_is_overdue_is_lost() {
    let centre = Centre::new();
    let node = centre.node(by_user("ladder 1 lock 15m notify"));
    let mut told = node.engine.guards.take_notices(10);
    for user in ["ada", "bob", "eve"] {
        begin(&node.engine, &[("user", user)]).unwrap();
    }
    node.advance(Span::from_secs(300));
    // The first finish finds the outage. Attempts that expire during it are retried too.
    node.link.set(Mode::LosesQuestions);
    node.tend();
    node.tend();
    assert!(told.try_recv().is_err());
    node.link.set(Mode::Up);
    for _ in 0..5 {
        node.tend_later();
    }
    let mut keys: Vec<String> =
        std::iter::from_fn(|| told.try_recv().ok()).map(|notice| notice.key).collect();
    keys.sort();
    assert_eq!(keys, ["ada", "bob", "eve"]);
}

#[test]
fn while_routes_are_replaced_the_guards_that_go_are_still_there() {
    let other = |name: &str| by_user(SHORT).with_guards(vec![Guard::new(name, "login")]);
    let both = other("new").beside(&other("old"));
    assert!(both.guard("new").is_some() && both.guard("old").is_some());
    assert_eq!(both.guards().len(), 2);
}

/// Begins this many attempts.
fn begin_some(engine: &Arc<Engine>, count: usize) -> Vec<String> {
    (0..count).map(|_| begin(engine, &ADA).expect("it may begin")).collect()
}

const LOCKS_AT_THREE: &str = "ladder 3 lock 15m notify";
const TELLS_AT_THREE: &str = "ladder 3 captcha notify then 100 +1m";

#[test]
fn an_attempt_that_leads_to_no_lock_sends_no_notice() {
    let stand = Stand::new(by_user(LOCKS_AT_THREE));
    let begun = begin_some(&stand.engine, 3);
    finish(&stand.engine, &begun[0], Ending::Success);
    assert_eq!(finish(&stand.engine, &begun[2], Ending::Failure).notices, [], "two failures do not lock");
    assert_eq!(finish(&stand.engine, &begun[1], Ending::Failure).notices, []);
    assert_eq!(locks(&stand.engine), []);
    let told = fail(&stand.engine, &ADA);
    assert_eq!(told.iter().map(|notice| notice.failures).collect::<Vec<_>>(), [3], "the third does");
}

#[test]
fn a_step_that_two_attempts_climbed_to_is_told_of_once() {
    let stand = Stand::new(by_user(TELLS_AT_THREE));
    let mut begun = begin_some(&stand.engine, 3);
    finish(&stand.engine, &begun[0], Ending::Abandoned);
    begun.extend(begin_some(&stand.engine, 1));
    let told = |number: usize| finish(&stand.engine, &begun[number], Ending::Failure).notices.len();
    assert_eq!([told(2), told(3), told(1)], [1, 0, 0], "the third and the fourth made three of two");
    assert_eq!(fail(&stand.engine, &ADA), [], "nor is it news later");
}

#[test]
fn if_the_first_attempt_at_a_step_is_abandoned_the_next_failure_sends_the_notice() {
    for early in [true, false] {
        let stand = Stand::new(by_user(TELLS_AT_THREE));
        let begun = begin_some(&stand.engine, 5);
        if early {
            finish(&stand.engine, &begun[2], Ending::Abandoned);
        }
        assert_eq!(finish(&stand.engine, &begun[3], Ending::Failure).notices.len(), 1, "{early}");
        finish(&stand.engine, &begun[2], Ending::Abandoned);
        assert_eq!(finish(&stand.engine, &begun[4], Ending::Failure).notices, [], "{early}");
    }
}

#[test]
fn an_account_that_fails_again_after_a_success_sends_a_new_notice() {
    let stand = Stand::new(by_user(TELLS_AT_THREE));
    for _ in 0..2 {
        let told: usize = (0..4).map(|_| fail(&stand.engine, &ADA).len()).sum();
        assert_eq!(told, 1);
        let ticket = begin(&stand.engine, &ADA).unwrap();
        finish(&stand.engine, &ticket, Ending::Success);
    }
}

#[test]
fn parallel_failures_on_two_nodes_send_one_notice() {
    let centre = Centre::new();
    let (here, there) = (centre.node(by_user(TELLS_AT_THREE)), centre.node(by_user(TELLS_AT_THREE)));
    let begun = begin_some(&here.engine, 8);
    let nodes = [&here.engine, &there.engine].into_iter().cycle();
    let told = begun
        .iter()
        .rev()
        .zip(nodes)
        .map(|(ticket, node)| finish(node, ticket, Ending::Failure).notices.len());
    assert_eq!(told.sum::<usize>(), 1);
}

#[test]
fn a_lock_by_unfinished_attempts_is_listed_and_can_be_removed() {
    let own = rule::rejecting("own", &["user", "ip"], &[SHORT]);
    let stand = Stand::new(guarded(vec![own], &["own"]));
    for _ in 0..2 {
        begin(&stand.engine, &ADA_AT_HOME).unwrap();
    }
    assert!(begin(&stand.engine, &ADA_AT_HOME).is_none());
    assert_eq!(locks(&stand.engine), [("ada,192.0.2.1".to_owned(), Span::from_secs(900))]);
    assert_eq!(unlock(&stand.engine, &ADA), ["own ada,192.0.2.1"]);
    assert!(begin(&stand.engine, &ADA_AT_HOME).is_some());
    assert_eq!(locks(&stand.engine), []);
}

#[test]
fn a_failure_ends_what_it_held_and_stays_counted() {
    let busy = rule::rejecting("busy", &["user"], &["1 at once"]);
    let account = rule::rejecting("account", &["user"], &[LADDER]);
    let stand = Stand::new(guarded(vec![account, busy], &["account", "busy"]));
    for number in 1..=3 {
        let ticket = begin(&stand.engine, &ADA).expect("nothing is under way");
        assert!(begin(&stand.engine, &ADA).is_none(), "attempt {number} is");
        finish(&stand.engine, &ticket, Ending::Failure);
    }
    let pinned = stand.pin();
    let guard = pinned.policies.guard("door").unwrap();
    let standings = block_on(stand.engine.guards.standings(&pinned, guard, &ADA)).unwrap();
    assert_eq!(standings.iter().map(|own| own.failures).collect::<Vec<_>>(), [3]);
}
