//! Explains what one limit allows, as text.

use tollgate_core::limit::{Bucket, Calendar, InFlight, Ladder, Pause, Slotted, Step, Unit, Window};
use tollgate_core::{Limit, Span};

use super::numbers::{Whole, bare, ordinal, rate, spell, with_article};

/// Explains a limit.
pub fn limit(limit: &Limit) -> String {
    match limit {
        Limit::Window(limit) => window(limit),
        Limit::Calendar(limit) => calendar(limit),
        Limit::Sliding(limit) => {
            format!("never more than {} in any {}", Whole(limit.max()), bare(limit.period()))
        }
        Limit::Slotted(limit) => slotted(limit),
        Limit::Bucket(limit) => bucket(limit),
        Limit::InFlight(limit) => in_flight(limit),
        Limit::Ladder(limit) => ladder(limit),
        Limit::Total(limit) => format!("at most {} for the life of the key", Whole(limit.max())),
        Limit::PerAttempt(limit) => {
            let field = limit.field().replace('_', " ");
            format!("at most {} {field} in one attempt; consumes nothing", Whole(limit.max()))
        }
    }
}

/// In the worst case two windows meet within one period: all of one at its end, except for the attempt that
/// started it, and all of the next.
fn window(limit: &Window) -> String {
    let most = format!(
        "at most {} in any window of {} that starts with the first attempt",
        Whole(limit.max()),
        with_article(limit.period())
    );
    match limit.max() {
        1 => most,
        max => format!("{most}, up to {} in an unlucky {}", Whole(2 * max - 1), bare(limit.period())),
    }
}

fn calendar(limit: &Calendar) -> String {
    let period = limit.period();
    let (unit, across) = match period.unit {
        Unit::Minute => ("minute", "within any 60 seconds across the full minute"),
        Unit::Hour => ("hour", "within any 60 minutes across the full hour"),
        Unit::Day => ("day", "within any 24 hours across midnight"),
        Unit::Week => ("week", "within any 7 days across the start of Monday"),
        Unit::Month => ("month", "within any 28 days across the start of a month"),
    };
    format!(
        "at most {} per calendar {unit} in {}, up to {} {across}",
        Whole(limit.max()),
        period.zone.as_deref().unwrap_or("UTC"),
        Whole(2 * limit.max())
    )
}

/// A slot takes two numbers of eight bytes, and one more slot than fits into the period can count.
fn slotted(limit: &Slotted) -> String {
    let slots = limit.period().as_micros().div_ceil(limit.slot().as_micros()) + 1;
    format!(
        "never more than {} in any {}; room frees up to {} late, and a key takes at most {} slots of 16 bytes",
        Whole(limit.max()),
        bare(limit.period()),
        spell(limit.slot()),
        Whole(slots)
    )
}

fn bucket(limit: &Bucket) -> String {
    let over = longer(limit.period());
    let refilled =
        u128::from(limit.rate()) * u128::from(over.as_micros()) / u128::from(limit.period().as_micros());
    let most = u128::from(limit.burst()) + refilled;
    format!(
        "a burst of {}, then {} {}: at most {} in any {}",
        Whole(limit.burst()),
        Whole(limit.rate()),
        rate(limit.period()),
        Whole(u64::try_from(most).unwrap_or(u64::MAX)),
        bare(over)
    )
}

/// A period long enough for the rate to matter beside the burst.
fn longer(period: Span) -> Span {
    const MINUTE: Span = Span::from_secs(60);
    const HOUR: Span = Span::from_secs(3_600);
    const DAY: Span = Span::from_secs(86_400);
    const WEEK: Span = Span::from_secs(604_800);
    let longer = [MINUTE, HOUR, DAY, WEEK].into_iter().find(|longer| period < *longer);
    longer.unwrap_or_else(|| Span::from_micros(period.as_micros() * 10))
}

fn in_flight(limit: &InFlight) -> String {
    let until = match limit.lease() {
        Some(lease) => format!("each for {} unless renewed", spell(lease)),
        None => "each until it is released".to_owned(),
    };
    format!("at most {} held at once, {until}", Whole(limit.max()))
}

fn ladder(limit: &Ladder) -> String {
    let steps: Vec<String> =
        limit.steps().iter().enumerate().map(|(index, step)| in_words(index, step)).collect();
    format!("{}; all forgotten {} after the last", steps.join("; "), spell(limit.forget()))
}

fn in_words(index: usize, step: &Step) -> String {
    let failure = if index == 0 { " failure on" } else { "" };
    let pause = match step.pause {
        Pause::None => None,
        Pause::Delay(span) => Some(format!("a wait of {}", spell(span))),
        Pause::Lock(span) => Some(format!("a lock of {}", spell(span))),
    };
    let captcha = step.captcha.then(|| "a CAPTCHA".to_owned());
    let notify = step.notify.then(|| "a notice".to_owned());
    let all: Vec<String> = [pause, captcha, notify].into_iter().flatten().collect();
    format!("from the {}{failure} {}", ordinal(step.from), all.join(" and "))
}

#[cfg(test)]
mod tests {
    //! Every kind of limit, case by case.

    use super::*;

    #[test]
    fn every_kind_of_limit_says_what_it_bounds() {
        let table = [
            (
                "1000/hour",
                "at most 1,000 in any window of an hour that starts with the first attempt, up to 1,999 in an unlucky hour",
            ),
            (
                "3/15m",
                "at most 3 in any window of 15 minutes that starts with the first attempt, up to 5 in an unlucky 15 minutes",
            ),
            ("1/day", "at most 1 in any window of a day that starts with the first attempt"),
            (
                "1000/day calendar in Europe/Berlin",
                "at most 1,000 per calendar day in Europe/Berlin, up to 2,000 within any 24 hours across midnight",
            ),
            (
                "7/month calendar",
                "at most 7 per calendar month in UTC, up to 14 within any 28 days across the start of a month",
            ),
            (
                "7/week calendar",
                "at most 7 per calendar week in UTC, up to 14 within any 7 days across the start of Monday",
            ),
            (
                "7/hour calendar",
                "at most 7 per calendar hour in UTC, up to 14 within any 60 minutes across the full hour",
            ),
            (
                "7/min calendar",
                "at most 7 per calendar minute in UTC, up to 14 within any 60 seconds across the full minute",
            ),
            ("100/hour sliding", "never more than 100 in any hour"),
            ("100/90s sliding", "never more than 100 in any 1 minute 30 seconds"),
            (
                "1000000/day sliding by 5m",
                "never more than 1,000,000 in any day; room frees up to 5 minutes late, and a key takes at most 289 slots of 16 bytes",
            ),
            ("10/s burst 50", "a burst of 50, then 10 a second: at most 650 in any minute"),
            ("5/min burst 3", "a burst of 3, then 5 a minute: at most 303 in any hour"),
            ("7/15m burst 1", "a burst of 1, then 7 every 15 minutes: at most 29 in any hour"),
            ("7/week burst 2", "a burst of 2, then 7 a week: at most 72 in any 10 weeks"),
            ("10 at once", "at most 10 held at once, each until it is released"),
            ("50 at once for 30s", "at most 50 held at once, each for 30 seconds unless renewed"),
            ("10 in total", "at most 10 for the life of the key"),
            (
                "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m",
                "from the 4th failure on a wait of 2 seconds; from the 6th a wait of 5 seconds and a CAPTCHA; from the 11th a lock of 15 minutes and a notice; all forgotten 15 minutes after the last",
            ),
            (
                "ladder 3 captcha then 22 +1m notify forget 1d",
                "from the 3rd failure on a CAPTCHA; from the 22nd a wait of 1 minute and a notice; all forgotten 1 day after the last",
            ),
            ("100 recipients per attempt", "at most 100 recipients in one attempt; consumes nothing"),
        ];
        for (written, words) in table {
            assert_eq!(limit(&written.parse().unwrap()), words, "{written}");
        }
    }
}
