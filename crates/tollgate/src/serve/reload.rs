//! Follows the configuration: on SIGHUP, when the file changes, and when the API asks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tollgate_engine::Engine;

use crate::config::{self, ConfigError};

/// Reads the configuration again and puts its policies in force, all of them or none.
pub(crate) struct Reloader {
    path: Option<PathBuf>,
    environment: Vec<(String, String)>,
    engine: Arc<Engine>,
    /// What was read last, so that a touched file that says the same is no news.
    last: Mutex<Option<Vec<u8>>>,
}

/// Changes of the file, for as long as this lives.
pub(crate) struct Changes {
    _watcher: Option<RecommendedWatcher>,
    events: mpsc::Receiver<()>,
}

/// How long to wait after a change for the rest of it: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);

impl Reloader {
    pub(crate) fn new(
        path: Option<PathBuf>,
        environment: Vec<(String, String)>,
        engine: Arc<Engine>,
    ) -> Self {
        let last = Mutex::new(path.as_ref().and_then(|path| std::fs::read(path).ok()));
        Self { path, environment, engine, last }
    }

    /// Reloads; if the configuration is broken, what was in force stays in force.
    pub(crate) fn reload(&self) -> Result<(), ConfigError> {
        let mut last = self.last.lock();
        let config = config::load(self.path.as_deref(), self.environment.iter().cloned())?;
        self.engine.reload(config.policies);
        *last = self.path.as_ref().and_then(|path| std::fs::read(path).ok());
        Ok(())
    }

    /// Reloads and says in the log what came of it.
    pub(crate) fn reload_and_tell(&self) {
        match self.reload() {
            Ok(()) => tracing::info!(component = "config", "the configuration was reloaded"),
            Err(error) => {
                tracing::error!(component = "config", %error, "the configuration is broken; the old one stays in force");
            }
        }
    }

    pub(crate) fn reload_if_changed(&self) {
        let now = self.path.as_ref().and_then(|path| std::fs::read(path).ok());
        // While a file is being replaced it may be missing for a moment.
        if now.is_some() && now != *self.last.lock() {
            self.reload_and_tell();
        }
    }
}

/// Watches the configuration file's directory: editors replace files, and a watch on the old one
/// would see nothing more.
pub(crate) fn watch(reloader: &Reloader) -> anyhow::Result<Changes> {
    let (sender, events) = mpsc::channel(1);
    let Some(path) = &reloader.path else { return Ok(Changes { _watcher: None, events }) };
    let path = std::path::absolute(path)?;
    let name = path.file_name().map(ToOwned::to_owned);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let touched = event.is_ok_and(|event| {
            !event.kind.is_access() && event.paths.iter().any(|path| path.file_name() == name.as_deref())
        });
        if touched {
            // A full channel holds news that was not read yet.
            let _ = sender.try_send(());
        }
    })?;
    if let Some(directory) = path.parent() {
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
    }
    Ok(Changes { _watcher: Some(watcher), events })
}

impl Changes {
    /// The next change, once it has settled; `None` if nothing is watched.
    pub(crate) async fn recv(&mut self) -> Option<()> {
        let news = self.events.recv().await;
        tokio::time::sleep(SETTLE).await;
        while self.events.try_recv().is_ok() {}
        news
    }
}
