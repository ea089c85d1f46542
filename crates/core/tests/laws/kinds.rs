//! What each kind of limit says of itself.

use tollgate_core::limit::Holding;
use tollgate_core::{Limit, Span};

/// A limit as written, its number, its capacity, its period and how long a take matters, in seconds.
const SAID: &[(&str, u64, u64, Option<u64>, u64)] = &[
    ("100/hour", 100, 100, Some(3_600), 3_600),
    // A day may have 25 hours, so twice the period is on the safe side.
    ("100/day calendar", 100, 100, Some(86_400), 172_800),
    ("100/hour sliding", 100, 100, Some(3_600), 3_600),
    ("100/hour sliding by 6m", 100, 100, Some(3_600), 3_960),
    ("10/s burst 50", 10, 50, Some(1), 5),
    ("5/min burst 3", 5, 3, Some(60), 36),
    ("10 at once", 10, 10, None, 2_764_800),
    ("10 at once for 30s", 10, 10, None, 30),
    ("10 in total", 10, 10, None, 2_764_800),
    ("100 recipients per attempt", 100, 100, None, 0),
    ("ladder 4 +2s then 11 lock 15m forget 20m", 11, 4, Some(1_200), 1_200),
];

#[test]
fn number_capacity_and_period_are_those_that_were_written() {
    for (text, number, capacity, period, matters) in SAID {
        let limit: Limit = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let said = (limit.number(), limit.capacity(), limit.period(), limit.matters_for());
        let expected = (*number, *capacity, period.map(Span::from_secs), Span::from_secs(*matters));
        assert_eq!(said, expected, "{text}");
    }
}

#[test]
fn holds_last_until_they_are_released_or_for_a_time() {
    for (text, ..) in SAID {
        let limit: Limit = text.parse().expect("it is a limit");
        let holding = match *text {
            "10 at once" => Holding::UntilReleased,
            "10 at once for 30s" => Holding::ForATime,
            _ => Holding::Nothing,
        };
        assert_eq!((limit.holding(), limit.holds()), (holding, holding != Holding::Nothing), "{text}");
        assert_eq!(limit.calendar().is_some(), text.contains("calendar"), "calendar of {text}");
        assert_eq!(limit.consumes(), !text.contains("per attempt"), "consumes: {text}");
        let kinds = ["hour sliding", "at once", "ladder"];
        let tickets = kinds.iter().any(|kind| text.contains(kind)) && !text.contains("by 6m");
        assert_eq!(limit.keeps_tickets(), tickets, "tickets of {text}");
    }
}

#[test]
fn an_empty_bucket_has_as_much_backlog_as_it_takes_to_fill() {
    for (text, seconds) in [("10/s burst 50", 5), ("5/min burst 3", 36), ("7/s burst 7", 1)] {
        let Limit::Bucket(bucket) = text.parse().expect("it is a limit") else {
            panic!("{text} is a bucket")
        };
        let (token, denominator) = bucket.token();
        assert_eq!(bucket.fills_in(), Span::from_secs(seconds), "{text}");
        assert_eq!(bucket.empty(), bucket.burst() * token, "{text}");
        assert_eq!(bucket.empty() / denominator, bucket.fills_in().as_micros(), "{text}");
    }
}
