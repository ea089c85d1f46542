//! Reloads on SIGHUP and when the configuration file changes. Bursts of either cause few reloads.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::reload::Reloader;

/// How long to collect changes and signals before a reload. Editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// How many symbolic links are followed, as by the system.
const MOST_LINKS: usize = 40;

/// A task that follows the configuration until it is ended.
pub(crate) struct Following(JoinHandle<()>);

impl Following {
    /// Reloads on the signal and when the file changes. A change since the configuration was read is noticed
    /// at once.
    pub(crate) fn start(reloader: Arc<Reloader>, hangup: Signal) -> Self {
        let watch = Watch::start(reloader.path());
        reloader.reload_if_changed();
        Self(tokio::spawn(follow(reloader, hangup, watch)))
    }

    /// Ends it: no further reload starts.
    pub(crate) fn end(self) {
        self.0.abort();
    }
}

async fn follow(reloader: Arc<Reloader>, mut hangup: Signal, mut watch: Watch) {
    loop {
        let mut signalled = tokio::select! {
            _ = hangup.recv() => true,
            () = watch.changed() => false,
        };
        sleep(SETTLE).await;
        // Signals that arrived meanwhile count as one.
        signalled |= timeout(Duration::ZERO, hangup.recv()).await.is_ok();
        // The watch is renewed before the file is read, so that no change is missed.
        watch.renew();
        if signalled { reloader.reload_and_tell() } else { reloader.reload_if_changed() }
    }
}

/// Notices changes of one file, even if a directory or a link in its path is replaced.
struct Watch {
    path: Option<PathBuf>,
    watcher: Option<RecommendedWatcher>,
    sender: mpsc::Sender<()>,
    events: mpsc::Receiver<()>,
}

impl Watch {
    /// Watches a file. If that is impossible, a log line says so.
    fn start(path: Option<&Path>) -> Self {
        let (sender, events) = mpsc::channel(1);
        let mut watch = Self { path: path.map(Path::to_owned), watcher: None, sender, events };
        watch.renew();
        watch
    }

    /// Waits for a change.
    async fn changed(&mut self) {
        // The sender is in the same struct, so the channel never closes.
        let _ = self.events.recv().await;
    }

    /// Watches the current path to the file. Watches are bound to directories and not to their names, so the
    /// old ones do not see a directory that replaced another.
    fn renew(&mut self) {
        while self.events.try_recv().is_ok() {}
        let Some(path) = &self.path else { return };
        match watch_way(path, self.sender.clone()) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                tracing::warn!(component = "config", %error, "changes of the file cannot be watched: reload by hand");
            }
        }
    }
}

/// Watches every directory on the path to a file.
fn watch_way(path: &Path, sender: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let way: HashSet<PathBuf> = way_to(&std::path::absolute(path)?);
    let directories: HashSet<PathBuf> =
        way.iter().filter_map(|step| step.parent()).map(Path::to_owned).collect();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let touched = event.is_ok_and(|event| {
            let on_the_way = || event.paths.iter().any(|path| way.contains(path));
            event.need_rescan() || (!event.kind.is_access() && on_the_way())
        });
        if touched {
            // A full channel already holds an unhandled change.
            let _ = sender.try_send(());
        }
    })?;
    let mut watched = 0;
    let mut refused = None;
    for directory in &directories {
        match watcher.watch(directory, RecursiveMode::NonRecursive) {
            Ok(()) => watched += 1,
            // Some directories may be missing for a moment, or unreadable; the others report changes.
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if watched == 0 => Err(error),
        _ => Ok(watcher),
    }
}

/// Every path whose replacement changes what an absolute path leads to: each directory, link and file on the
/// way, named within a directory that is not a link.
fn way_to(path: &Path) -> HashSet<PathBuf> {
    let steps = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect();
    let mut open: VecDeque<OsString> = steps(path);
    let mut way = HashSet::new();
    let (mut walked, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = open.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => walked = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                walked.pop();
            }
            Some(Component::Normal(name)) => {
                let step = walked.join(name);
                way.insert(step.clone());
                match std::fs::read_link(&step) {
                    Ok(target) if links < MOST_LINKS => {
                        links += 1;
                        let mut ahead: VecDeque<OsString> = steps(&target);
                        ahead.append(&mut open);
                        open = ahead;
                    }
                    _ => walked = step,
                }
            }
            _ => {}
        }
    }
    way
}
