//! The grammar: a printed limit parses as the same limit, and every spelling prints alike.

use proptest::prelude::*;
use tollgate_core::grammar::{parse, parse_span};
use tollgate_core::{Limit, MAX_EXACT, Span};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![1..20_u64, 1..100_000_u64, 1..=MAX_EXACT, Just(MAX_EXACT)]
}

/// Any span a limit may use, most of them round.
fn span() -> impl Strategy<Value = Span> {
    let unit = prop::sample::select(vec![1_u64, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]);
    prop_oneof![
        (1..=9_u64, unit).prop_map(|(count, unit)| Span::from_micros(count * unit)),
        (1..=Span::MAX.as_micros()).prop_map(Span::from_micros),
        Just(Span::MAX),
    ]
}

/// A text of every kind, with numbers from its whole range.
fn text() -> impl Strategy<Value = String> {
    let unit = prop::sample::select(vec!["min", "hour", "day", "week", "month"]);
    let zone =
        prop::sample::select(vec!["", " in Europe/Berlin", " in America/Port-au-Prince", " in Etc/GMT+5"]);
    prop_oneof![
        (number(), span()).prop_map(|(max, period)| format!("{max}/{period}")),
        (number(), unit, zone).prop_map(|(max, unit, zone)| format!("{max}/{unit} calendar{zone}")),
        (1..=100_000_u64, span()).prop_map(|(max, period)| format!("{max}/{period} sliding")),
        (number(), span(), 1..=10_000_u64).prop_map(|(max, period, count)| {
            let slot = Span::from_micros(period.as_micros().div_ceil(count));
            format!("{max}/{period} sliding by {slot}")
        }),
        (number(), 1..1_000_000_000_u64, 1..1_000_000_u64)
            .prop_map(|(rate, period, burst)| format!("{rate}/{period}us burst {burst}")),
        (number(), prop::option::of(span())).prop_map(|(max, lease)| {
            lease.map_or_else(|| format!("{max} at once"), |lease| format!("{max} at once for {lease}"))
        }),
        ladder(),
        number().prop_map(|max| format!("{max} in total")),
        (number(), "[a-z][a-z0-9_-]{0,12}")
            .prop_filter("these start other phrases", |(_, field)| field != "at" && field != "in")
            .prop_map(|(max, field)| format!("{max} {field} per attempt")),
    ]
}

/// A ladder of up to eight steps, written in any order of words.
fn ladder() -> impl Strategy<Value = String> {
    let words = prop::sample::subsequence(vec![0, 1, 2], 0..=3).prop_shuffle();
    let step = (1..=125_u64, words, span(), any::<bool>());
    (prop::collection::vec(step, 1..=8), prop::option::of(span())).prop_map(|(mut steps, forget)| {
        let mut spans: Vec<Span> = steps.iter().map(|(_, _, span, _)| *span).collect();
        spans.sort_unstable();
        let (mut from, mut paused, mut text) = (0, false, String::from("ladder"));
        let last = steps.len() - 1;
        for (index, (more, words, _, locks)) in steps.iter_mut().enumerate() {
            from += *more;
            paused |= index == last || words.contains(&0);
            if paused && !words.contains(&0) {
                words.push(0);
            }
            if words.is_empty() {
                words.push(1);
            }
            let pause = if *locks { format!("lock {}", spans[index]) } else { format!("+{}", spans[index]) };
            let all = [pause, "captcha".into(), "notify".into()];
            let words: Vec<&str> = words.iter().map(|word| &*all[*word]).collect();
            let then = if index == 0 { "" } else { " then" };
            text.push_str(&format!("{then} {from} {}", words.join(" ")));
        }
        forget.map_or(text.clone(), |forget| format!("{text} forget {}", forget.max(spans[last])))
    })
}

/// Spaces are free between words.
fn spaced(text: &str, spaces: &str) -> String {
    text.replace(' ', spaces).replace('/', &format!("{spaces}/{spaces}"))
}

proptest! {
    #[test]
    fn printing_and_parsing_returns_the_same_limit(text in text(), spaces in "[ \t]{1,3}") {
        let limit: Limit = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
        let printed = limit.to_string();
        prop_assert_eq!(printed.parse::<Limit>(), Ok(limit.clone()));
        prop_assert_eq!(printed.parse::<Limit>().unwrap().to_string(), printed.clone());
        // A zone's own slash takes no spaces around it.
        if !text.contains(" in ") {
            prop_assert_eq!(spaced(&printed, &spaces).parse::<Limit>(), Ok(limit));
        }
    }

    #[test]
    fn spans_are_printed_as_they_are_read(span in span()) {
        prop_assert_eq!(parse_span(&span.to_string()), Ok(span));
    }
}

#[test]
fn every_spelling_has_one_print() {
    for (written, printed) in [
        ("1000/hour", "1000/hour"),
        ("1_000/h", "1000/hour"),
        ("1000 / 60m", "1000/hour"),
        ("  1000/3600s  ", "1000/hour"),
        ("5/sec", "5/s"),
        ("5/second", "5/s"),
        ("5/1000ms", "5/s"),
        ("5/minute", "5/min"),
        ("5/1m", "5/min"),
        ("5/1min", "5/min"),
        ("5/d", "5/day"),
        ("5/w", "5/week"),
        ("5/168h", "5/week"),
        ("3/15m", "3/15m"),
        ("3/90m", "3/1h30m"),
        ("3/1h30m", "3/1h30m"),
        ("3/1500ms", "3/1s500ms"),
        ("3/8d", "3/1w1d"),
        ("7/day calendar", "7/day calendar"),
        ("7/24h calendar in UTC", "7/day calendar"),
        ("7/month calendar in Europe/Berlin", "7/month calendar in Europe/Berlin"),
        ("100/hour sliding", "100/hour sliding"),
        ("1_000_000/day sliding by 300s", "1000000/day sliding by 5m"),
        ("10/s burst 50", "10/s burst 50"),
        ("5/60s burst 3", "5/min burst 3"),
        ("10 at once", "10 at once"),
        ("50  at  once  for  30s", "50 at once for 30s"),
        ("10 in total", "10 in total"),
        (
            "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m",
            "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m",
        ),
        ("ladder 5 lock 900s", "ladder 5 lock 15m forget 15m"),
        ("ladder 5 lock 2h", "ladder 5 lock 2h forget 2h"),
        (
            "ladder 3 notify captcha then 1_000 captcha + 60s",
            "ladder 3 captcha notify then 1000 +1m captcha forget 15m",
        ),
        ("ladder  1  +1s  forget  1s", "ladder 1 +1s forget 1s"),
        ("100 recipients per attempt", "100 recipients per attempt"),
        ("0100/hour", "100/hour"),
    ] {
        let limit: Limit = written.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(limit.to_string(), printed, "{written}");
    }
}

#[test]
fn nothing_limits_where_the_number_is_nought() {
    for written in [
        "0",
        "null",
        "unlimited",
        " 0 ",
        "0/hour",
        "0/s",
        "0 at once",
        "0 at once for 5s",
        "0 in total",
        "0/day calendar",
        "0/hour sliding",
        "0/day sliding by 5m",
        "0 recipients per attempt",
        "0_0/hour",
    ] {
        assert_eq!(parse(written), Ok(None), "{written}");
        assert!(written.parse::<Limit>().is_err(), "{written}");
    }
}

#[test]
fn the_largest_numbers_are_still_limits() {
    for written in [
        "9007199254740991/hour",
        "9_007_199_254_740_991 in total",
        "100000/hour sliding",
        "5/10000s sliding by 1s",
        "5/10000us sliding by 1us",
        "1/3650d",
        "1/us burst 9007199254740991",
        "1/s burst 9007199254",
    ] {
        let written = written.replace("1/us", "1/1us");
        assert!(matches!(parse(&written), Ok(Some(_))), "{written}");
    }
}
