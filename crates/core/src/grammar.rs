//! The grammar of limits, for the configuration, the command line, the API and the docs. Parsing and printing
//! round-trip.
//!
//! ```text
//! limit    := "unlimited" | "null" | 0 | rate | holds | total | bound | ladder
//! rate     := N "/" period [ "calendar" [ "in" ZONE ] | "sliding" [ "by" duration ] | "burst" N ]
//! holds    := N "at once" [ "for" duration ]
//! total    := N "in total"
//! bound    := N FIELD "per attempt"
//! ladder   := "ladder" step ( "then" step )* [ "forget" duration ]
//! step     := N [ "+" duration | "lock" duration ] [ "captcha" ] [ "notify" ]
//! period   := "s" | "min" | "hour" | "day" | "week" | "month" | duration
//! duration := ( N ( "us" | "ms" | "s" | "m" | "h" | "d" | "w" ) )+
//! outage   := "allow" | "deny" | "local" ( N "%" | "1/" N )
//! ```
//!
//! [`banning`](crate::banning) has the grammar of bans.

mod foreign;
mod ladder;
mod on_exceed;
mod print;
mod words;

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::limit::{
    Bucket, Calendar, InFlight, Limit, PerAttempt, Period, Sliding, Slotted, Total, Unit, Window,
};
use crate::outage::{OnOutage, Share};
use crate::time::Span;

pub use foreign::{Rewrite, rewrite};
pub(crate) use words::Words;

/// A text that is not a limit: where the error is, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError {
    /// The whole text.
    pub text: String,
    /// The byte offset of the error.
    pub at: usize,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

/// A parsed text: a limit, or no limit.
pub type Written = Option<Limit>;

/// The error for a number with decimals.
const WHOLE: &str = "only whole numbers are counted";

/// The error for a month. It offers both remedies, because they differ.
const MONTH: &str = "a month has no fixed length: write `/month calendar`, or `/30d`";

/// Parses a limit. `None`, no limit, is written `0`, `null` or `unlimited`.
///
/// The error for a limit in another program's notation has the same limit in this grammar.
pub fn parse(text: &str) -> Result<Written, GrammarError> {
    read(text).map_err(foreign::explain)
}

/// Parses a limit that an operator sets at run time. No limit must be written `unlimited`, since a 0 may have
/// been meant to admit nothing.
pub fn parse_explicit(text: &str) -> Result<Written, GrammarError> {
    let written = parse(text)?;
    if written.is_some() || text.trim() == "unlimited" {
        return Ok(written);
    }
    let problem = "this would mean no limit at all: write `unlimited` if you mean that; to block a key, put it on the blocklist";
    Err(GrammarError { text: text.to_owned(), at: 0, problem: problem.to_owned() })
}

fn read(text: &str) -> Result<Written, GrammarError> {
    let mut words = Words { text, at: 0 };
    if let "unlimited" | "null" = words.peek() {
        words.next();
        return words.end(None);
    }
    if words.peek() == "ladder" {
        return ladder::ladder(&mut words);
    }
    let number = words.number("a limit starts with a number, as in `100/hour`, or is `unlimited`")?;
    match words.peek() {
        "/" => rate(&mut words, number),
        "at" => holds(&mut words, number),
        "in" => {
            words.next();
            words.expect("total", "10 in total")?;
            words.end((number > 0).then_some(Limit::Total(Total { max: number })))
        }
        "" if number == 0 => Ok(None),
        "" => Err(words.wrong("the number needs to say how it is counted: `/hour`, `at once`, `in total`")),
        _ => bound(&mut words, number),
    }
}

/// Parses a duration, as in `90s`, `15m` or `1h30m`.
pub fn parse_span(text: &str) -> Result<Span, GrammarError> {
    let mut words = Words { text, at: 0 };
    let span = words.duration()?;
    words.end(span)
}

/// Parses `on_outage`, as in `local 50%`, `local 1/3`, `allow` or `deny`.
pub fn parse_on_outage(text: &str) -> Result<OnOutage, GrammarError> {
    let mut words = Words { text, at: 0 };
    match words.next() {
        "allow" => words.end(OnOutage::Allow),
        "deny" => words.end(OnOutage::Deny),
        "local" => {
            let share = share(&mut words)?;
            words.end(OnOutage::Local(share))
        }
        _ => {
            Err(words
                .wrong_at(0, "without its store a rule does `local 50%`, `local 1/3`, `allow` or `deny`"))
        }
    }
}

fn share(words: &mut Words<'_>) -> Result<Share, GrammarError> {
    let start = words.skip_space();
    let number = words.number("`local` is followed by a share, as in `local 50%` or `local 1/3`")?;
    let share = match (number, words.next()) {
        (percent, "%") => Share::percent(percent),
        (1, "/") => Share::one_of(words.number("`1/` is followed by how many nodes there are")?),
        _ => None,
    };
    share.ok_or_else(|| words.wrong_at(start, "a share is `1%` to `100%`, or `1/1` to `1/1000000`"))
}

fn rate(words: &mut Words<'_>, number: u64) -> Result<Written, GrammarError> {
    words.next();
    let start = words.skip_space();
    let period = words.period()?;
    let fixed = |words: &Words<'_>| match period {
        Length::Fixed(span) => Ok(span),
        Length::Month => Err(words.wrong_at(start, MONTH)),
    };
    match words.peek() {
        "calendar" => {
            words.next();
            let unit = period.unit().ok_or_else(|| {
                words.wrong_at(start, "the calendar knows `min`, `hour`, `day`, `week` and `month`")
            })?;
            let zone = if words.peek() == "in" {
                words.next();
                Some(words.zone()?)
            } else {
                None
            };
            let period = Period { unit, zone: zone.filter(|zone| *zone != "UTC").map(Into::into) };
            words.end((number > 0).then_some(Limit::Calendar(Calendar { max: number, period })))
        }
        "sliding" => {
            let period = fixed(words)?;
            words.next();
            sliding(words, number, period)
        }
        "burst" => {
            let period = fixed(words)?;
            words.next();
            bucket(words, number, period)
        }
        "" => {
            let period = fixed(words)?;
            Ok((number > 0).then_some(Limit::Window(Window { max: number, period })))
        }
        _ => Err(words.wrong("after the period comes `calendar`, `sliding`, `burst N` or nothing")),
    }
}

fn sliding(words: &mut Words<'_>, max: u64, period: Span) -> Result<Written, GrammarError> {
    if words.peek() != "by" {
        let limit = Limit::Sliding(Sliding { max, period });
        if max > Sliding::MOST {
            return Err(words.wrong_at(
                0,
                "an exact log holds at most 100000 entries a key: count in slots, as in `sliding by 5m`",
            ));
        }
        return words.end((max > 0).then_some(limit));
    }
    words.next();
    let start = words.skip_space();
    let slot = words.duration()?;
    if slot > period {
        return Err(words.wrong_at(start, "a slot must not be longer than the period"));
    }
    if period.as_micros().div_ceil(slot.as_micros()) > Slotted::MOST_SLOTS {
        return Err(words.wrong_at(start, "that is more than 10000 slots: make them longer"));
    }
    words.end((max > 0).then_some(Limit::Slotted(Slotted { max, period, slot })))
}

fn bucket(words: &mut Words<'_>, rate: u64, period: Span) -> Result<Written, GrammarError> {
    let start = words.skip_space();
    let burst = words.number("`burst` is followed by how many may come at once")?;
    if rate == 0 {
        return Err(words.wrong_at(0, "a bucket that never fills: write `unlimited` for no limit"));
    }
    if burst == 0 {
        return Err(words.wrong_at(start, "a bucket with no room admits nothing: the burst is at least 1"));
    }
    let bucket =
        Bucket::new(rate, period, burst).map_err(|too_big| words.wrong_at(start, &too_big.remedy()))?;
    words.end(Some(Limit::Bucket(bucket)))
}

fn holds(words: &mut Words<'_>, max: u64) -> Result<Written, GrammarError> {
    words.next();
    words.expect("once", "10 at once")?;
    let lease = if words.peek() == "for" {
        words.next();
        Some(words.duration()?)
    } else {
        None
    };
    words.end((max > 0).then_some(Limit::InFlight(InFlight { max, lease })))
}

fn bound(words: &mut Words<'_>, max: u64) -> Result<Written, GrammarError> {
    let start = words.skip_space();
    let field = words.next();
    if !field.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(words.wrong_at(start, "expected `/`, `at once`, `in total` or `FIELD per attempt`"));
    }
    if words.peek() == "/" {
        return Err(words.wrong_at(start, "a rate has nothing between its number and `/`, as in `100/hour`"));
    }
    words.expect("per", "100 recipients per attempt")?;
    words.expect("attempt", "100 recipients per attempt")?;
    words.end((max > 0).then(|| Limit::PerAttempt(PerAttempt { max, field: field.into() })))
}

enum Length {
    Fixed(Span),
    Month,
}

impl Length {
    fn unit(&self) -> Option<Unit> {
        match self {
            Self::Month => Some(Unit::Month),
            Self::Fixed(span) => PERIODS.iter().find(|(_, secs, _)| Span::from_secs(*secs) == *span)?.2,
        }
    }
}

/// Name, seconds, calendar unit.
const PERIODS: [(&str, u64, Option<Unit>); 5] = [
    ("s", 1, None),
    ("min", 60, Some(Unit::Minute)),
    ("hour", 3_600, Some(Unit::Hour)),
    ("day", 86_400, Some(Unit::Day)),
    ("week", 604_800, Some(Unit::Week)),
];

impl FromStr for Limit {
    type Err = GrammarError;

    /// Parses a text that must be a limit.
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        parse(text)?.ok_or_else(|| GrammarError {
            text: text.to_owned(),
            at: 0,
            problem: "this says that there is no limit".to_owned(),
        })
    }
}

impl FromStr for OnOutage {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        parse_on_outage(text)
    }
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.text[..self.at].chars().count() + 1;
        write!(f, "`{}`, character {column}: {}", self.text, self.problem)
    }
}

impl core::error::Error for GrammarError {}
