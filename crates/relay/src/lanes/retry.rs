//! The times of retries, and the end of retrying.

use tollgate_core::{Span, Timestamp};

/// The schedule of retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The waits after the first failure, the second, and so on. The last one repeats.
    pub schedule: Vec<Span>,
    /// The random part of a wait, in percent, in both directions.
    pub jitter: u32,
    /// The time for which an item is retried. Time that it waits for a limit does not count.
    pub lifetime: Span,
}

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTry {
    /// Another attempt.
    Again {
        /// The due time of the attempt.
        due: Timestamp,
        /// The lifetime that the wait uses up.
        spent: Span,
    },
    /// The lifetime is over.
    Expired,
}

const MINUTE: u64 = 60;
/// The rest of a lane after a server's first request to slow down, and the longest rest.
const FIRST_REST: Span = Span::from_secs(MINUTE);
const LONGEST_REST: Span = Span::from_secs(32 * MINUTE);

impl Default for Retry {
    fn default() -> Self {
        let minutes = [2, 5, 10, 15, 30, 60, 120, 240];
        Self {
            schedule: minutes.iter().map(|minutes| Span::from_secs(minutes * MINUTE)).collect(),
            jitter: 10,
            lifetime: Span::from_secs(5 * 86_400),
        }
    }
}

impl Retry {
    /// When an item is due that was to wait until `due`. No wait is longer than the longest of the schedule: a later moment
    /// is one of a clock that was wrong, and the item is due now.
    pub fn due(&self, due: Timestamp, now: Timestamp) -> Timestamp {
        let longest = self.schedule.iter().max().map_or(0, |span| span.as_micros());
        let longest = longest.saturating_add(longest / 100 * u64::from(self.jitter));
        if due.since(now).as_micros() > longest { now } else { due }
    }

    /// The consequence of a failure now. `failures` is the number of earlier failures, `spent` the lifetime
    /// that is used up; `luck` spreads retries that would come at the same time.
    pub fn after(&self, failures: u32, spent: Span, now: Timestamp, luck: u64) -> NextTry {
        let left = self.lifetime.as_micros().saturating_sub(spent.as_micros());
        if left == 0 {
            return NextTry::Expired;
        }
        let place = (failures as usize).min(self.schedule.len().saturating_sub(1));
        let wait = self.schedule.get(place).map_or(0, |span| span.as_micros());
        let spread = wait / 100 * u64::from(self.jitter);
        let wait = wait - spread + luck.checked_rem(2 * spread + 1).unwrap_or(0);
        // The last attempt is at the end of the lifetime, not earlier.
        let wait = Span::from_micros(wait.clamp(1, left));
        NextTry::Again { due: now + wait, spent: wait }
    }
}

/// The rest of a lane or an account after this many requests to slow down in a row.
pub(crate) fn rest(throttled: u32) -> Span {
    let doubled = FIRST_REST.as_micros().saturating_mul(1 << throttled.min(10));
    Span::from_micros(doubled.min(LONGEST_REST.as_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    #[test]
    fn the_schedule_is_followed_with_jitter_until_the_lifetime_ends() {
        let retry = Retry::default();
        let (mut failures, mut spent, mut now, mut waits) = (0, Span::ZERO, NOW, Vec::new());
        loop {
            // The middle of the jitter.
            let wait = retry.schedule[(failures as usize).min(7)].as_micros();
            match retry.after(failures, spent, now, wait / 10) {
                NextTry::Expired => break,
                NextTry::Again { due, spent: more } => {
                    assert_eq!(due.since(now), more);
                    waits.push(more.as_secs_ceil() / MINUTE);
                    spent = Span::from_micros(spent.as_micros() + more.as_micros());
                    (now, failures) = (due, failures + 1);
                }
            }
        }
        assert_eq!(waits[..9], [2, 5, 10, 15, 30, 60, 120, 240, 240]);
        assert_eq!(now.since(NOW), retry.lifetime, "the last attempt is at the end");
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let retry = Retry::default();
        for luck in 0..10_000 {
            let NextTry::Again { due, .. } = retry.after(0, Span::ZERO, NOW, luck * 7_919 * 65_537) else {
                panic!("the lifetime is not over")
            };
            let wait = due.since(NOW).as_micros();
            assert!((108_000_000..=132_000_000).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn rests_double_up_to_half_an_hour() {
        let minutes: Vec<u64> = (0..8).map(|times| rest(times).as_secs_ceil() / MINUTE).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 32, 32]);
    }
}
