//! Statuses: their meaning, and errors with their position.

use proptest::prelude::*;
use tollgate_web::Statuses;

fn statuses(text: &str) -> Statuses {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// A status or a class as written, and its statuses.
fn entry() -> impl Strategy<Value = (String, Vec<u16>)> {
    prop_oneof![
        (100..600_u16).prop_map(|status| (status.to_string(), vec![status])),
        (1..6_u16).prop_map(|kind| (format!("{kind}xx"), (kind * 100..kind * 100 + 100).collect())),
    ]
}

proptest! {
    #[test]
    fn printing_and_parsing_returns_the_same_statuses(
        entries in prop::collection::vec(entry(), 1..30), not: bool, space in "[ \t]{0,2}",
    ) {
        let written: Vec<&str> = entries.iter().map(|(text, _)| text.as_str()).collect();
        let list = format!("{space}[{space}{}{space}]{space}", written.join(&format!("{space},{space}")));
        let text = if not { format!("{space}not{list}") } else { list };
        let named = |status: u16| entries.iter().any(|(_, statuses)| statuses.contains(&status));
        let Ok(read) = text.parse::<Statuses>() else {
            prop_assert!(not && (100..600).all(named), "{}", text);
            return Ok(());
        };
        for status in 100..600 {
            prop_assert_eq!(read.contains(status), named(status) != not, "{} in {}", status, text);
        }
        prop_assert_eq!(read.to_string().parse::<Statuses>(), Ok(read));
        prop_assert_eq!(read.others().and_then(|others| others.others()), read.others().map(|_| read));
    }

    #[test]
    fn no_text_makes_it_panic_and_every_mistake_is_inside_the_text(text in ".{0,20}|[not0-9x,\\[\\] é]{0,12}") {
        if let Err(error) = text.parse::<Statuses>() {
            prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at));
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn every_spelling_has_one_print() {
    for (written, printed) in [
        ("401", "401"),
        ("[401]", "401"),
        (" [ 403,401 ,401] ", "[401, 403]"),
        ("4xx", "4xx"),
        ("[503, 404, 4xx]", "[4xx, 503]"),
        ("not 5xx", "not 5xx"),
        ("[1xx, 2xx, 3xx, 4xx]", "not 5xx"),
        ("not[5xx,404]", "not [404, 5xx]"),
        ("not [1xx, 2xx, 3xx, 5xx]", "4xx"),
        ("[1xx, 2xx, 3xx, 4xx, 5xx]", "[1xx, 2xx, 3xx, 4xx, 5xx]"),
    ] {
        assert_eq!(statuses(written).to_string(), printed, "{written}");
    }
}

#[test]
fn a_kind_holds_all_that_begin_with_its_digit_and_no_other() {
    let kind = statuses("4xx");
    assert!(kind.contains(400) && kind.contains(499) && !kind.contains(399) && !kind.contains(500));
    let edges = statuses("[100, 599]");
    assert!(edges.contains(100) && edges.contains(599) && !edges.contains(101) && !edges.contains(598));
}

#[test]
fn an_invalid_status_is_always_counted() {
    for odd in [0, 42, 99, 600, 999, u16::MAX] {
        assert!(statuses("401").contains(odd) && statuses("not 5xx").contains(odd), "{odd}");
    }
}

#[test]
fn an_entry_of_a_list_is_one_status_or_one_kind() {
    let several = Statuses::entry("503").unwrap().or(Statuses::entry(" 4xx ").unwrap());
    assert_eq!(several, statuses("[4xx, 503]"));
    for (text, remedy) in [
        ("not 5xx", "`not` goes before all"),
        ("[401]", "`[` is not a status"),
        ("401 403", "one word too many"),
    ] {
        let error = Statuses::entry(text).expect_err(text).to_string();
        assert!(error.contains(remedy), "{error}");
    }
}

/// The text, the position of the error, counted from one, and a part of the remedy.
const MISTAKES: &[(&str, usize, &str)] = &[
    ("", 1, "a status is missing: a status is `100` to `599`"),
    ("not", 4, "a status is missing"),
    ("40", 1, "`40` is not a status: a status is `100` to `599`, or all of a kind, as in `4xx`"),
    ("4011", 1, "`4011` is not a status"),
    ("099", 1, "`099` is not a status"),
    ("600", 1, "`600` is not a status"),
    ("+401", 1, "`+` is not a status"),
    ("40x", 1, "`40x` is not a status"),
    ("6xx", 1, "`6xx` is not a status"),
    ("0xx", 1, "`0xx` is not a status"),
    ("4XX", 1, "`4XX` is written `4xx`"),
    ("success", 1, "`success` is not a status"),
    ("401, 403", 4, "several statuses go into brackets, as in `[401, 403]`"),
    ("401 403", 5, "`403` is one word too many"),
    ("[401 403]", 6, "after a status comes `,` or `]`"),
    ("[401, 403", 10, "after a status comes `,` or `]`"),
    ("[401,]", 6, "`]` is not a status"),
    ("[]", 2, "counts nothing: leave the rule out"),
    ("not []", 6, "counts nothing"),
    ("[not 5xx, 404]", 2, "`not` goes before all of them, as in `not [404, 5xx]`"),
    ("not not 5xx", 5, "`not` goes before all of them"),
    ("not [1xx, 2xx, 3xx, 4xx, 5xx]", 5, "no answer would be counted"),
    ("é", 1, "`é` is not a status"),
];

#[test]
fn a_mistake_is_reported_at_its_column_with_a_correction() {
    for (text, column, remedy) in MISTAKES {
        let error = text.parse::<Statuses>().expect_err(text);
        let told = error.to_string();
        assert_eq!(text[..error.at].chars().count() + 1, *column, "{told}");
        assert!(told.contains(remedy), "{told}");
    }
}
