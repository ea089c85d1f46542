//! Runs the background work of the engine and of the leases, and samples the rates.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tollgate_doors::Live;
use tollgate_engine::{Engine, Leases};

/// How often the engine is tended.
const EVERY: Duration = Duration::from_millis(250);
/// How often the rates are sampled.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// How long releasing holds may take at the shutdown; the others expire.
const MOST_RELEASE: Duration = Duration::from_secs(1);

/// A task that tends an engine until it is ended.
pub(crate) struct Tending {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    leases: Arc<Leases>,
}

impl Tending {
    /// Tends an engine and its leases, and samples its rates.
    pub(crate) fn start(engine: &Arc<Engine>, leases: &Arc<Leases>, live: &Arc<Live>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(tend(Arc::clone(engine), Arc::clone(leases), Arc::clone(live), stopped));
        Self { stop, task, leases: Arc::clone(leases) }
    }

    /// Ends it. Its current work is dropped, since nothing of it must be finished. Remaining holds are
    /// released, if that does not take long.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(true);
        // A task that panicked has nothing left to do either.
        let _ = self.task.await;
        let _ = tokio::time::timeout(MOST_RELEASE, self.leases.end()).await;
    }
}

async fn tend(engine: Arc<Engine>, leases: Arc<Leases>, live: Arc<Live>, mut stopped: watch::Receiver<bool>) {
    let tend_engine = async {
        loop {
            engine.tend().await;
            tokio::time::sleep(EVERY).await;
        }
    };
    let sample = async {
        let mut seconds = tokio::time::interval(SAMPLE_EVERY);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            seconds.tick().await;
            live.tick();
        }
    };
    tokio::select! {
        () = tend_engine => {}
        () = sample => {}
        _ = leases.run() => {}
        _ = stopped.changed() => {}
    }
}
