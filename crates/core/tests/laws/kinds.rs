//! What each kind of limit says of itself.

use tollgate_core::limit::Holding;
use tollgate_core::{Limit, Span, When};

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

#[test]
fn each_kind_tells_the_numbers_that_were_written() {
    let (minute, hour) = (Span::from_secs(60), Span::from_secs(3_600));
    for (text, ..) in SAID.iter().chain(&[("7/hour calendar in Europe/Berlin", 7, 7, None, 0)]) {
        match text.parse().expect("it is a limit") {
            Limit::Window(limit) => assert_eq!((limit.max(), limit.period()), (100, hour)),
            Limit::Calendar(limit) if limit.max() == 100 => {
                assert_eq!((limit.period().unit.to_string(), &limit.period().zone), ("day".into(), &None));
            }
            Limit::Calendar(limit) => {
                assert_eq!((limit.max(), limit.period().unit.to_string()), (7, "hour".into()));
                assert_eq!(limit.period().zone.as_deref(), Some("Europe/Berlin"));
            }
            Limit::Sliding(limit) => assert_eq!((limit.max(), limit.period()), (100, hour)),
            Limit::Slotted(limit) => {
                let slot = Span::from_secs(360);
                assert_eq!((limit.max(), limit.period(), limit.slot()), (100, hour, slot));
            }
            Limit::Bucket(limit) if limit.rate() == 10 => {
                assert_eq!((limit.burst(), limit.period()), (50, Span::from_secs(1)));
            }
            Limit::Bucket(limit) => assert_eq!((limit.rate(), limit.burst(), limit.period()), (5, 3, minute)),
            Limit::InFlight(limit) => {
                let lease = text.ends_with("30s").then_some(Span::from_secs(30));
                assert_eq!((limit.max(), limit.lease()), (10, lease));
            }
            Limit::Total(limit) => assert_eq!(limit.max(), 10),
            Limit::PerAttempt(limit) => {
                assert_eq!((limit.max(), &**limit.field()), (100, "recipients"));
                let conforms = [None, Some(100), Some(101)].map(|amount| limit.when_amount_is(amount));
                assert_eq!(conforms, [When::Now, When::Now, When::Never]);
            }
            Limit::Ladder(limit) => {
                assert_eq!((limit.at_once(), limit.top(), limit.most_entries()), (4, 11, 12));
                assert_eq!((limit.forget(), limit.steps().len()), (Span::from_secs(1_200), 2));
            }
        }
    }
}

#[test]
fn a_limit_is_of_one_kind_alone() {
    for (text, ..) in SAID {
        let limit: Limit = text.parse().expect("it is a limit");
        let kinds = [
            limit.window().is_some(),
            limit.sliding().is_some(),
            limit.slotted().is_some(),
            limit.bucket().is_some(),
            limit.in_flight().is_some(),
            limit.ladder().is_some(),
            limit.per_attempt().is_some(),
        ];
        let expected = [
            matches!(limit, Limit::Window(_)),
            matches!(limit, Limit::Sliding(_)),
            matches!(limit, Limit::Slotted(_)),
            matches!(limit, Limit::Bucket(_)),
            matches!(limit, Limit::InFlight(_)),
            matches!(limit, Limit::Ladder(_)),
            matches!(limit, Limit::PerAttempt(_)),
        ];
        assert_eq!(kinds, expected, "{text}");
    }
}
