//! Limits in other programs' notations: the error has the same limit in this grammar, or no rewrite.

use proptest::prelude::*;
use tollgate_core::grammar::{GrammarError, parse, parse_explicit};
use tollgate_core::{Limit, Span};

/// The rewrites in an error: the texts in backticks after `write`.
fn rewrites(error: &GrammarError) -> Vec<String> {
    let Some((_, offered)) = error.problem.split_once("write ") else { return Vec::new() };
    let offered = offered.replace("each as an entry of its own, ", "");
    let quoted = offered.split('`').skip(1).step_by(2);
    quoted
        .filter(|text| !matches!(*text, "limits") && !text.starts_with("on_exceed"))
        .map(ToOwned::to_owned)
        .collect()
}

fn refused(text: &str) -> GrammarError {
    parse(text).expect_err(text)
}

#[test]
fn a_limit_of_another_program_is_rewritten_exactly() {
    let table: &[(&str, &[&str])] = &[
        ("1k/hour", &["1000/hour"]),
        ("10M/day", &["10000000/day"]),
        ("1.5k/hour", &["1500/hour"]),
        ("2 million per day", &["2000000/day"]),
        ("10r/s", &["10/s burst 1"]),
        ("rate=5r/m", &["5/min burst 1"]),
        ("10r/s burst=20", &["10/s burst 1"]),
        ("rate=10r/s burst=20 nodelay", &["10/s burst 21"]),
        ("10/s burst=20 nodelay", &["10/s burst 21"]),
        ("10r/s burst=20 delay=8", &["10/s burst 9"]),
        ("10r/s burst=20 delay=20", &["10/s burst 21"]),
        ("10r/hour", &["10/hour"]),
        ("10/s burst=50", &["10/s burst 50"]),
        ("10/s, burst: 50", &["10/s burst 50"]),
        ("10/s with a burst of 1k", &["10/s burst 1000"]),
        ("100rpm", &["100/min"]),
        ("10 rps", &["10/s"]),
        ("5 qps", &["5/s"]),
        ("5 concurrent", &["5 at once"]),
        ("5 concurrent requests", &["5 at once"]),
        ("5 in parallel", &["5 at once"]),
        ("concurrency: 5", &["5 at once"]),
        ("10 per 1 hour", &["10/hour"]),
        ("10 every 5 minutes", &["10/5m"]),
        ("10 requests in 1h30m", &["10/1h30m"]),
        ("100/m", &["100/min"]),
        ("100/m sliding", &["100/min sliding"]),
        ("100/days calendar in Europe/Berlin", &["100/day calendar in Europe/Berlin"]),
        ("100/HOUR", &["100/hour"]),
        ("0.5/s", &["1/2s"]),
        ("0.25/min burst 5", &["1/4m burst 5"]),
        ("1,000/hour", &["1000/hour"]),
        ("1,000,000 requests/day", &["1000000/day"]),
        ("10/s; 100/min", &["10/s", "100/min"]),
        ("10/s, 1,000/hour", &["10/s", "1000/hour"]),
        ("10/s and 100rpm", &["10/s", "100/min"]),
        ("minute: 100", &["100/min"]),
        ("second: 5; hour: 10,000", &["5/s", "10000/hour"]),
        ("requests_per_minute=60", &["60/min"]),
        ("limit_per_hour: 60", &["60/hour"]),
    ];
    for (text, expected) in table {
        let error = refused(text);
        assert_eq!(rewrites(&error), *expected, "{error}");
    }
}

#[test]
fn requests_that_nginx_delays_wait_as_long() {
    for (text, wait) in [("10r/s burst=20", "2s"), ("rate=30r/s burst=60", "2s"), ("5r/m burst=3", "36s")] {
        let error = refused(text);
        let beside = format!("in its rule, `on_exceed: wait {wait}`");
        assert!(error.problem.contains(&beside), "{error}");
    }
}

#[test]
fn a_burst_without_its_rate_is_told_where_it_belongs() {
    for text in ["burst=50", "burst 50", " burst: 5"] {
        let error = refused(text);
        assert!(error.problem.contains("a burst follows its rate"), "{error}");
    }
}

#[test]
fn a_text_that_can_be_read_in_two_ways_is_not_rewritten() {
    let texts = [
        "100/M",
        "1.000/s",
        "0,5/s",
        "10 MB/s",
        "5 dozen/hour",
        "10/year",
        "0 rps",
        "0.5 concurrent",
        "0.5/month",
        "burst=50",
        "10/s delay=5",
        "10m/day",
        "10;w=60",
        "10/s; fast",
        "1,00/s",
        "10000,000/s",
        "10/s burst=2.5",
        "1.2345678901/s",
        "10 per 0 hours",
        "9007199254740991k/s",
    ];
    for text in texts {
        let error = refused(text);
        assert_eq!(rewrites(&error), [""; 0], "{error}");
    }
}

#[test]
fn at_run_time_no_limit_is_the_word_alone() {
    for text in ["0", "null", "0/hour", "0 at once", "0 in total", "0 recipients per attempt", " 0 "] {
        let error = parse_explicit(text).expect_err(text);
        assert!(error.problem.contains("write `unlimited`"), "{error}");
        assert_eq!(parse(text), Ok(None));
    }
    assert_eq!(parse_explicit(" unlimited "), Ok(None));
    assert_eq!(parse_explicit("5/s"), parse("5/s"));
    assert_eq!(parse_explicit("5 rps"), parse("5 rps"));
}

/// A number in another program's notation, in thousandths.
fn number() -> impl Strategy<Value = (String, u64)> {
    let commas = |number: u64| {
        let digits = number.to_string();
        let cut = digits.len() % 3;
        let groups =
            digits.as_bytes()[cut..].chunks(3).map(|three| String::from_utf8_lossy(three).into_owned());
        let first = (cut > 0).then(|| digits[..cut].to_owned());
        first.into_iter().chain(groups).collect::<Vec<_>>().join(",")
    };
    prop_oneof![
        (1..100_000_000_u64).prop_map(|number| (number.to_string(), number * 1_000)),
        (1..100_000_000_u64).prop_map(move |number| (commas(number), number * 1_000)),
        (1..10_000_u64).prop_map(|number| (format!("{number}k"), number * 1_000_000)),
        (1..10_000_u64).prop_map(|number| (format!("{number}M"), number * 1_000_000_000)),
        (0..1_000_u64, 1..10_u64)
            .prop_map(|(whole, tenth)| (format!("{whole}.{tenth}"), whole * 1_000 + tenth * 100)),
        (0..1_000_u64, 1..100_u64)
            .prop_map(|(whole, part)| (format!("{whole}.{part:02}"), whole * 1_000 + part * 10)),
        (0..1_000_u64, 1..100_u64)
            .prop_map(|(whole, part)| (format!("{whole}.{part:02}k"), whole * 1_000_000 + part * 10_000)),
    ]
}

/// A period in another program's notation, in seconds.
fn period() -> impl Strategy<Value = (String, u64)> {
    let unit = prop::sample::select(vec![
        ("s", 1),
        ("sec", 1),
        ("seconds", 1),
        ("m", 60),
        ("min", 60),
        ("Minutes", 60),
        ("hr", 3_600),
        ("hours", 3_600),
        ("d", 86_400),
        ("DAY", 86_400),
        ("weeks", 604_800),
    ]);
    (prop::option::of(1..50_u64), prop::sample::select(vec!["", " "]), unit).prop_map(
        |(count, glue, (unit, secs))| match count {
            Some(count) => (format!("{count}{glue}{unit}"), count * secs),
            None => (unit.to_owned(), secs),
        },
    )
}

/// Number and period: thousandths in a number of seconds.
fn rate() -> impl Strategy<Value = (String, u64, u64)> {
    let between = prop::sample::select(vec![
        "/",
        " / ",
        " req/",
        " per ",
        " requests per ",
        " calls every ",
        " hits each ",
        " messages in ",
        " a ",
    ]);
    prop_oneof![
        (number(), between, period()).prop_map(|((number, much), between, (period, secs))| (
            format!("{number}{between}{period}"),
            much,
            secs
        )),
        (number(), prop::sample::select(vec![("rps", 1), (" rpm", 60), ("qph", 3_600), (" tpd", 86_400)]))
            .prop_map(|((number, much), (unit, secs))| (format!("{number}{unit}"), much, secs)),
        (
            number(),
            prop::sample::select(vec![("minute: ", 60), ("requests_per_second=", 1), ("hour=", 3_600)])
        )
            .prop_map(|((number, much), (unit, secs))| (format!("{unit}{number}"), much, secs)),
    ]
}

/// Thousandths, period and burst of a limit.
fn means(limit: &Limit) -> (u128, u128, Option<u64>) {
    match limit {
        Limit::Window(limit) => (limit.max().into(), limit.period().as_micros().into(), None),
        Limit::Bucket(limit) => (limit.rate().into(), limit.period().as_micros().into(), Some(limit.burst())),
        other => panic!("{other} is no rate"),
    }
}

fn same(limit: &Limit, much: u64, secs: u64, burst: Option<u64>) -> Result<(), TestCaseError> {
    let (max, micros, read_burst) = means(limit);
    prop_assert_eq!(max * 1_000 * u128::from(Span::from_secs(secs).as_micros()), u128::from(much) * micros);
    prop_assert_eq!(read_burst, burst);
    Ok(())
}

proptest! {
    #[test]
    fn a_rewritten_rate_is_the_same_rate(
        (text, much, secs) in rate(),
        burst in prop::option::of((prop::sample::select(vec![" burst=", " burst ", ", burst: ", " with a burst of "]), 1..500_u64)),
    ) {
        let written = burst.map_or_else(|| text.clone(), |(word, burst)| format!("{text}{word}{burst}"));
        let burst = burst.map(|(_, burst)| burst);
        match parse(&written) {
            Ok(limit) => same(&limit.unwrap(), much, secs, burst)?,
            Err(error) => {
                let rewrites = rewrites(&error);
                // Beyond the bounds of bursts and periods nothing is offered.
                prop_assert!(rewrites.len() == 1 || burst.is_some() || much % 1_000 != 0, "{}", error);
                for rewrite in rewrites {
                    let limit: Limit = rewrite.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
                    same(&limit, much, secs, burst)?;
                }
            }
        }
    }

    #[test]
    fn whatever_is_offered_parses(text in "[0-9kMms.,;/=: ]{0,12}(burst|per|req|hour|min|s|concurrent)?[0-9kMms.,;/=: ]{0,6}") {
        if let Err(error) = parse(&text) {
            for rewrite in rewrites(&error) {
                prop_assert!(rewrite == "unlimited" || matches!(parse(&rewrite), Ok(Some(_))), "{}", error);
            }
        }
    }
}
