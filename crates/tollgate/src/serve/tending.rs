//! Runs the background work of the engine and of the leases.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_engine::{Engine, Leases};

/// How often the engine is tended.
const EVERY: Duration = Duration::from_millis(250);
/// How long releasing holds may take at the shutdown; the others expire.
const MOST_RELEASE: Duration = Duration::from_secs(1);

/// A task that tends an engine until it is ended.
pub(crate) struct Tending {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    leases: Arc<Leases>,
}

impl Tending {
    /// Tends an engine and its leases.
    pub(crate) fn start(engine: &Arc<Engine>, leases: &Arc<Leases>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(tend(Arc::clone(engine), Arc::clone(leases), stopped));
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

async fn tend(engine: Arc<Engine>, leases: Arc<Leases>, mut stopped: watch::Receiver<bool>) {
    let tend_engine = async {
        loop {
            engine.tend().await;
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        () = tend_engine => {}
        _ = leases.run() => {}
        _ = stopped.changed() => {}
    }
}
