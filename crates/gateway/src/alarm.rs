//! Time-outs, by a clock that ticks ten times a second.
//!
//! The gateway sets a time-out for nearly everything that it waits for, and hardly any of them expires. So
//! setting one only writes a number. One task checks all of them at each tick.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;

/// How often the clock ticks.
pub(crate) const TICK: Duration = Duration::from_millis(100);
const TICKS_A_SECOND: u64 = 10;
const NEVER: u32 = u32::MAX;

/// All time-outs of one worker.
pub(crate) struct Alarms {
    entries: RefCell<Slab<AlarmEntry>>,
    now: Cell<u32>,
}

struct AlarmEntry {
    due: u32,
    waker: Option<Waker>,
}

/// One time-out, which its task can set again and again.
pub(crate) struct Alarm {
    alarms: Rc<Alarms>,
    key: usize,
}

/// A time-out has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

impl Alarms {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { entries: RefCell::default(), now: Cell::new(0) })
    }

    /// Makes a time-out that is not set.
    pub(crate) fn alarm(self: &Rc<Self>) -> Alarm {
        let key = self.entries.borrow_mut().insert(AlarmEntry { due: NEVER, waker: None });
        Alarm { alarms: Rc::clone(self), key }
    }

    /// The current tick.
    pub(crate) fn now(&self) -> u32 {
        self.now.get()
    }

    /// The time since the first tick.
    pub(crate) fn time(&self) -> Duration {
        TICK * self.now.get()
    }

    /// The first tick at which at least `time` has passed.
    pub(crate) fn after(&self, time: Duration) -> u32 {
        let whole = time.as_secs().saturating_mul(TICKS_A_SECOND);
        let ticks = whole.saturating_add(u64::from(time.subsec_nanos().div_ceil(TICK.subsec_nanos())) + 1);
        self.now.get().saturating_add(u32::try_from(ticks).unwrap_or(NEVER)).min(NEVER - 1)
    }

    /// Moves the clock on by one tick, and wakes every task whose time-out has expired.
    pub(crate) fn tick(&self) {
        let now = self.now.get() + 1;
        self.now.set(now);
        for (_, entry) in self.entries.borrow_mut().iter_mut().filter(|(_, entry)| entry.due <= now) {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// Wakes every waiting task, so that it sees what has changed.
    pub(crate) fn rouse(&self) {
        let wakers =
            self.entries.borrow_mut().iter_mut().filter_map(|(_, entry)| entry.waker.take()).collect();
        let wakers: Vec<Waker> = wakers;
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Alarm {
    /// Sets the time-out to `time` from now.
    pub(crate) fn set(&self, time: Duration) {
        self.set_at(self.alarms.after(time));
    }

    /// The first tick at which at least `time` has passed.
    pub(crate) fn after(&self, time: Duration) -> u32 {
        self.alarms.after(time)
    }

    /// Sets the time-out to expire at this tick.
    pub(crate) fn set_at(&self, due: u32) {
        self.alarms.entries.borrow_mut()[self.key].due = due;
    }

    /// Unsets the time-out: it never expires.
    pub(crate) fn unset(&self) {
        self.set_at(NEVER);
    }

    /// Ready if the time-out has expired. Otherwise the task is woken when it expires.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let entry = &mut self.alarms.entries.borrow_mut()[self.key];
        if entry.due <= self.alarms.now.get() {
            return Poll::Ready(());
        }
        match &entry.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => entry.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Awaits the future, for at most `time`.
    pub(crate) async fn within<F: Future>(&self, time: Duration, future: F) -> Result<F::Output, Late> {
        let mut future = pin!(future);
        self.set(time);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll(cx).map(|()| Err(Late)),
        })
        .await
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.alarms.entries.borrow_mut().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_alarm_rings_once_its_time_has_passed_for_certain_and_not_before() {
        let alarms = Alarms::new();
        let alarm = alarms.alarm();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        alarm.set(Duration::from_millis(200));
        // The current tick may be nearly over, so it does not count.
        for _ in 0..2 {
            alarms.tick();
            assert!(alarm.poll(&mut cx).is_pending());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        alarms.tick();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(alarm.poll(&mut cx).is_ready());
    }

    #[test]
    fn an_alarm_that_is_set_again_starts_anew() {
        let alarms = Alarms::new();
        let alarm = alarms.alarm();
        let mut cx = Context::from_waker(Waker::noop());
        alarm.set(TICK);
        alarms.tick();
        alarm.set(TICK);
        alarms.tick();
        assert!(alarm.poll(&mut cx).is_pending());
        alarms.tick();
        assert!(alarm.poll(&mut cx).is_ready());
    }

    #[test]
    fn dropped_alarms_leave_nothing_behind() {
        let alarms = Alarms::new();
        drop(alarms.alarm());
        assert!(alarms.entries.borrow().is_empty());
    }
}
