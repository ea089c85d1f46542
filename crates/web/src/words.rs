//! The texts for verdicts, origins, reasons, times and periods.

use std::fmt::{self, Display};

use serde::{Serialize, Serializer};
use tollgate_core::limit::{Limit, Unit};
use tollgate_core::{Origin, Reason, Timestamp, Verdict};

/// A time in RFC 3339, UTC.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub Timestamp);

impl Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX).fmt(f)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The name of a verdict.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Wait(_) => "wait",
        Verdict::Defer(_) => "defer",
        Verdict::Deny => "deny",
    }
}

/// The name of an origin.
pub fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Store => "store",
        Origin::Local(_) => "local",
        Origin::Outage(_) => "outage",
        Origin::Fixed => "fixed",
        Origin::Blocked => "blocked",
    }
}

/// The name of the reason why a decision was reached without the store.
pub fn reason(origin: Origin) -> Option<&'static str> {
    match origin {
        Origin::Local(reason) | Origin::Outage(reason) => Some(reason.name()),
        Origin::Store | Origin::Fixed | Origin::Blocked => None,
    }
}

/// Why the store could not be used, as a sentence.
pub(crate) fn excuse(reason: Reason) -> &'static str {
    match reason {
        Reason::Timeout => "the store did not answer in time",
        Reason::Unreachable => "the store cannot be reached",
        Reason::Open => "the store failed a moment ago",
        Reason::Full => "the store is full",
        Reason::Forbidden => "the store forbids a command that this needs",
        Reason::Damaged => "the stored counter cannot be read",
        Reason::Busy => "other callers kept the counter busy for too long",
        Reason::Uncounted => "the rows that a limit counts could not be counted",
    }
}

/// The period of a limit, as in "per minute": `minute`, or `15 minutes`. `None` if it has no period.
pub(crate) fn period(limit: &Limit) -> Option<Period> {
    const UNITS: [(u64, &str); 6] = [
        (604_800_000_000, "week"),
        (86_400_000_000, "day"),
        (3_600_000_000, "hour"),
        (60_000_000, "minute"),
        (1_000_000, "second"),
        (1_000, "millisecond"),
    ];
    if limit.calendar().is_some_and(|period| period.unit == Unit::Month) {
        return Some(Period { count: 1, unit: "month" });
    }
    let micros = limit.period()?.as_micros();
    let fitting = UNITS.into_iter().find(|(size, _)| micros >= *size && micros.is_multiple_of(*size));
    let (size, unit) = fitting.unwrap_or((1, "microsecond"));
    Some(Period { count: micros / size, unit })
}

/// A number of units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) count: u64,
    pub(crate) unit: &'static str,
}

impl Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str(self.unit),
            count => write!(f, "{count} {}s", self.unit),
        }
    }
}
