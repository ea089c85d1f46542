//! How limits are written: one grammar for the configuration, the command line, the API and the
//! docs. Parsing and printing round-trip.
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
//! What a rule bans by is in [`banning`](crate::banning), in the same words.

mod ladder;
mod on_exceed;

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::MAX_EXACT;
use crate::limit::{Bucket, Calendar, InFlight, Limit, Period, Sliding, Slotted, Unit, Window};
use crate::outage::{OnOutage, Share};
use crate::time::Span;

/// A text that is no limit: where it goes wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError {
    /// The whole text.
    pub text: String,
    /// The byte at which it goes wrong.
    pub at: usize,
    /// What is wrong there, and what to write instead.
    pub problem: String,
}

/// What a text says: a limit, or that there is none.
pub type Written = Option<Limit>;

/// Reads a limit. `None` is written `0`, `null` or `unlimited`: no limit at all.
pub fn parse(text: &str) -> Result<Written, GrammarError> {
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
            words.end((number > 0).then_some(Limit::Total { max: number }))
        }
        "" if number == 0 => Ok(None),
        "" => Err(words.wrong("the number needs to say how it is counted: `/hour`, `at once`, `in total`")),
        _ => bound(&mut words, number),
    }
}

/// Reads a duration, as in `90s`, `15m` or `1h30m`.
pub fn parse_span(text: &str) -> Result<Span, GrammarError> {
    let mut words = Words { text, at: 0 };
    let span = words.duration()?;
    words.end(span)
}

/// Reads what a rule does without its store, as in `local 50%`, `local 1/3`, `allow` or `deny`.
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
        Length::Month => {
            Err(words.wrong_at(start, "a month has no fixed length: write `/month calendar`, or `/30d`"))
        }
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
        return Err(words.wrong_at(start, "a slot is no longer than the period it cuts up"));
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
    if let Some(problem) = rate_in_other_words(&words.text[start..], max) {
        return Err(words.wrong_at(start, &problem));
    }
    let field = words.next();
    if !field.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(words.wrong_at(start, "expected `/`, `at once`, `in total` or `FIELD per attempt`"));
    }
    words.expect("per", "100 recipients per attempt")?;
    words.expect("attempt", "100 recipients per attempt")?;
    words.end((max > 0).then(|| Limit::PerAttempt { max, field: field.into() }))
}

/// What to write instead, if this is a rate as others write it: `10 per second`, `10r/s`.
fn rate_in_other_words(rest: &str, max: u64) -> Option<String> {
    let mut words = Words { text: rest, at: 0 };
    if words.next() != "per" && !matches!(words.next(), "per" | "/") {
        return None;
    }
    let period = match words.next() {
        "s" | "sec" | "second" | "seconds" => "s",
        "m" | "min" | "minute" | "minutes" => "min",
        "h" | "hr" | "hour" | "hours" => "hour",
        "d" | "day" | "days" => "day",
        "w" | "week" | "weeks" => "week",
        "month" | "months" => "month calendar",
        _ => return None,
    };
    Some(alloc::format!("write `{max}/{period}`"))
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

/// The text, cut into words as the grammar needs them: runs of letters, runs of digits, signs.
pub(crate) struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn skip_space(&mut self) -> usize {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    fn run(&self, from: usize, belongs: impl Fn(char) -> bool) -> &'t str {
        let rest = &self.text[from..];
        &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())]
    }

    pub(crate) fn peek(&mut self) -> &'t str {
        let from = self.skip_space();
        match self.text[from..].chars().next() {
            None => "",
            Some(c) if c.is_ascii_digit() => self.run(from, |c| c.is_ascii_digit() || c == '_'),
            Some(c) if c.is_alphabetic() => self.run(from, |c| c.is_alphanumeric() || c == '_' || c == '-'),
            Some(c) => &self.text[from..from + c.len_utf8()],
        }
    }

    pub(crate) fn next(&mut self) -> &'t str {
        let word = self.peek();
        self.at += word.len();
        word
    }

    pub(crate) fn number(&mut self, otherwise: &str) -> Result<u64, GrammarError> {
        let start = self.skip_space();
        let word = self.peek();
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.wrong(otherwise));
        }
        let mut number = 0_u64;
        for digit in word.bytes().filter(|byte| *byte != b'_') {
            number = number * 10 + u64::from(digit - b'0');
            if number > MAX_EXACT {
                return Err(
                    self.wrong_at(start, "the largest number that is exact everywhere is 9007199254740991")
                );
            }
        }
        self.next();
        if self.text[self.at..].starts_with('.') {
            return Err(self.wrong("only whole numbers are counted"));
        }
        Ok(number)
    }

    fn period(&mut self) -> Result<Length, GrammarError> {
        let start = self.skip_space();
        let word = self.peek();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return self.duration().map(Length::Fixed);
        }
        let secs = match word {
            "s" | "sec" | "second" => 1,
            "min" | "minute" => 60,
            "h" | "hour" => 3_600,
            "d" | "day" => 86_400,
            "w" | "week" => 604_800,
            "month" => {
                self.next();
                return Ok(Length::Month);
            }
            _ => {
                return Err(self.wrong_at(
                    start,
                    "a period is `s`, `min`, `hour`, `day`, `week`, `month` or a duration such as `15m`",
                ));
            }
        };
        self.next();
        Ok(Length::Fixed(Span::from_secs(secs)))
    }

    pub(crate) fn duration(&mut self) -> Result<Span, GrammarError> {
        let start = self.skip_space();
        let mut micros = 0_u64;
        loop {
            let number = self.number("a duration is a number and a unit, as in `30s`, `15m` or `1h30m`")?;
            let unit = self.run(self.at, |c| c.is_alphabetic());
            let size = match unit {
                "us" => 1,
                "ms" => 1_000,
                "s" => 1_000_000,
                "m" | "min" => 60_000_000,
                "h" => 3_600_000_000,
                "d" => 86_400_000_000,
                "w" => 604_800_000_000,
                _ => return Err(self.wrong("the units of a duration are `us ms s m h d w`")),
            };
            self.at += unit.len();
            micros = micros.saturating_add(number.saturating_mul(size));
            if !self.text[self.at..].starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
        }
        if micros == 0 || Span::from_micros(micros) > Span::MAX {
            return Err(self.wrong_at(start, "a duration is more than nothing and at most ten years"));
        }
        Ok(Span::from_micros(micros))
    }

    fn zone(&mut self) -> Result<&'t str, GrammarError> {
        let from = self.skip_space();
        let name = self.run(from, |c| c.is_ascii_alphanumeric() || "/_-+".contains(c));
        if name.is_empty() {
            return Err(self.wrong("`in` is followed by a time zone, as in `in Europe/Berlin`"));
        }
        self.at += name.len();
        Ok(name)
    }

    pub(crate) fn expect(&mut self, word: &str, example: &str) -> Result<(), GrammarError> {
        if self.peek() == word {
            self.next();
            return Ok(());
        }
        Err(self.wrong(&alloc::format!("expected `{word}`, as in `{example}`")))
    }

    pub(crate) fn end<T>(&mut self, value: T) -> Result<T, GrammarError> {
        match self.peek() {
            "" => Ok(value),
            word => {
                let problem = alloc::format!("`{word}` is one word too many");
                Err(self.wrong(&problem))
            }
        }
    }

    fn wrong(&self, problem: &str) -> GrammarError {
        self.wrong_at(self.at, problem)
    }

    pub(crate) fn wrong_at(&self, at: usize, problem: &str) -> GrammarError {
        GrammarError { text: self.text.to_owned(), at, problem: problem.to_owned() }
    }
}

impl FromStr for Limit {
    type Err = GrammarError;

    /// Reads a text that must be a limit.
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

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(limit) => write!(f, "{}/{}", limit.max(), Every(limit.period())),
            Self::Calendar(limit) => {
                write!(f, "{}/{} calendar", limit.max(), limit.period().unit)?;
                limit.period().zone.as_ref().map_or(Ok(()), |zone| write!(f, " in {zone}"))
            }
            Self::Sliding(limit) => write!(f, "{}/{} sliding", limit.max(), Every(limit.period())),
            Self::Slotted(limit) => {
                write!(f, "{}/{} sliding by {}", limit.max(), Every(limit.period()), limit.slot())
            }
            Self::Bucket(limit) => {
                write!(f, "{}/{} burst {}", limit.rate(), Every(limit.period()), limit.burst())
            }
            Self::InFlight(limit) => {
                write!(f, "{} at once", limit.max())?;
                limit.lease().map_or(Ok(()), |lease| write!(f, " for {lease}"))
            }
            Self::Ladder(limit) => limit.fmt(f),
            Self::Total { max } => write!(f, "{max} in total"),
            Self::PerAttempt { max, field } => write!(f, "{max} {field} per attempt"),
        }
    }
}

/// Prints a period by its name where it has one.
struct Every(Span);

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PERIODS.iter().find(|(_, secs, _)| Span::from_secs(*secs) == self.0) {
            Some((name, _, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.text[..self.at].chars().count() + 1;
        write!(f, "`{}`, character {column}: {}", self.text, self.problem)
    }
}

impl core::error::Error for GrammarError {}
