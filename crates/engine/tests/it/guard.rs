//! Guarding logins: what each outcome does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{
    self,
    cluster::{Centre, Mode},
};
use crate::support::{Stand, begin, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::store::Refunded;
use tollgate_core::{Clears, Guard, OnExceed, Origin, Policies, Reason, Rule, Span, StoreError, Timestamp};
use tollgate_engine::engine::{RefundFault, RefundPart};
use tollgate_engine::guard::{Advice, Ending, FinishFault};

/// The ladder of the documentation: nothing, a delay, a delay and a CAPTCHA, a lock.
const LADDER: &str = "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m";

fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

/// Keyed by the account alone.
fn plain() -> Policies {
    policies(vec![rule::rejecting("login", &["user"], &[LADDER])], &[("login", &["login"])])
        .with_guards(vec![Guard::new("login", "login")])
}

/// Locks an account for one address, asks for a CAPTCHA from every address while the account is attacked, and
/// slows down an address that tries many accounts.
fn recommended() -> Policies {
    let account =
        rule::with("account", &["user"], &["ladder 10 captcha then 100 +1m captcha"], OnExceed::Observe);
    let rules: Vec<Rule> = vec![
        rule::rejecting("own", &["user", "ip"], &[LADDER]),
        account,
        rule::rejecting("address", &["ip"], &["ladder 30 +10s then 100 lock 1h"]),
    ];
    policies(rules, &[("login", &["own", "account", "address"])])
        .with_guards(vec![Guard::new("login", "login")])
}

/// The result of one attempt.
struct Seen {
    ticket: Option<String>,
    now: Advice,
    next: Advice,
}

struct Login {
    stand: Stand,
}

impl Login {
    fn new(policies: Policies) -> Self {
        let guards = vec![Guard::new("login", "login")];
        Self { stand: Stand::new(policies.with_guards(guards)) }
    }

    fn begin(&self, fields: &[(&str, &str)]) -> Seen {
        let begun = begin(&self.stand.engine, "login", fields);
        assert_eq!(begun.allowed, begun.ticket.is_some());
        Seen { now: begun.advice, next: begun.if_failed, ticket: begun.ticket }
    }

    fn end(&self, ticket: &str, ending: Ending) -> Refunded {
        let pinned = self.stand.pin();
        block_on(self.stand.engine.guards.finish(&pinned, ticket, ending)).unwrap().refunded
    }

    /// Begins and ends an attempt at once. Returns whether it was allowed.
    fn attempt(&self, fields: &[(&str, &str)], ending: Ending) -> bool {
        let Some(ticket) = self.begin(fields).ticket else { return false };
        assert_eq!(self.end(&ticket, ending), Refunded::Done);
        true
    }

    /// How many failures a rule remembers at a key.
    fn failures(&self, rule: &str, key: &str) -> u64 {
        let pinned = self.stand.pin();
        let plan = &pinned.policies.rule(rule).unwrap().plan;
        let reading = block_on(self.stand.engine.counters.look(plan, key)).unwrap().readings[0];
        reading.capacity - reading.remaining
    }

    fn now(&self) -> Timestamp {
        tollgate_core::Clock::now(&*self.stand.clock)
    }
}

const ADA: [(&str, &str); 1] = [("user", "ada")];
const ADA_AT_HOME: [(&str, &str); 2] = [("user", "ada"), ("ip", "192.0.2.1")];

#[test]
fn failures_bring_delays_a_captcha_and_a_lock_as_the_table_has_it() {
    let login = Login::new(plain());
    // The number of the failure, and what the next attempt must do.
    let delay = |secs| Advice { delay: Span::from_secs(secs), ..Advice::default() };
    for number in 1..=11_u64 {
        let seen = login.begin(&ADA);
        assert_eq!(seen.now, Advice { captcha: number > 6, ..Advice::default() }, "attempt {number}");
        let expected = match number {
            1..=3 => delay(0),
            4..=5 => delay(2),
            6..=10 => Advice { captcha: true, ..delay(5) },
            _ => {
                let locked_until = Some(login.now() + secs(900));
                Advice { locked_until, notify: true, ..delay(900) }
            }
        };
        assert_eq!(seen.next, expected, "after failure {number}");
        assert_eq!(login.end(&seen.ticket.unwrap(), Ending::Failure), Refunded::Done);
        if number < 11 {
            login.stand.clock.advance(seen.next.delay);
        }
    }
    let locked_until = Some(login.now() + secs(900));
    login.stand.clock.advance(secs(60));
    let seen = login.begin(&ADA);
    assert_eq!(seen.ticket, None);
    assert_eq!(seen.now, Advice { delay: secs(840), locked_until, ..Advice::default() });
    assert_eq!(seen.next, seen.now, "it changes nothing, and sends no second notice");
    login.stand.clock.advance(secs(840));
    assert!(login.attempt(&ADA, Ending::Success), "the lock is over, and all is forgotten");
}

#[test]
fn a_success_clears_a_failure_stays_and_an_abandoned_attempt_is_refunded() {
    let login = Login::new(plain());
    for _ in 0..2 {
        assert!(login.attempt(&ADA, Ending::Failure));
    }
    assert!(login.attempt(&ADA, Ending::Abandoned));
    assert_eq!(login.failures("login", "ada"), 2);
    let open = login.begin(&ADA).ticket;
    assert_eq!(login.failures("login", "ada"), 3, "what is not ended is a failure");
    assert!(login.attempt(&ADA, Ending::Success));
    assert_eq!(login.failures("login", "ada"), 0);
    assert_eq!(login.end(&open.unwrap(), Ending::Failure), Refunded::Done, "it began before the success");
    assert_eq!(login.failures("login", "ada"), 0);
}

#[test]
fn guesses_made_side_by_side_do_not_slip_through() {
    let login = Login::new(plain());
    let open: Vec<Seen> = (0..20).map(|_| login.begin(&ADA)).collect();
    assert_eq!(open.iter().filter(|seen| seen.ticket.is_some()).count(), 4);
    assert!(open[5].now.delay == secs(2) && open[5].now.locked_until.is_none());
}

#[test]
fn a_ticket_ends_once_and_only_as_it_was_made() {
    let login = Login::new(plain());
    let ticket = login.begin(&ADA).ticket.unwrap();
    assert_eq!(login.end(&ticket, Ending::Failure), Refunded::Done);
    for ending in [Ending::Success, Ending::Failure, Ending::Abandoned] {
        assert_eq!(login.end(&ticket, ending), Refunded::Already, "{ending:?}");
    }
    assert_eq!(login.failures("login", "ada"), 1);
    let forged = format!("{}AAAA", &ticket[..ticket.len() - 4]);
    let pinned = login.stand.pin();
    let answer = block_on(login.stand.engine.guards.finish(&pinned, &forged, Ending::Success));
    assert_eq!(answer, Err(FinishFault::Forged));
}

#[test]
fn a_ticket_is_no_receipt_and_a_receipt_no_ticket() {
    let login = Login::new(plain());
    let ticket = login.begin(&ADA).ticket.unwrap();
    let pinned = login.stand.pin();
    assert_eq!(
        block_on(login.stand.engine.refund(&pinned, &ticket, RefundPart::All)),
        Err(RefundFault::Ticket)
    );
    let decision = support::decide(&login.stand.engine, &pinned, "login", &ADA).unwrap();
    let receipt = login.stand.engine.receipt(&decision).unwrap();
    let finished = block_on(login.stand.engine.guards.finish(&pinned, &receipt, Ending::Success));
    assert_eq!(finished, Err(FinishFault::Receipt));
    assert_eq!(login.failures("login", "ada"), 2, "neither did anything");
    assert_eq!(block_on(login.stand.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Done));
    assert_eq!(login.end(&ticket, Ending::Abandoned), Refunded::Done);
    assert_eq!(login.failures("login", "ada"), 0);
}

#[test]
fn a_success_clears_the_narrowest_ladder_and_takes_back_its_own_failure_elsewhere() {
    let counts = |login: &Login| {
        [("own", "ada,192.0.2.1"), ("account", "ada"), ("address", "192.0.2.1")]
            .map(|(rule, key)| login.failures(rule, key))
    };
    let login = Login::new(recommended());
    for _ in 0..3 {
        assert!(login.attempt(&ADA_AT_HOME, Ending::Failure));
    }
    assert_eq!(counts(&login), [3, 3, 3]);
    assert!(login.attempt(&ADA_AT_HOME, Ending::Success));
    assert_eq!(counts(&login), [0, 3, 3], "one known password does not prove that an address is harmless");
    let guard = |clears| recommended().with_guards(vec![Guard { clears, ..Guard::new("login", "login") }]);
    login.stand.engine.reload(guard(Clears::Rules(vec!["own".into(), "account".into()])));
    assert!(login.attempt(&ADA_AT_HOME, Ending::Success));
    assert_eq!(counts(&login), [0, 0, 3]);
    assert!(login.attempt(&ADA_AT_HOME, Ending::Failure));
    login.stand.engine.reload(guard(Clears::Nothing));
    assert!(login.attempt(&ADA_AT_HOME, Ending::Success));
    assert_eq!(counts(&login), [1, 1, 4], "it takes back its own alone");
    login.stand.engine.reload(guard(Clears::All));
    assert!(login.attempt(&ADA_AT_HOME, Ending::Success));
    assert_eq!(counts(&login), [0, 0, 0]);
}

#[test]
fn the_ticket_of_a_secret_rule_does_not_reveal_the_account() {
    let secret = rule::rejecting("login", &["user"], &[LADDER]).with_secret_keys();
    let login = Login::new(policies(vec![secret], &[("login", &["login"])]));
    let user = "ada.lovelace@example.com";
    let ticket = login.begin(&[("user", user)]).ticket.unwrap();
    let bytes = data_encoding::BASE64URL_NOPAD.decode(ticket.as_bytes()).unwrap();
    assert!(!bytes.windows(3).any(|window| window == b"ada"));
    assert_eq!(login.end(&ticket, Ending::Success), Refunded::Done);
    assert_eq!(login.failures("login", user), 0);
}

#[test]
fn without_the_store_no_login_begins_and_an_end_is_reported_later() {
    let node = Centre::new().node(plain());
    let pinned = node.engine.pin();
    let begin = || begin(&node.engine, "login", &ADA);
    let end = |ticket: &str| block_on(node.engine.guards.finish(&pinned, ticket, Ending::Success));
    let finish = |ticket: &str| end(ticket).map(|finished| finished.refunded);
    for _ in 0..3 {
        assert!(begin().allowed);
    }
    let ticket = begin().ticket.unwrap();
    assert!(!begin().allowed, "it has to wait now");
    node.link.set(Mode::Unreachable);
    assert!(matches!(finish(&ticket), Err(FinishFault::Store(StoreError::Unavailable { .. }))));
    assert_eq!(begin().origin, Origin::Outage(Reason::Open));
    node.link.set(Mode::Up);
    node.tend_later();
    assert!(begin().allowed, "and what was denied a moment ago is asked again");
    assert_eq!(finish(&ticket), Ok(Refunded::Already), "the store was told once it answered");
}

#[test]
fn an_end_is_told_though_its_caller_goes_away_meanwhile() {
    let node = Centre::new().node(plain());
    let pinned = node.engine.pin();
    let begin = || begin(&node.engine, "login", &ADA);
    let tickets: Vec<String> = (0..4).map(|_| begin().ticket.unwrap()).collect();
    assert!(!begin().allowed);
    node.link.set(Mode::Hangs);
    let mut finish = Box::pin(node.engine.guards.finish(&pinned, &tickets[3], Ending::Success));
    assert!(block_on(futures_lite::future::poll_once(&mut finish)).is_none(), "the store is silent");
    drop(finish);
    node.link.set(Mode::Up);
    node.tend();
    assert!(begin().allowed);
}

#[test]
fn a_success_ends_a_local_denial_at_once_and_a_failure_does_not() {
    let node = Centre::new().node(plain());
    let pinned = node.engine.pin();
    let begin = || begin(&node.engine, "login", &ADA);
    let tickets: Vec<String> = (0..4).map(|_| begin().ticket.unwrap()).collect();
    let finish = |ticket: &str, ending| {
        block_on(node.engine.guards.finish(&pinned, ticket, ending)).map(|finished| finished.refunded)
    };
    assert!(!begin().allowed);
    assert_eq!(finish(&tickets[0], Ending::Failure), Ok(Refunded::Done));
    let before = node.calls();
    assert!(!begin().allowed);
    assert_eq!(node.calls(), before, "nothing was freed, so the store was not called");
    assert_eq!(finish(&tickets[3], Ending::Success), Ok(Refunded::Done));
    assert!(begin().allowed, "within the same moment");
}

#[test]
fn an_observing_ladder_only_gives_hints_and_locks_no_account() {
    let observed = rule::observed("login", &["user"], &["ladder 1 lock 1m captcha notify"]);
    let login = Login::new(policies(vec![observed], &[("login", &["login"])]));
    let hints = |captcha, notify| Advice { captcha, notify, ..Advice::default() };
    let seen = login.begin(&ADA);
    assert_eq!((seen.now, seen.next), (hints(false, false), hints(true, true)));
    let begun = begin(&login.stand.engine, "login", &ADA);
    assert!(begun.allowed && begun.ticket.is_none(), "it passes, and there is nothing to end");
    assert_eq!((begun.advice, begun.if_failed), (hints(true, false), hints(true, false)));
}
