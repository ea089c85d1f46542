//! An hour of attack on a guarded login, by a clock that the test moves: how many guesses get through, and
//! how the attack affects the owner of the account.
//!
//! One attacker guesses one account from many addresses, another guesses many accounts from one address. Both
//! know the ladders and guess whenever they may; some ignore the advice and guess every second. The owner
//! logs in from home now and then, and mistypes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{Stand, begin, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::store::Refunded;
use tollgate_core::{Clock, Guard, OnExceed, Origin, Policies, Rule, Timestamp};
use tollgate_engine::guard::{Advice, Ending};

/// The ladder of the documentation: nothing, a delay, a delay and a CAPTCHA, a lock.
const LADDER: &str = "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m";
/// The same in numbers: from how many failures on, for how many seconds; and when it is forgotten.
const OWN: Steps = Steps { pauses: &[(4, 2), (6, 5), (11, 900)], forget: 900 };
const ADDRESS: Steps = Steps { pauses: &[(30, 10), (100, 3_600)], forget: 3_600 };

const HOUR: u64 = 3_600;
const HOME: &str = "192.0.2.1";
/// How many addresses guess the one account, and how many of them ignore the advice.
const ADDRESSES: usize = 150;
const DEAF: usize = 10;

/// A ladder, computed by hand.
struct Steps {
    pauses: &'static [(u64, u64)],
    forget: u64,
}

impl Steps {
    fn pause(&self, failures: u64) -> u64 {
        self.pauses.iter().rev().find(|(from, _)| *from <= failures).map_or(0, |(_, pause)| *pause)
    }

    /// How many failures fit into this many seconds, from any number of clients.
    fn most_in(&self, seconds: u64) -> u64 {
        let (mut at, mut failures, mut all) = (0, 0, 0);
        while at < seconds {
            (failures, all) = (failures + 1, all + 1);
            let pause = self.pause(failures);
            at += pause;
            if pause >= self.forget {
                failures = 0;
            }
        }
        all
    }
}

/// Keyed by the account alone.
fn plain() -> Policies {
    let rules = vec![rule::rejecting("login", &["user"], &[LADDER])];
    policies(rules, &[("login", &["login"])]).with_guards(vec![Guard::new("login", "login")])
}

/// Locks an account for one address, asks for a CAPTCHA from every address while the account is attacked, and
/// slows down, locks and bans an address that tries many accounts.
fn recommended() -> Policies {
    let account = rule::with(
        "account",
        &["user"],
        &["ladder 10 captcha then 100 +1m captcha notify"],
        OnExceed::Observe,
    );
    let address = rule::rejecting("address", &["ip"], &["ladder 30 +10s then 100 lock 1h forget 1h"]);
    let ban = Some("after 50 denials in 10m ban 1h up to 24h".parse().unwrap());
    let rules = vec![rule::rejecting("own", &["user", "ip"], &[LADDER]), account, Rule { ban, ..address }];
    policies(rules, &[("login", &["own", "account", "address"])])
        .with_guards(vec![Guard::new("login", "login")])
}

/// A reproducible sequence of numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The result of one attempt.
enum Tried {
    /// It was allowed: the advice for it, and the advice for the next attempt if it failed.
    Made {
        now: Advice,
        next: Advice,
    },
    /// It was refused, with this advice.
    Refused(Advice),
    Blocked,
}

/// The guarded login.
struct Login {
    stand: Stand,
    by_address: bool,
}

impl Login {
    fn new(policies: Policies) -> Self {
        let by_address = policies.find("login").unwrap().fields().any(|field| field == "ip");
        Self { stand: Stand::new(policies), by_address }
    }

    fn attempt(&self, user: &str, ip: &str, ending: Ending) -> Tried {
        let fields = [("user", user), ("ip", ip)];
        let fields = if self.by_address { &fields[..] } else { &fields[..1] };
        let begun = begin(&self.stand.engine, "login", fields);
        let Some(ticket) = &begun.ticket else {
            let blocked = begun.origin == Origin::Blocked;
            return if blocked { Tried::Blocked } else { Tried::Refused(begun.advice) };
        };
        let finished = block_on(self.stand.engine.guards.finish(&self.stand.pin(), ticket, ending)).unwrap();
        assert_eq!(finished.refunded, Refunded::Done);
        Tried::Made { now: begun.advice, next: begun.if_failed }
    }

    fn now(&self) -> Timestamp {
        self.stand.clock.now()
    }
}

/// An attacker at one address.
struct Guesser {
    address: String,
    /// Guesses every second, whatever the advice.
    deaf: bool,
    next: u64,
    guesses: u64,
    banned: bool,
}

impl Guesser {
    fn new(address: String) -> Self {
        Self { address, deaf: false, next: 0, guesses: 0, banned: false }
    }

    /// Guesses until it is told to come later, or as often as its connection allows. The number of the guess
    /// determines the account.
    fn guess(&mut self, login: &Login, second: u64, account: impl Fn(u64) -> String) {
        for _ in 0..2 {
            if !self.deaf && self.next > second {
                return;
            }
            match login.attempt(&account(self.guesses), &self.address, Ending::Failure) {
                Tried::Made { next, .. } => {
                    self.guesses += 1;
                    self.next = second + next.delay.as_secs_ceil();
                }
                Tried::Refused(advice) => {
                    self.next = second + advice.delay.as_secs_ceil();
                    return;
                }
                Tried::Blocked => {
                    (self.banned, self.next) = (true, u64::MAX);
                    return;
                }
            }
        }
    }
}

/// The owner of the account, at home.
struct Owner {
    dice: Dice,
    /// When the next attempt is made, and how many mistakes come before the right password.
    next: u64,
    mistakes_left: u64,
    /// The mistakes since the last success, and when the last of them was.
    failures: u64,
    last: u64,
    logins: u64,
    mistakes: u64,
    captchas: u64,
    /// How often it was refused, and how often by a lock.
    refused: u64,
    locked: u64,
    /// The longest wait, in seconds, that its own mistakes do not explain.
    unexplained: u64,
}

impl Owner {
    fn new() -> Self {
        Self {
            dice: Dice(5),
            next: 20,
            mistakes_left: 0,
            failures: 0,
            last: 0,
            logins: 0,
            mistakes: 0,
            captchas: 0,
            refused: 0,
            locked: 0,
            unexplained: 0,
        }
    }

    fn live(&mut self, login: &Login, second: u64) {
        if second < self.next {
            return;
        }
        let ending = if self.mistakes_left > 0 { Ending::Failure } else { Ending::Success };
        match login.attempt("ada", HOME, ending) {
            Tried::Blocked => panic!("the owner is banned"),
            Tried::Refused(advice) => self.refused(&advice, second),
            Tried::Made { now, .. } => {
                self.captchas += u64::from(now.captcha);
                self.made(ending, second);
            }
        }
    }

    fn refused(&mut self, advice: &Advice, second: u64) {
        let told = advice.delay.as_secs_ceil();
        let explained = (self.last + OWN.pause(self.failures)).saturating_sub(second);
        self.unexplained = self.unexplained.max(told.saturating_sub(explained));
        self.refused += 1;
        self.locked += u64::from(advice.locked_until.is_some());
        self.next = second + told;
    }

    fn made(&mut self, ending: Ending, second: u64) {
        if ending == Ending::Failure {
            (self.mistakes, self.failures) = (self.mistakes + 1, self.failures + 1);
            (self.last, self.mistakes_left) = (second, self.mistakes_left - 1);
            self.next = second + 1;
            return;
        }
        (self.logins, self.failures) = (self.logins + 1, 0);
        self.next = second + 60 + self.dice.roll(240);
        // Mostly none, sometimes one or two, and now and then enough for a delay of its own making.
        self.mistakes_left = [0, 0, 0, 0, 1, 1, 2, 5][usize::try_from(self.dice.roll(8)).unwrap()];
    }
}

/// The hour: one account from many addresses, many accounts from one address, and the owner.
struct Hour {
    owner: Owner,
    at_one_account: Vec<Guesser>,
    at_many: Vec<Guesser>,
}

impl Hour {
    fn of(login: &Login) -> Self {
        let guesser = |number| Guesser::new(format!("198.51.{}.{}", 100 + number / 200, number % 200));
        let mut at_one_account: Vec<Guesser> = (0..ADDRESSES).map(guesser).collect();
        at_one_account.iter_mut().take(DEAF).for_each(|guesser| guesser.deaf = true);
        let mut at_many = vec![Guesser::new("203.0.113.1".into()), Guesser::new("203.0.113.2".into())];
        at_many[1].deaf = true;
        let mut hour = Self { owner: Owner::new(), at_one_account, at_many };
        let start = login.now();
        for second in 0..HOUR {
            for guesser in &mut hour.at_one_account {
                guesser.guess(login, second, |_| "ada".to_owned());
            }
            for guesser in &mut hour.at_many {
                // Most of them do not exist. Where the address counts, the owner's account is among them.
                guesser.guess(login, second, |number| match number % 50 {
                    25 if login.by_address => "ada".to_owned(),
                    _ => format!("user-{number}"),
                });
            }
            hour.owner.live(login, second);
            block_on(login.stand.engine.tend());
            login.stand.clock.advance(tollgate_core::Span::from_secs(1));
        }
        assert_eq!(login.now().since(start).as_secs_ceil(), HOUR);
        hour
    }

    fn guesses(guessers: &[Guesser]) -> u64 {
        guessers.iter().map(|guesser| guesser.guesses).sum()
    }
}

#[test]
fn in_the_recommended_setup_an_hour_of_attack_never_keeps_the_owner_out() {
    let login = Login::new(recommended());
    let Hour { owner, at_one_account, at_many } = Hour::of(&login);
    assert_eq!(owner.locked, 0, "the owner is never locked out");
    assert_eq!(owner.unexplained, 0, "nor made to wait for what others did");
    assert!(owner.logins >= 15 && owner.mistakes >= 10, "{} of {}", owner.logins, owner.mistakes);
    assert!(owner.refused > 0, "five mistakes in a row slow down the owner too");
    assert!(owner.mistakes < 30, "so that the address is not slowed down for them");
    assert!(owner.captchas >= owner.logins - 1, "the account is under attack, and the owner can tell");

    let (one, many) = (Hour::guesses(&at_one_account), Hour::guesses(&at_many));
    let (each_own, each_address) = (OWN.most_in(HOUR), ADDRESS.most_in(HOUR));
    let most_one = ADDRESSES as u64 * each_own.min(each_address);
    let most_many = at_many.len() as u64 * each_address;
    println!(
        "an address guesses one account {each_own} times an hour at most, and all accounts {each_address} times"
    );
    println!("{ADDRESSES} addresses at one account: {one} guesses of {most_one} at most");
    println!("{} addresses at all accounts: {many} guesses of {most_many} at most", at_many.len());
    assert!(one <= most_one && at_one_account.iter().all(|guesser| guesser.guesses <= each_own));
    assert!(many <= most_many && at_many.iter().all(|guesser| guesser.guesses <= each_address));
    // The attack was real: attackers that follow the advice make nearly as many guesses as possible.
    assert!(one >= (ADDRESSES - DEAF) as u64 * each_own * 9 / 10, "{one}");
    assert!(at_many[0].guesses >= each_address * 9 / 10, "{}", at_many[0].guesses);
    // An attacker that ignores the advice is banned, and makes fewer guesses.
    assert!(at_many[1].banned && at_many[1].guesses < at_many[0].guesses);
    assert!(at_one_account[..DEAF].iter().all(|guesser| guesser.banned));
    assert!(at_one_account[DEAF..].iter().all(|guesser| !guesser.banned), "who listens is not");
}

#[test]
fn a_ladder_by_account_alone_locks_out_the_owner_during_an_attack() {
    let login = Login::new(plain());
    let Hour { owner, at_one_account, at_many } = Hour::of(&login);
    assert!(owner.locked > 0, "the owner is locked out");
    assert!(owner.unexplained >= 600, "for what others did: {} s", owner.unexplained);
    // Each lock takes eleven failures, and each success of the owner clears the ladder.
    let one = Hour::guesses(&at_one_account);
    let most = OWN.most_in(HOUR) + 11 * owner.logins;
    println!(
        "by the account alone: {one} guesses of {most} at most, and {} logins of the owner",
        owner.logins
    );
    assert!((OWN.most_in(HOUR) / 2..=most).contains(&one));
    assert!(Hour::guesses(&at_many) > 10_000, "and nothing keeps anybody from trying all accounts");
}
