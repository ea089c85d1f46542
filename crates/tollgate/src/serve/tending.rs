//! Looks after the engine, beside serving.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_engine::Engine;

/// How often the engine is tended.
const EVERY: Duration = Duration::from_millis(250);

/// A task that tends an engine until it is ended.
pub(crate) struct Tending {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Tending {
    /// Tends an engine.
    pub(crate) fn start(engine: &Arc<Engine>) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(tend(Arc::clone(engine), stopped)) }
    }

    /// Ends it. What it does is given up where it stands: nothing there must be finished.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(true);
        // A task that panicked has nothing left to do either.
        let _ = self.task.await;
    }
}

async fn tend(engine: Arc<Engine>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = engine.tend() => {}
            _ = stopped.changed() => return,
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stopped.changed() => return,
        }
    }
}
