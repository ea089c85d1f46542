//! Errors of the grammar: the position, the remedy, and never a panic.

use proptest::prelude::*;
use tollgate_core::grammar::{parse, parse_span};

/// The text, the position of the error, counted from one, and a part of the remedy.
const MISTAKES: &[(&str, usize, &str)] = &[
    ("", 1, "starts with a number"),
    ("hour", 1, "starts with a number"),
    ("-5/hour", 1, "starts with a number"),
    ("Unlimited", 1, "`unlimited`"),
    ("  ten/hour", 3, "starts with a number"),
    ("unlimited/hour", 10, "`/` is one word too many"),
    ("null 5", 6, "`5` is one word too many"),
    ("100", 4, "how it is counted"),
    ("100 ", 5, "how it is counted"),
    ("1.5/s", 2, "only whole numbers are counted: write `3/2s`"),
    ("5/1.5s", 4, "only whole numbers"),
    ("100/", 5, "a period is"),
    ("100/fortnight", 5, "a period is"),
    ("100/hours", 5, "write `100/hour`"),
    ("100/60", 7, "units of a duration"),
    ("100/60x", 7, "units of a duration"),
    ("100/1h30", 9, "units of a duration"),
    ("100/1h 30m", 8, "write `100/1h30m`"),
    ("100/0s", 5, "more than nothing"),
    ("100/3651d", 5, "at most ten years"),
    ("100/9007199254740991w", 5, "at most ten years"),
    ("100/hour please", 10, "`calendar`, `sliding`, `burst N`"),
    ("100/hour calendar please", 19, "`please` is one word too many"),
    ("100/month", 5, "`/month calendar`, or `/30d`"),
    ("100/month sliding", 5, "`/month calendar`, or `/30d`"),
    ("100/month burst 5", 5, "`/month calendar`, or `/30d`"),
    ("100/s calendar", 5, "`min`, `hour`, `day`, `week` and `month`"),
    ("100/15m calendar", 5, "`min`, `hour`, `day`, `week` and `month`"),
    ("100/day calendar in", 20, "followed by a time zone"),
    ("100/day calendar in Europe/Berlin too", 35, "`too` is one word too many"),
    ("100/hour sliding by", 20, "a duration is a number and a unit"),
    ("100/hour sliding by 2h", 21, "longer than the period"),
    ("100/hour sliding by 0s", 21, "more than nothing"),
    ("100/hour sliding for 5m", 18, "`for` is one word too many"),
    ("100001/hour sliding", 1, "at most 100000 entries a key: count in slots"),
    ("5/10001s sliding by 1s", 21, "more than 10000 slots: make them longer"),
    ("10/s burst", 11, "how many may come at once"),
    ("10/s burst five", 12, "how many may come at once"),
    ("0/s burst 5", 1, "write `unlimited`"),
    ("5/s burst 0", 11, "at least 1"),
    ("1/s burst 9007199255", 11, "largest burst that is exact with this rate is 9007199254"),
    ("7/3650d burst 9007199254740991", 15, "largest burst that is exact with this rate is"),
    ("9007199254740992/hour", 1, "9007199254740991"),
    ("99999999999999999999999999/hour", 1, "9007199254740991"),
    ("5/s burst 9007199254740992", 11, "9007199254740991"),
    ("10 at", 6, "expected `once`"),
    ("10 at twice", 7, "expected `once`"),
    ("10 at once for", 15, "a duration is a number and a unit"),
    ("10 at once until 5s", 12, "`until` is one word too many"),
    ("10 in", 6, "expected `total`"),
    ("10 in all", 7, "expected `total`"),
    ("10 in total now", 13, "`now` is one word too many"),
    ("ladder", 7, "begins with the number of failures"),
    ("ladder +2s", 8, "begins with the number of failures"),
    ("ladder 0 +2s", 8, "counted from 1 on"),
    ("ladder 1001 +2s", 8, "at most 1000 failures"),
    ("ladder 4", 9, "a step needs an effect"),
    ("ladder 4 then 5 +2s", 10, "a step needs an effect"),
    ("ladder 4 +", 11, "a duration is a number and a unit"),
    ("ladder 4 +2", 12, "units of a duration"),
    ("ladder 4 +0s", 11, "more than nothing"),
    ("ladder 4 +2s +3s", 14, "one delay or lock"),
    ("ladder 4 +2s lock 3s", 14, "one delay or lock"),
    ("ladder 4 captcha captcha", 18, "one `captcha`"),
    ("ladder 4 +2s notify notify", 21, "one `notify`"),
    ("ladder 4 2s", 10, "a step needs an effect"),
    ("ladder 4 +2s, 6 +5s", 13, "`then`, `forget` or nothing"),
    ("ladder 4 +2s 6 +5s", 14, "`then`, `forget` or nothing"),
    ("ladder 4 lock", 14, "a duration is a number and a unit"),
    ("ladder 4 +2s then", 18, "begins with the number of failures"),
    ("ladder 4 +2s then 4 +5s", 19, "more than 4"),
    ("ladder 4 +2s then 3 +5s", 19, "more than 4"),
    ("ladder 4 +5s then 6 +2s", 22, "at least as long as the one before: 5s"),
    ("ladder 4 +5s then 6 captcha", 28, "at least as long as the one before: 5s, as in `+5s`"),
    ("ladder 4 captcha", 17, "the last step has no delay"),
    ("ladder 4 captcha then 5 notify forget 1m", 32, "the last step has no delay"),
    ("ladder 4 +2s forget", 20, "a duration is a number and a unit"),
    ("ladder 4 lock 15m forget 14m", 26, "for at least 15m"),
    ("ladder 4 +2s forget 1m now", 24, "`now` is one word too many"),
    (
        "ladder 1 +1s then 2 +1s then 3 +1s then 4 +1s then 5 +1s then 6 +1s then 7 +1s then 8 +1s then 9 +1s",
        96,
        "at most 8 steps",
    ),
    ("4 ladder", 9, "expected `per`"),
    ("10 !", 4, "`FIELD per attempt`"),
    ("10 per second", 4, "write `10/s`"),
    ("10r/s", 3, "write `10/s burst 1`"),
    ("30r/m burst=5", 3, "write `30/min burst 1` and, in its rule, `on_exceed: wait 10s`"),
    ("1_000 requests per hour", 7, "write `1000/hour`"),
    ("5 req / day", 3, "write `5/day`"),
    ("5 per month", 3, "write `5/month calendar`"),
    ("5 per attempt", 7, "expected `per`"),
    ("10 recipients", 14, "expected `per`"),
    ("10 recipients each attempt", 15, "expected `per`"),
    ("10 recipients per message", 19, "expected `attempt`"),
    ("10 übergrößen per attempt", 4, "`FIELD per attempt`"),
    ("5/hour größe", 8, "`calendar`, `sliding`, `burst N`"),
    ("5/hour calendar größe ende", 17, "`größe` is one word too many"),
];

#[test]
fn every_mistake_is_pointed_at_with_a_remedy() {
    for (text, character, remedy) in MISTAKES {
        let error = parse(text).expect_err(text);
        let column = text[..error.at].chars().count() + 1;
        assert_eq!(column, *character, "{error}");
        assert!(error.problem.contains(remedy), "{error} should say {remedy}");
        assert_eq!(error.to_string(), format!("`{text}`, character {character}: {}", error.problem));
    }
}

#[test]
fn characters_are_counted_and_not_bytes() {
    let error = parse("10 größe each attempt").expect_err("`per` is missing");
    assert_eq!(error.at, 11);
    assert!(error.to_string().contains("character 10:"), "{error}");
}

#[test]
fn the_burst_that_a_refusal_names_is_accepted_and_one_more_is_not() {
    for rate in ["1/s", "7/s", "999983/day", "1/3650d", "3/7s"] {
        let refused = parse(&format!("{rate} burst 9007199254740991")).expect_err(rate);
        let most: u64 = refused.problem.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(parse(&format!("{rate} burst {most}")).is_ok(), "{rate} burst {most}");
        assert!(parse(&format!("{rate} burst {}", most + 1)).is_err(), "{rate} burst {most} and one more");
    }
}

/// Words of the grammar and near misses, in any order.
fn shuffled() -> impl Strategy<Value = String> {
    let words = vec![
        "0",
        "1",
        "5",
        "_",
        "9007199254740991",
        "9007199254740992",
        "100001",
        "/",
        "s",
        "min",
        "hour",
        "day",
        "month",
        "us",
        "ms",
        "1h30m",
        "60s",
        "0s",
        "3650d",
        "99w",
        "calendar",
        "in",
        "Europe/Berlin",
        "UTC",
        "sliding",
        "by",
        "burst",
        "at",
        "once",
        "for",
        "total",
        "recipients",
        "per",
        "attempt",
        "ladder",
        "then",
        "+",
        "lock",
        "captcha",
        "notify",
        "forget",
        "unlimited",
        "null",
        "ü",
        ".",
        "-",
        "\u{a0}",
        "\u{2003}",
        "٣",
        "²",
        "𝟙",
    ];
    let glue = prop::sample::select(vec!["", " ", "  "]);
    prop::collection::vec((prop::sample::select(words), glue), 0..10)
        .prop_map(|pairs| pairs.into_iter().flat_map(|(word, glue)| [word, glue]).collect())
}

fn reads_or_refuses(text: &str) -> Result<(), TestCaseError> {
    match parse(text) {
        Ok(Some(limit)) => prop_assert_eq!(parse(&limit.to_string()), Ok(Some(limit))),
        Ok(None) => {}
        Err(error) => {
            prop_assert!(error.at <= text.len());
            prop_assert!(error.to_string().contains(&error.problem));
        }
    }
    if let Err(error) = parse_span(text) {
        prop_assert!(error.to_string().contains(&error.problem));
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_text_at_all_makes_the_grammar_panic(text in ".*") {
        reads_or_refuses(&text)?;
    }

    #[test]
    fn no_shuffle_of_its_own_words_makes_the_grammar_panic(text in shuffled()) {
        reads_or_refuses(&text)?;
    }
}
