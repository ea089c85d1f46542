//! Decides when to try to connect again: soon at first, then once a second for all callers together. A caller
//! that asks earlier gets the last error at once.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::StoreError;

use crate::pool::Haste;

#[derive(Default)]
pub(crate) struct Redial {
    /// The number of failed attempts since the last success.
    failures: u32,
    /// The number of attempts in flight.
    dialing: u32,
    /// The earliest time of the next attempt, and the error of the last one.
    next: Option<(Instant, StoreError)>,
}

/// The pauses after the first failures.
const FIRST: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];
/// The pause after each later failure.
const LATER: Duration = Duration::from_secs(1);

impl Redial {
    /// Starts an attempt.
    ///
    /// # Errors
    ///
    /// If it is too early for another attempt: the error of the last one.
    pub(crate) fn begin(&mut self, haste: Haste, now: Instant) -> Result<(), StoreError> {
        if let (Haste::FailFast, Some((next, error))) = (haste, &self.next)
            && (self.dialing > 0 || now < *next)
        {
            return Err(error.clone());
        }
        self.dialing += 1;
        Ok(())
    }

    /// Records the end of an attempt.
    pub(crate) fn end(&mut self, failed: Option<&StoreError>, now: Instant) {
        self.dialing = self.dialing.saturating_sub(1);
        let Some(error) = failed else {
            self.failures = 0;
            self.next = None;
            return;
        };
        let pause = FIRST.get(self.failures as usize).copied().unwrap_or(LATER);
        self.failures = self.failures.saturating_add(1);
        self.next = Some((now + pause, error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_together_try_once_a_second_after_the_first_attempts() {
        let (mut redial, start) = (Redial::default(), Instant::now());
        let error = StoreError::Unavailable { reason: "refused".into() };
        let mut begun = Vec::new();
        for millis in 0..10_000 {
            let now = start + Duration::from_millis(millis);
            // Three callers try in each millisecond.
            for _ in 0..3 {
                match redial.begin(Haste::FailFast, now) {
                    Ok(()) => begun.push(millis),
                    Err(told) => assert_eq!(told, error),
                }
            }
            if begun.last() == Some(&millis) {
                (0..redial.dialing).for_each(|_| redial.end(Some(&error), now));
            }
        }
        let later: Vec<u64> = begun.iter().copied().filter(|at| *at > 2_000).collect();
        assert!((6..=9).contains(&later.len()), "{begun:?}");
        assert!(later.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{begun:?}");
        assert!(redial.begin(Haste::Try, start).is_ok(), "a probe is always made");
        redial.end(None, start);
        assert!(redial.begin(Haste::FailFast, start).is_ok());
    }

    #[test]
    fn only_one_attempt_is_under_way_after_a_failure() {
        let (mut redial, start) = (Redial::default(), Instant::now());
        assert!(redial.begin(Haste::FailFast, start).is_ok());
        assert!(redial.begin(Haste::FailFast, start).is_ok(), "a server that is well is dialed by many");
        redial.end(Some(&StoreError::TimedOut), start);
        redial.end(Some(&StoreError::TimedOut), start);
        let later = start + LATER;
        assert!(redial.begin(Haste::FailFast, later).is_ok());
        assert_eq!(redial.begin(Haste::FailFast, later).unwrap_err(), StoreError::TimedOut);
    }
}
