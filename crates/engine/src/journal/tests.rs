//! The bounds of the journal, and its fairness.

use super::*;

fn entry(at: Timestamp) -> Entry {
    Entry {
        at,
        policy: "p".into(),
        verdict: Verdict::Allow,
        origin: Origin::Store,
        rule: None,
        code: None,
        key: None,
        keys: Vec::new(),
        correlation: None,
        listing: None,
        cost: 1,
        retry: When::Now,
        observed: Vec::new(),
        token: None,
        banned: None,
        locked: None,
    }
}

#[test]
fn a_flood_is_written_at_its_pace_and_the_newest_are_kept() {
    let journal = Journal::default();
    let mut written = 0;
    for micros in 0..1_000_000 {
        let at = Timestamp::from_micros(1_000_000_000 + micros);
        journal.record_allowed(at, || {
            written += 1;
            (journal.mark("key"), entry(at))
        });
    }
    assert!((150..=250).contains(&written), "{written} in a second");
    for second in 0..2_000 {
        let at = Timestamp::from_micros(2_000_000_000 + second * 1_000_000);
        journal.record_refused(journal.mark("key"), at, || entry(at));
    }
    assert_eq!(journal.latest(usize::MAX).len(), USUAL_MOST);
    assert_eq!(journal.latest(1)[0].at, Timestamp::from_micros(2_000_000_000 + 1_999 * 1_000_000));
}

#[test]
fn long_keys_leave_room_for_fewer_entries_and_one_key_of_many_is_enough_to_be_found() {
    let journal = Journal::default();
    let long = |second: u64| {
        let at = Timestamp::from_micros(second * 1_000_000);
        let keys = (0..16).map(|rule| (Arc::from("rule"), format!("{second}-{rule}-{}", "x".repeat(8_000))));
        Entry { keys: keys.collect(), ..entry(at) }
    };
    for second in 1..=1_000 {
        journal.write(long(second));
    }
    let (bytes, most) = {
        let pages = journal.pages.lock();
        (pages.bytes(), pages.most_bytes())
    };
    assert!(bytes <= most && bytes > most / 2, "{bytes} bytes in {} entries", journal.extent().decisions);
    let last = long(1_000).keys[15].1.clone();
    assert_eq!(journal.latest_of(9, |entry| entry.is_about(&last)).len(), 1);
}

/// A denial at a key.
fn denied(journal: &Journal, key: &str, micros: u64) {
    let at = Timestamp::from_micros(1_000_000_000 + micros);
    let of_key = || Entry { key: Some(key.to_owned()), verdict: Verdict::Deny, ..entry(at) };
    journal.record_refused(journal.mark(("rule", key)), at, of_key);
}

fn kept_of(journal: &Journal, key: &str) -> usize {
    journal.latest_of(usize::MAX, |entry| entry.is_about(key)).len()
}

#[test]
fn a_key_that_is_denied_all_the_time_displaces_only_itself() {
    let journal = Journal::default();
    for victim in 0..300 {
        denied(&journal, &format!("victim {victim}"), victim);
    }
    // Thirty denials a second for an hour, and between them a flood of ten thousand in a second.
    for number in 0..108_000 {
        denied(&journal, "attacker", 1_000_000 + number * 33_333);
    }
    for number in 0..10_000 {
        denied(&journal, "attacker", 4_000_000_000 + number * 100);
        if number == 5_000 {
            denied(&journal, "late victim", 4_000_000_000 + number * 100);
        }
    }
    for victim in 0..300 {
        assert_eq!(kept_of(&journal, &format!("victim {victim}")), 1, "{victim}");
    }
    assert_eq!([kept_of(&journal, "late victim"), kept_of(&journal, "attacker")], [1, USUAL_MOST - 301]);
    assert_eq!(journal.extent().oldest, Some(Timestamp::from_micros(1_000_000_000)));
}

#[test]
fn allowed_attempts_displace_denials_only_up_to_a_quarter_and_a_ban_outlasts_the_denials_of_its_key() {
    let journal = Journal::default();
    let at = Timestamp::from_micros(1_000_000_000);
    journal.write(Entry {
        rule: Some("rule".into()),
        key: Some("banned".into()),
        banned: Some(Span::ZERO),
        ..entry(at)
    });
    for second in 0..2_000_u64 {
        denied(&journal, "banned", second * 1_000_000);
    }
    for second in 2_000..4_000_u64 {
        let at = Timestamp::from_micros(1_000_000_000 + second * 1_000_000);
        journal.record_allowed(at, || (journal.mark(second), entry(at)));
    }
    let of = |verdict| {
        journal.latest_of(usize::MAX, |entry| entry.verdict == verdict && entry.banned.is_none()).len()
    };
    assert_eq!([of(Verdict::Allow), of(Verdict::Deny)], [USUAL_MOST / 4, USUAL_MOST * 3 / 4 - 1]);
    assert_eq!(journal.latest_of(9, |entry| entry.banned.is_some()).len(), 1);
}

#[test]
fn a_smaller_journal_forgets_at_once_and_its_shares_agree_with_its_entries() {
    let journal = Journal::default();
    for number in 0..900_u64 {
        denied(&journal, &format!("key {}", number % 7), number * 1_000_000);
    }
    assert_eq!(journal.extent().decisions, 900);
    journal.keep(70);
    assert_eq!(journal.extent().decisions, 70);
    let kept: Vec<usize> = (0..7).map(|key| kept_of(&journal, &format!("key {key}"))).collect();
    assert!(kept.iter().all(|kept| (6..=15).contains(kept)), "{kept:?}");
    journal.keep(1);
    assert_eq!(journal.latest(9)[0].key.as_deref(), Some("key 3"), "the newest is the last");
    assert!(journal.pages.lock().bytes() <= 1_024);
}
