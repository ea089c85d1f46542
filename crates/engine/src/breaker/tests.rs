//! Properties of the breaker over every order of events.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Ask,
    Answer { which: usize, success: bool, reason: Reason },
    Probe,
    ProbeEnds { success: bool },
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let reason = prop_oneof![9 => Just(Reason::Timeout), 1 => Just(Reason::Unreachable)];
    let wait = prop_oneof![8 => 0..700_000_u64, 1 => 0..15_000_000_u64];
    prop_oneof![
        4 => Just(Event::Ask),
        4 => (0..8_usize, prop::bool::weighted(0.3), reason)
            .prop_map(|(which, success, reason)| Event::Answer { which, success, reason }),
        3 => Just(Event::Probe),
        3 => prop::bool::weighted(0.8).prop_map(|success| Event::ProbeEnds { success }),
        3 => wait.prop_map(Event::Wait),
    ]
}

/// The state that the test tracks independently of the breaker.
#[derive(Default)]
struct Known {
    now: u64,
    /// The passes given, and the news and the turns at that time.
    asked: Vec<(Pass, u32, u32)>,
    /// Whether a probe is in flight, and whether it closes the breaker if it succeeds.
    probing: Option<bool>,
    /// Failures since the last success or turn, of calls that began after the failure before.
    failures: u32,
    /// The number of counted failures, of successes that reset the failures, and of changes of the breaker.
    news: u32,
    opened: u32,
    /// When it opened after a clean time or closed, or opened again because the store flaps.
    changes: Vec<(u64, Change)>,
    /// When it closed.
    closed: Vec<u64>,
    /// The time since when it has been closed, if it is closed.
    closed_since: Option<u64>,
    /// The number of times in a row that it opened again within a second of closing.
    relapses: u32,
    /// The earliest time at which it may close.
    closes_from: u64,
    /// When the last probe ended, or it opened.
    last_probe: u64,
    /// The number of probes that succeeded with no failure between them.
    run: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Opened,
    OpenedAgain,
    Closed,
}

impl Known {
    fn turns(&self) -> u32 {
        self.opened + self.closed.len() as u32
    }

    /// The breaker opened: computes what it must know about flaps from now on.
    fn open(&mut self) {
        let served = self.closed_since.map(|since| self.now - since).filter(|served| *served < 10_000_000);
        self.relapses = if served.is_some_and(|served| served < 1_000_000) { self.relapses + 1 } else { 0 };
        let apart = (10_000_000_u64 << self.relapses.saturating_sub(1).min(10)).min(60_000_000);
        self.closes_from = match served {
            Some(served) => (self.now - served + apart).max(self.now + 5_000_000),
            None => self.now,
        };
        (self.opened, self.last_probe, self.run) = (self.opened + 1, self.now, 0);
        (self.closed_since, self.failures, self.news) = (None, 0, self.news + 1);
        self.changes.push((self.now, if served.is_some() { Change::OpenedAgain } else { Change::Opened }));
    }

    /// The shortest and the longest time until the next probe.
    fn spacing(&self) -> (u64, u64) {
        let soon = self.run > 0 && self.last_probe >= self.closes_from;
        if soon { (100_000, 100_000) } else { (500_000, 1_000_000) }
    }
}

proptest! {
    #[test]
    fn it_opens_on_three_failures_one_after_the_other_and_closes_after_sustained_health(
        events in prop::collection::vec(event(), 1..400), chance: u64,
    ) {
        let mut breaker = Breaker::closed();
        let mut known = Known::default();
        for event in events {
            let at = Timestamp::from_micros(known.now);
            let open = breaker.outage().is_some();
            prop_assert_eq!(breaker.pass().is_none(), open);
            match event {
                Event::Wait(micros) => known.now += micros,
                Event::Ask => {
                    let (news, turns) = (known.news, known.turns());
                    known.asked.extend(breaker.pass().map(|pass| (pass, news, turns)));
                }
                Event::Answer { which, success, reason } if !known.asked.is_empty() => {
                    let (pass, news, turns) = known.asked.swap_remove(which % known.asked.len());
                    let current = !open && turns == known.turns();
                    if success {
                        breaker.succeeded(pass);
                        if current && known.failures > 0 {
                            (known.failures, known.news) = (0, known.news + 1);
                        }
                        prop_assert_eq!(breaker.outage().is_some(), open, "only probes close it");
                    } else {
                        let turned = breaker.failed(pass, reason, at, chance);
                        let unreachable = reason == Reason::Unreachable;
                        let counts = current && (news == known.news || unreachable);
                        known.failures += u32::from(counts);
                        known.news += u32::from(counts);
                        let due = counts && (known.failures >= 3 || unreachable);
                        prop_assert_eq!(turned, due.then_some(Turned::Opened(reason)));
                        if due {
                            known.open();
                        }
                    }
                }
                Event::Answer { .. } => {}
                Event::Probe => {
                    let begun = breaker.begin_probe(at);
                    prop_assert!(!begun || (open && known.probing.is_none()), "one at a time, only when open");
                    if open && known.probing.is_none() {
                        let (waited, (least, most)) = (known.now - known.last_probe, known.spacing());
                        prop_assert!(!begun || waited >= least, "after {waited} us");
                        prop_assert!(begun || waited < most, "not after {waited} us");
                    }
                    if begun {
                        known.probing = Some(known.run >= 2 && known.now >= known.closes_from);
                    }
                    prop_assert_eq!(breaker.would_close(), known.probing == Some(true));
                }
                Event::ProbeEnds { success } if known.probing.is_some() => {
                    let last = known.probing.take() == Some(true);
                    known.last_probe = known.now;
                    if !success {
                        known.run = 0;
                        breaker.probe_failed(at, chance);
                        prop_assert!(breaker.outage().is_some());
                        continue;
                    }
                    known.run += 1;
                    let turned = breaker.probe_succeeded(at, chance);
                    prop_assert_eq!(matches!(turned, Some(Turned::Closed(_))), last);
                    if last {
                        (known.news, known.closed_since) = (known.news + 1, Some(known.now));
                        known.closed.push(known.now);
                        known.changes.push((known.now, Change::Closed));
                    }
                }
                Event::ProbeEnds { success } => {
                    let before = breaker.clone();
                    if success {
                        prop_assert_eq!(breaker.probe_succeeded(at, chance), None, "there was none");
                    } else {
                        breaker.probe_failed(at, chance);
                    }
                    prop_assert_eq!(&breaker, &before);
                }
            }
            let balance = known.opened - known.closed.len() as u32;
            prop_assert_eq!(balance, u32::from(breaker.outage().is_some()), "it turns to and fro");
        }
        for pair in known.closed.windows(2) {
            prop_assert!(pair[1] - pair[0] >= 10_000_000, "it closed twice within ten seconds: {pair:?}");
        }
        // Five seconds hold three changes only if the first is a clean outage, and two while the store flaps.
        for three in known.changes.windows(3) {
            let clean = three[0].1 == Change::Opened;
            prop_assert!(clean || three[2].0 - three[0].0 >= 5_000_000, "{three:?}");
        }
        for four in known.changes.windows(4) {
            prop_assert!(four[3].0 - four[0].0 >= 5_000_000, "{four:?}");
        }
    }

    /// A store half of whose replies are late, under steady traffic. One lucky probe must not close the
    /// breaker.
    #[test]
    fn a_store_that_answers_half_of_all_calls_in_time_turns_it_once_in_five_seconds_at_most(
        replies in prop::collection::vec(any::<bool>(), 4_000), chance: u64,
    ) {
        let (mut breaker, mut turns, mut replies) = (Breaker::closed(), Vec::new(), replies.into_iter());
        // Ten minutes of attempts every 50 ms; probes are driven every 250 ms.
        for step in 0..12_000_u64 {
            let now = Timestamp::from_micros(step * 50_000);
            let before = breaker.turns();
            if let Some(pass) = breaker.pass() {
                match replies.next() {
                    Some(true) => breaker.succeeded(pass),
                    Some(false) => drop(breaker.failed(pass, Reason::Timeout, now, chance)),
                    None => break,
                }
            } else if step % 5 == 0 && breaker.begin_probe(now) {
                match replies.next() {
                    Some(true) => drop(breaker.probe_succeeded(now, chance)),
                    Some(false) => breaker.probe_failed(now, chance),
                    None => break,
                }
            }
            if breaker.turns() > before {
                turns.push(step * 50_000);
            }
        }
        // Three turns are those of the first, clean outage and of the next opening.
        for (first, start) in turns.iter().enumerate() {
            for (count, end) in turns[first..].iter().enumerate() {
                let most = 3 + (end - start) / 5_000_000;
                prop_assert!((count as u64) < most, "{} turns in {} us", count + 1, end - start);
            }
        }
    }
}

/// Lets probes succeed when they come due, until the breaker closes. Returns when it does.
fn recover(breaker: &mut Breaker, opened: u64) -> u64 {
    let closes = |at: &u64| {
        let at = Timestamp::from_micros(*at);
        breaker.begin_probe(at) && breaker.probe_succeeded(at, 0).is_some()
    };
    let mut moments = (1..=1_000).map(|step| opened + step * 250_000);
    moments.find(closes).expect("it closes within minutes")
}

fn fail(breaker: &mut Breaker, now: u64) {
    let pass = breaker.pass().unwrap();
    assert!(breaker.failed(pass, Reason::Unreachable, Timestamp::from_micros(now), 0).is_some());
}

#[test]
fn only_a_store_that_fails_as_soon_as_it_is_used_is_held_off_longer_each_time() {
    let (mut breaker, mut now) = (Breaker::closed(), 1_000_000);
    let mut apart = Vec::new();
    // It serves half a second, five times; then three seconds, a half one twice, and ten.
    for served in [0, 500, 500, 500, 500, 500, 3_000, 500, 500, 10_000] {
        let last = now;
        now += served * 1_000;
        fail(&mut breaker, now);
        now = recover(&mut breaker, now);
        apart.push((now - last) / 1_000_000);
    }
    assert_eq!(apart, [1, 10, 20, 40, 60, 60, 10, 10, 20, 11], "seconds between two closings");
}

#[test]
fn a_recovery_from_a_long_outage_is_not_held_off_though_the_store_had_failed_soon() {
    let mut breaker = Breaker::closed();
    fail(&mut breaker, 1_000_000);
    let failed = recover(&mut breaker, 1_000_000) + 3_000_000;
    fail(&mut breaker, failed);
    let mut now = failed;
    while now < failed + 12_000_000 {
        now += 250_000;
        if breaker.begin_probe(Timestamp::from_micros(now)) {
            breaker.probe_failed(Timestamp::from_micros(now), 0);
        }
    }
    assert!(recover(&mut breaker, now) - now <= 1_500_000, "three probes, and no more");
}

#[test]
fn calls_that_wait_side_by_side_count_once_however_many_they_are() {
    let mut breaker = Breaker::closed();
    let now = Timestamp::from_micros(1);
    for round in 1..Breaker::FAILURES {
        let side_by_side: Vec<Pass> = (0..1_000).filter_map(|_| breaker.pass()).collect();
        for pass in side_by_side {
            assert_eq!(breaker.failed(pass, Reason::Timeout, now, 0), None, "round {round}");
        }
    }
    let (early, late) = (breaker.pass().unwrap(), breaker.pass().unwrap());
    breaker.succeeded(early);
    assert_eq!(breaker.failed(late, Reason::Timeout, now, 0), None, "an answer came since it began");
    assert!(!breaker.strained());
    for round in 1..=Breaker::FAILURES {
        let pass = breaker.pass().unwrap();
        let turned = breaker.failed(pass, Reason::Timeout, now, 0);
        assert_eq!(turned.is_some(), round == Breaker::FAILURES);
    }
}

#[test]
fn a_lost_connection_opens_it_at_once_even_if_the_call_began_before_a_time_out() {
    let mut breaker = Breaker::closed();
    let now = Timestamp::from_micros(1);
    let (first, second) = (breaker.pass().unwrap(), breaker.pass().unwrap());
    assert_eq!(breaker.failed(first, Reason::Timeout, now, 0), None);
    assert!(breaker.failed(second, Reason::Unreachable, now, 0).is_some());
}

#[test]
fn a_failure_from_before_it_turned_says_nothing_about_after() {
    let mut breaker = Breaker::closed();
    let early = breaker.pass().unwrap();
    fail(&mut breaker, 1);
    let closed = recover(&mut breaker, 1);
    let now = Timestamp::from_micros(closed + 1);
    assert_eq!(breaker.failed(early, Reason::Unreachable, now, 0), None);
    assert!(breaker.pass().is_some());
}

#[test]
fn it_is_strained_from_a_failure_to_the_next_success_or_until_it_opens() {
    let mut breaker = Breaker::closed();
    assert!(!breaker.strained());
    for _ in 0..2 {
        let pass = breaker.pass().unwrap();
        assert_eq!(breaker.failed(pass, Reason::Timeout, Timestamp::from_micros(1), 0), None);
        assert!(breaker.strained());
        breaker.succeeded(pass);
        assert!(!breaker.strained());
    }
    fail(&mut breaker, 1);
    assert!(!breaker.strained(), "no success of a caller changes an open breaker");
}

#[test]
fn an_outage_has_a_start_a_reason_and_a_length_and_both_of_its_ends_are_turns() {
    let mut breaker = Breaker::closed();
    assert_eq!((breaker.turns(), breaker.outage()), (0, None));
    fail(&mut breaker, 5_000_000);
    let since = Timestamp::from_micros(5_000_000);
    assert_eq!((breaker.turns(), breaker.outage()), (1, Some((since, Reason::Unreachable))));
    let mut turned = None;
    for at in [5_500_000, 5_600_000, 5_700_000].map(Timestamp::from_micros) {
        assert_eq!((turned, breaker.turns()), (None, 1));
        assert!(breaker.begin_probe(at) && !breaker.begin_probe(at));
        turned = breaker.probe_succeeded(at, 0);
    }
    assert_eq!(turned, Some(Turned::Closed(Span::from_millis(700))));
    assert_eq!((breaker.turns(), breaker.outage()), (2, None));
}

#[test]
fn the_next_probe_comes_after_half_of_the_interval_or_as_much_later_as_chance_says() {
    for (chance, due) in
        [(0, 500_000), (1, 500_001), (500_000, 1_000_000), (500_001, 500_000), (u64::MAX, 691_025)]
    {
        let mut breaker = Breaker::closed();
        let pass = breaker.pass().unwrap();
        breaker.failed(pass, Reason::Unreachable, Timestamp::from_micros(0), chance);
        for start in [0, due] {
            assert!(!breaker.begin_probe(Timestamp::from_micros(start + due - 1)), "chance {chance}");
            assert!(breaker.begin_probe(Timestamp::from_micros(start + due)), "chance {chance}");
            breaker.probe_failed(Timestamp::from_micros(start + due), chance);
        }
    }
}
