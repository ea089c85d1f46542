//! When a rule bans a key that it keeps denying, and for how long.
//!
//! ```text
//! ban := "after" N "denials in" duration "ban" duration [ "up to" duration ]
//! ```

use core::fmt;
use core::str::FromStr;

use crate::grammar::{GrammarError, Words};
use crate::limit::{Limit, Slotted};
use crate::time::Span;

/// After how many denials a rule bans a key, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Banning {
    after: u64,
    within: Span,
    lasts: Span,
    most: Option<Span>,
}

/// The number of slots in which denials are counted.
const SLOTS: u64 = 60;
const EXAMPLE: &str = "after 100 denials in 10m ban 1h";

impl Banning {
    /// How many denials it takes.
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The time within which they must occur.
    pub fn within(&self) -> Span {
        self.within
    }

    /// How long the first ban lasts.
    pub fn lasts(&self) -> Span {
        self.lasts
    }

    /// The longest ban, if bans grow.
    pub fn most(&self) -> Option<Span> {
        self.most
    }

    /// How long a ban lasts after this many earlier ones: twice as long each time, if bans grow.
    pub fn lasts_after(&self, times: u32) -> Span {
        let Some(most) = self.most else { return self.lasts };
        let grown = 1_u64.checked_shl(times).and_then(|factor| self.lasts.as_micros().checked_mul(factor));
        grown.map_or(most, |grown| Span::from_micros(grown).min(most))
    }

    /// The limit that counts denials: the denial that exceeds it causes the ban. `None` if every denial does.
    pub fn limit(&self) -> Option<Limit> {
        let slot = Span::from_micros(self.within.as_micros().div_ceil(SLOTS));
        let max = self.after - 1;
        (max > 0).then_some(Limit::Slotted(Slotted { max, period: self.within, slot }))
    }
}

impl FromStr for Banning {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut words = Words::of(text);
        words.expect("after", EXAMPLE)?;
        let start = words.skip_space();
        let after = words.number("`after` is followed by how many denials it takes")?;
        if after == 0 {
            return Err(words.wrong_at(start, "a ban takes at least one denial"));
        }
        // A single one is written `denial`.
        let denials = if words.peek() == "denial" { "denial" } else { "denials" };
        words.expect(denials, EXAMPLE)?;
        words.expect("in", EXAMPLE)?;
        let within = words.duration()?;
        words.expect("ban", EXAMPLE)?;
        let lasts = words.duration()?;
        let mut most = None;
        if words.peek() == "up" {
            words.next();
            words.expect("to", "ban 1h up to 24h")?;
            let start = words.skip_space();
            most = Some(words.duration()?).filter(|most| *most >= lasts);
            if most.is_none() {
                return Err(
                    words.wrong_at(start, "a ban grows: it lasts at most as long as the first, or longer")
                );
            }
        }
        words.end(Self { after, within, lasts, most })
    }
}

/// Prints in the form that it is parsed from.
impl fmt::Display for Banning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, within, lasts, most } = self;
        let denials = if *after == 1 { "denial" } else { "denials" };
        write!(f, "after {after} {denials} in {within} ban {lasts}")?;
        most.map_or(Ok(()), |most| write!(f, " up to {most}"))
    }
}
