//! Delays: an attempt that comes earlier than a ladder allows is decided again when its time has come.
//!
//! Such an attempt waits in no queue. When the delay is over, the attempt that is decided first counts as a failure,
//! and the others have to wait again, for the delay of the step that the ladder has reached.

use prometheus_client::metrics::gauge::Gauge;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate_core::{Decision, Line, Origin, Span, When};

use super::{Advice, Guards};
use crate::meter::GuardMeters;

/// At most this many attempts are delayed at once. Further ones are refused.
const MOST: i64 = 10_000;

/// The least delay, so that no attempt is decided again in a tight loop.
const LEAST: Span = Span::from_millis(1);

/// The attempts that are delayed now.
pub(super) struct Delays {
    now: Gauge,
    /// Becomes true when the process shuts down: then no attempt is delayed any more.
    ended: watch::Sender<bool>,
}

/// One attempt that is delayed. Dropping it makes room for another.
pub(crate) struct Delay {
    span: Span,
    now: Gauge,
    ended: watch::Receiver<bool>,
}

/// A delay that is not waited out: the process shuts down, or there is no runtime to wait in.
pub(crate) struct CutShort;

impl Delays {
    pub(super) fn new(meters: &GuardMeters) -> Self {
        Self { now: meters.delayed.clone(), ended: watch::Sender::new(false) }
    }
}

impl Guards {
    /// The delay of a refused attempt, if only the delays of ladders refuse it, they are no longer than `most`, and
    /// there is room.
    pub(crate) fn delay(&self, decision: &Decision<'_>, most: Span) -> Option<Delay> {
        let span = delay_of(decision).filter(|span| *span <= most)?;
        let Delays { now, ended } = &self.delays;
        let delay = Delay { span, now: now.clone(), ended: ended.subscribe() };
        // Dropping the delay lowers the gauge again.
        (now.inc() < MOST).then_some(delay)
    }

    /// Ends all delays; a later delay ends immediately. Call it at shutdown, so that callers get an answer before
    /// their connections are closed.
    pub fn end_delays(&self) {
        self.delays.ended.send_replace(true);
    }
}

impl Delay {
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Waits until the delay is over.
    pub(crate) async fn pass(mut self) -> Result<(), CutShort> {
        if Handle::try_current().is_err() {
            return Err(CutShort);
        }
        match timeout(self.span.into(), self.ended.wait_for(|ended| *ended)).await {
            Ok(_) => Err(CutShort),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.now.dec();
    }
}

/// The delay of an attempt, if only the delays of ladders refuse it.
fn delay_of(decision: &Decision<'_>) -> Option<Span> {
    let is_counted = matches!(decision.origin, Origin::Store | Origin::Local(_));
    if !is_counted || Advice::of(decision).locked_until.is_some() {
        return None;
    }
    let is_only_delayed = |line: Line<'_>| {
        let mut limits = line.limits.iter().zip(line.readings);
        limits.all(|(limit, reading)| reading.when <= When::Now || limit.ladder().is_some())
    };
    let mut enforced = decision.lines().filter(|line| !line.rule.observes());
    decision.wait().filter(|_| enforced.all(is_only_delayed)).map(|wait| wait.max(LEAST))
}
