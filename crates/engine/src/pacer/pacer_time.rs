//! The clock and the timer of a pacer: the runtime's, or a clock that the caller moves.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Clock, Timestamp};

/// The source of a pacer's time.
pub(super) enum PacerTime {
    /// The clock and the timers of the runtime.
    Runtime,
    /// A clock that the caller moves. The caller gives the turns, too.
    Moved(MovedTime),
}

/// A clock that the caller moves, and the waits that end when it has come to a time.
pub(super) struct MovedTime {
    clock: Arc<dyn Clock>,
    /// The instant that corresponds to the clock's epoch.
    epoch: Instant,
    alarms: Mutex<Alarms>,
}

#[derive(Default)]
struct Alarms {
    set: BTreeMap<(Instant, u64), Waker>,
    numbers: u64,
}

/// An alarm that is set. Dropping it removes it.
struct Alarm<'t> {
    time: &'t MovedTime,
    at: Instant,
    number: u64,
}

impl PacerTime {
    /// A clock that the caller moves.
    pub(super) fn moved(clock: Arc<dyn Clock>) -> Self {
        Self::Moved(MovedTime { clock, epoch: Instant::now(), alarms: Mutex::default() })
    }

    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Runtime => Instant::now(),
            Self::Moved(moved) => moved.now(),
        }
    }

    /// Waits for a future until the deadline. `None` if it is not ready by then.
    pub(super) async fn within<F: Future + Unpin>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        match self {
            Self::Runtime => timeout_at(deadline, future).await.ok(),
            Self::Moved(moved) => moved.within(deadline, future).await,
        }
    }
}

impl MovedTime {
    pub(super) fn now(&self) -> Instant {
        self.epoch + Duration::from_micros(self.clock.now().as_micros())
    }

    /// The clock's time at an instant.
    pub(super) fn shown_at(&self, at: Instant) -> Timestamp {
        let nanos = at.saturating_duration_since(self.epoch).as_nanos();
        Timestamp::from_micros(u64::try_from(nanos.div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    /// The end of the first wait.
    pub(super) fn first_alarm(&self) -> Option<Instant> {
        self.alarms.lock().set.first_key_value().map(|((at, _), _)| *at)
    }

    /// Ends the waits whose time has come.
    pub(super) fn ring(&self) {
        let now = self.now();
        while let Some(waker) = self.next_due(now) {
            waker.wake();
        }
    }

    fn next_due(&self, now: Instant) -> Option<Waker> {
        let mut alarms = self.alarms.lock();
        let first = alarms.set.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    async fn within<F: Future + Unpin>(&self, deadline: Instant, mut future: F) -> Option<F::Output> {
        let mut alarm = None;
        poll_fn(move |context| match Pin::new(&mut future).poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.now() >= deadline => Poll::Ready(None),
            Poll::Pending => {
                drop(alarm.replace(self.set_alarm(deadline, context.waker().clone())));
                Poll::Pending
            }
        })
        .await
    }

    fn set_alarm(&self, at: Instant, waker: Waker) -> Alarm<'_> {
        let mut alarms = self.alarms.lock();
        alarms.numbers += 1;
        let number = alarms.numbers;
        alarms.set.insert((at, number), waker);
        Alarm { time: self, at, number }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.time.alarms.lock().set.remove(&(self.at, self.number));
    }
}
