//! The load as a whole: starts the workers, stops them in time, and adds up their results.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::signal::ctrl_c;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::attempts::Attempts;
use super::connection::Dialler;
use super::progress::Progress;
use super::report::Report;
use super::worker::{LoadState, Tally, Worker};
use crate::client::Client;

/// The load to run.
pub(super) struct Load {
    pub(super) client: Client,
    pub(super) attempts: Attempts,
    pub(super) connections: u16,
    pub(super) bound: Bound,
}

/// When the load ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// After this time.
    Time(Duration),
    /// After this many requests.
    Requests(u64),
}

/// Why the load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Interrupted,
}

impl Load {
    pub(super) fn run(self) -> anyhow::Result<Report> {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.measure())
    }

    async fn measure(self) -> anyhow::Result<Report> {
        let budget = match self.bound {
            Bound::Time(_) => u64::MAX,
            Bound::Requests(requests) => requests,
        };
        let shared = Arc::new(LoadState {
            dialler: Dialler::new(&self.client)?,
            attempts: self.attempts,
            timeout: self.client.timeout(),
            budget: AtomicU64::new(budget),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let mut interrupted = pin!(ctrl_c());
        // Polled once, so that the signal handler is installed before anything is sent.
        tokio::select! {
            biased;
            pressed = &mut interrupted => pressed?,
            () = std::future::ready(()) => {}
        }
        let (stop, stopped) = watch::channel(());
        let mut workers = JoinSet::new();
        let start = Instant::now();
        for number in 0..self.connections {
            workers.spawn(work(Worker::new(Arc::clone(&shared), number.into()), stopped.clone()));
        }
        let mut tally = Tally::default();
        let progress = Progress::start(self.bound, Arc::clone(&shared));
        let end = tokio::select! {
            () = over(self.bound) => End::Done,
            pressed = &mut interrupted => pressed.map(|()| End::Interrupted)?,
            () = join(&mut workers, &mut tally) => End::Done,
        };
        // Requests that are still unanswered are abandoned and not counted.
        drop(stop);
        let seconds = start.elapsed().as_secs_f64();
        join(&mut workers, &mut tally).await;
        progress.finish();
        Ok(Report { tally, seconds, end })
    }
}

/// Runs a worker until its budget is spent or the load stops.
async fn work(mut worker: Worker, mut stopped: watch::Receiver<()>) -> Tally {
    tokio::select! {
        _ = stopped.changed() => {}
        () = worker.drive() => {}
    }
    worker.tally
}

/// Waits until the time is over, if time is the bound.
async fn over(bound: Bound) {
    match bound {
        Bound::Time(time) => sleep(time).await,
        Bound::Requests(_) => std::future::pending().await,
    }
}

async fn join(workers: &mut JoinSet<Tally>, tally: &mut Tally) {
    while let Some(done) = workers.join_next().await {
        tally.add(done.expect("workers neither panic nor are aborted"));
    }
}
