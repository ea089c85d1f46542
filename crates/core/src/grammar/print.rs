//! Prints limits; the text parses as the same limit.

use core::fmt;

use super::PERIODS;
use crate::limit::Limit;
use crate::time::Span;

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
            Self::Total(limit) => write!(f, "{} in total", limit.max()),
            Self::PerAttempt(limit) => write!(f, "{} {} per attempt", limit.max(), limit.field()),
        }
    }
}

/// Prints a period by its name, if it has one.
pub(super) struct Every(pub(super) Span);

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PERIODS.iter().find(|(_, secs, _)| Span::from_secs(*secs) == self.0) {
            Some((name, _, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}
