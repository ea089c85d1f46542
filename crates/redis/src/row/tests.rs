//! The numbers of a counter: valid and damaged ones, and their conversion to other limits.

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// The positions of the slots' numbers in a row of [`MIXED`].
const SLOTS: std::ops::Range<usize> = 2..6;

/// Limits of every width.
const MIXED: &str = "10/min, 10/min sliding by 10s, 5 recipients per attempt, 5 at once, 10 in total";

fn plan(limits: &str) -> Plan {
    let limits = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Plan::new("rule".into(), limits).unwrap()
}

fn packed(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn kept(limits: &str, numbers: &[u64]) -> Vec<u8> {
    [heading(&plan(limits)).as_bytes(), &packed(numbers)].concat()
}

#[test]
fn a_counter_is_read_as_the_numbers_that_were_stored() {
    let plan = plan(MIXED);
    let numbers: Vec<u64> = (1..=10).collect();
    assert_eq!(read(&plan, &packed(&numbers)).unwrap().as_slice(), numbers);
    assert_eq!(read(&plan, &[]).unwrap().as_slice(), [0; 10], "no counter is one that has counted nothing");
}

#[test]
fn a_counter_of_another_length_is_damaged() {
    let plan = plan(MIXED);
    for count in [1, 9, 11, 20] {
        assert_eq!(read(&plan, &packed(&vec![1; count])), None, "{count} numbers");
    }
    assert_eq!(read(&plan, &packed(&[1; 10])[1..]), None, "a byte is missing");
}

#[test]
fn a_number_that_is_not_exact_is_damaged_wherever_it_is() {
    let plan = plan(MIXED);
    for place in 0..10 {
        let with = |number: u64| {
            let mut numbers = [1; 10];
            numbers[place] = number;
            read(&plan, &packed(&numbers)).is_some()
        };
        // The numbers of the first and the last slot are times in units of a slot.
        let is_slot = place == SLOTS.start + 1 || place == SLOTS.start + 2;
        let most = if is_slot { MAX_EXACT / 10_000_000 } else { MAX_EXACT };
        assert!(with(most), "number {place}");
        assert!(!with(most + 1), "number {place}");
    }
}

#[test]
fn limits_that_stay_keep_their_numbers_and_others_start_afresh() {
    let (edge, held) = (NOW.as_micros() + 1_000_000, [3, NOW.as_micros() - 9, NOW.as_micros() - 5]);
    let before = "5 recipients per attempt, 5 at once for 1m, 10/min, 10 in total";
    let found = kept(before, &[held[0], held[1], held[2], edge, 7, 4]);
    let adoption = adopt(&plan("30 in total, 20/min, 7/hour, 5 at once for 1m"), &found, NOW).unwrap();
    let expected = [4, edge, 7, 0, 0, held[0], held[1], held[2]];
    assert_eq!(adoption.kept, kept("30 in total, 20/min, 7/hour, 5 at once for 1m", &expected));
    assert_eq!(adoption.old.limits(), plan(before).limits());
}

#[test]
fn a_former_lease_is_told_if_it_has_changed() {
    let lease = |before: &str, after: &str| {
        adopt(&plan(after), &kept(before, &[1, NOW.as_micros(), NOW.as_micros(), 0, 0]), NOW).unwrap().lease
    };
    let before = "5 at once for 1m, 10/min";
    assert_eq!(lease(before, "5 at once for 1h, 10/min"), 60_000_000);
    assert_eq!(lease(before, "5 at once, 10/min"), 60_000_000);
    assert_eq!(lease(before, "5 at once for 1m, 20/min"), 0, "the holds stay as they are");
    assert_eq!(lease("5 at once, 10/min", "5 at once for 1m, 10/min"), 0, "there was none");
    assert_eq!(lease(before, "20/min"), 0, "no holds are left");
}

#[test]
fn a_counter_without_numbers_is_adopted_only_if_its_limits_have_none() {
    let (none, window) = ("5 recipients per attempt", "10/min");
    let adoption = adopt(&plan(window), &kept(none, &[]), NOW).unwrap();
    assert_eq!(adoption.kept, kept(window, &[0, 0]));
    assert_eq!(adopt(&plan(none), &kept(window, &[]), NOW), None, "its numbers were lost");
    assert_eq!(adopt(&plan(window), &kept(none, &[1]), NOW), None, "its limits count nothing");
}

#[test]
fn a_text_that_is_no_counter_is_not_adopted() {
    let plan = plan("10/min");
    for text in [&b""[..], b"10/hour", b"\n", b"hello\n", b"\xff\n", b"10/hour\n1234567"] {
        assert_eq!(adopt(&plan, text, NOW), None, "{text:?}");
    }
}
