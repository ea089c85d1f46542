//! The progress bar: on a terminal only, on standard error.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

use super::load::Bound;
use super::worker::LoadState;
use crate::command::words;

/// A bar that fills while the load runs.
pub(super) struct Progress {
    bar: ProgressBar,
    task: JoinHandle<()>,
}

const REDRAWN: Duration = Duration::from_millis(200);

impl Progress {
    pub(super) fn start(bound: Bound, shared: Arc<LoadState>) -> Self {
        let length = match bound {
            Bound::Time(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            Bound::Requests(requests) => requests,
        };
        let style =
            ProgressStyle::with_template("{wide_bar} {percent:>3}%  {msg}").expect("the template is fixed");
        // The bar hides itself if standard error is not a terminal.
        let bar = ProgressBar::new(length).with_style(style);
        let task = tokio::spawn(fill(bar.clone(), bound, shared));
        Self { bar, task }
    }

    pub(super) fn finish(self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}

async fn fill(bar: ProgressBar, bound: Bound, shared: Arc<LoadState>) {
    let start = Instant::now();
    let mut redrawn = interval(REDRAWN);
    loop {
        redrawn.tick().await;
        let (sent, failed) = (shared.sent.load(Ordering::Relaxed), shared.failed.load(Ordering::Relaxed));
        let elapsed = start.elapsed();
        let rate = sent as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
        bar.set_message(format!("{}/s, {} errors", words::number(rate as u64), words::number(failed)));
        bar.set_position(match bound {
            Bound::Time(_) => u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            Bound::Requests(_) => sent,
        });
    }
}
