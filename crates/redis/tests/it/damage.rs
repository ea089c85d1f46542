//! Keys with tollgate's names that another program wrote: only that key cannot be used, its value is not
//! overwritten, and it works again once it is deleted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{Ask, Node, plan, shared};
use tollgate_core::StoreError;
use tollgate_testbed::Server;

/// Writes a value by hand.
fn write(server: &Server, command: &[&[u8]]) {
    let _ = server.command(command).ok();
}

/// The value of a key, of any type.
fn dump(server: &Server, key: &str) -> String {
    format!("{:?}", server.command(&["DUMP", key]))
}

/// A stored counter: its heading and its numbers.
fn counter(heading: &str, numbers: &[u64]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    heading.bytes().chain(*b"\n").chain(numbers).collect()
}

/// Takes at a damaged key fail, leave it unchanged, and work again once it is deleted. Other keys are not
/// affected.
#[track_caller]
fn is_damaged_until_deleted(node: &Node, limits: &str, rule: &str, damaged: &str) {
    let (plan, other) = (plan(rule, limits), plan("other", "10/min"));
    let before = dump(shared(), damaged);
    for ask in [
        Ask::one(&plan, "k"),
        Ask::one(&plan, "k").and(&other, "o"),
        Ask::one(&other, "o").and(&plan, "k"),
        Ask::one(&other, "o").observing(&plan, "k"),
    ] {
        let answer = node.take(&ask);
        let Err(StoreError::Damaged { key, .. }) = &answer else { panic!("{limits}: {answer:?}") };
        assert!(damaged.starts_with(key.as_str()), "{limits}: {key} is not {damaged}");
    }
    assert_eq!(dump(shared(), damaged), before, "{limits}: it was overwritten");
    assert_eq!(node.used(&other, "o"), 0, "{limits}: nothing was taken elsewhere");
    assert!(node.take(&Ask::one(&plan, "another")).unwrap().allowed, "{limits}: other keys are well");
    assert_eq!(shared().command(&["DEL", damaged]).number(), 1);
    assert!(node.take(&Ask::one(&plan, "k")).unwrap().allowed, "{limits}: it has healed");
}

const KINDS: [&str; 9] = [
    "10/min",
    "10/min calendar",
    "10/min sliding",
    "10/min sliding by 10s",
    "10/min burst 10",
    "10 at once",
    "10 at once for 1m",
    "10 in total",
    "ladder 10 lock 1m",
];

#[test]
fn a_key_of_another_type_is_left_alone() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "type"));
    for (number, limits) in KINDS.iter().enumerate() {
        for (kind, words) in [("l", ["RPUSH", "a", ""]), ("h", ["HSET", "a", "b"]), ("s", ["SADD", "a", ""])]
        {
            let rule = format!("{kind}{number}");
            let key = format!("type:{{{rule}:k}}");
            let mut command = vec![words[0], &key];
            command.extend(words[1..].iter().filter(|word| !word.is_empty()));
            let _ = server.command(&command).ok();
            is_damaged_until_deleted(&node, limits, &rule, &key);
        }
    }
}

#[test]
fn a_text_that_is_no_counter_is_left_alone() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "text"));
    for (number, limits) in KINDS.iter().enumerate() {
        let torn = format!("{limits}\n1234567");
        let garbage: [&[u8]; 6] = [b"", b"hello", b"\n", b"10/min\n", &[0xff; 40], torn.as_bytes()];
        for (piece, text) in garbage.into_iter().enumerate() {
            let rule = format!("r{number}-{piece}");
            let key = format!("text:{{{rule}:k}}");
            write(server, &[b"SET", key.as_bytes(), text]);
            is_damaged_until_deleted(&node, limits, &rule, &key);
        }
    }
}

#[test]
fn impossible_numbers_are_left_unchanged() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "numbers"));
    let widths = [2, 2, 3, 4, 2, 3, 3, 1, 2];
    let odd = [1 << 53, u64::MAX, u64::MAX / 3, f64::NAN.to_bits()];
    for ((number, limits), width) in KINDS.iter().enumerate().zip(widths) {
        for (piece, value) in odd.into_iter().enumerate() {
            for (place, others) in (0..width).flat_map(|place| [(place, 0), (place, 1)]) {
                let rule = format!("r{number}-{piece}-{place}-{others}");
                let key = format!("numbers:{{{rule}:k}}");
                let mut numbers = vec![others; width];
                numbers[place] = value;
                let heading =
                    plan(&rule, limits).written().map(|(_, text)| text.to_owned()).collect::<Vec<_>>();
                write(server, &[b"SET", key.as_bytes(), &counter(&heading.join(", "), &numbers)]);
                is_damaged_until_deleted(&node, limits, &rule, &key);
            }
        }
    }
}

#[test]
fn a_foreign_log_or_hold_set_is_left_unchanged() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "beside"));
    for (limits, beside) in [
        ("10/min sliding", ":log:1m"),
        ("10/min sliding by 10s", ":slots:1m:10s"),
        ("10 at once for 1m", ":holds"),
        ("10 at once", ":holds"),
        ("ladder 10 lock 1m", ":failures:15m"),
    ] {
        for (piece, command) in [["SET", "garbage", ""], ["SADD", "a", ""]].iter().enumerate() {
            let rule = format!("{piece}{}", limits.replace(' ', ""));
            let plan = plan(&rule, limits);
            node.take(&Ask::one(&plan, "k")).unwrap();
            let counter = format!("beside:{{{rule}:k}}");
            let key = format!("{counter}{beside}");
            let main = dump(server, &counter);
            let _ = server.command(&["DEL", &key]);
            let mut words = vec![command[0], &key];
            words.extend(command[1..].iter().filter(|word| !word.is_empty()));
            let _ = server.command(&words).ok();
            let before = dump(server, &key);
            for id in ["a", "b", "c"] {
                let answer = node.take(&Ask::one(&plan, "k").id(id));
                assert!(matches!(answer, Err(StoreError::Damaged { .. })), "{limits}: {answer:?}");
            }
            assert_eq!(dump(server, &key), before, "{limits}: it was overwritten");
            assert_eq!(dump(server, &counter), main, "{limits}: what failed was counted");
            let _ = server.command(&["DEL", &key, &counter]);
            assert!(node.take(&Ask::one(&plan, "k")).unwrap().allowed);
            assert_eq!(node.used(&plan, "k"), 1, "{limits}: it has healed");
        }
    }
}

#[test]
fn entries_that_cannot_be_read_damage_one_key_and_not_the_store() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "entries"));
    for (limits, beside, insert) in [
        ("1/min sliding", ":log:1m", "RPUSH"),
        ("1/min sliding by 10s", ":slots:1m:10s", "RPUSH"),
        ("1 at once for 1m", ":holds", "HSET"),
    ] {
        let rule = limits.replace(' ', "");
        let plan = plan(&rule, limits);
        node.take(&Ask::one(&plan, "k")).unwrap();
        let key = format!("entries:{{{rule}:k}}{beside}");
        let _ = server.command(&["DEL", &key]);
        let _ = match insert {
            "HSET" => server.command(&["HSET", &key, "id", "not a hold"]).ok(),
            _ => server.command(&["RPUSH", &key, "not an entry"]).ok(),
        };
        let answer = node.take(&Ask::one(&plan, "k"));
        assert!(matches!(answer, Err(StoreError::Damaged { .. })), "{limits}: {answer:?}");
        assert!(node.take(&Ask::one(&plan, "another")).unwrap().allowed);
        let _ = server.command(&["DEL", &key, &format!("entries:{{{rule}:k}}")]);
        assert!(node.take(&Ask::one(&plan, "k")).unwrap().allowed);
    }
}
