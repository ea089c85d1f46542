//! Asks the server for its totals at a steady interval, on its own thread, so that a slow response never
//! delays the keyboard.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, Fault, Path, wire};

/// The server's totals at one time.
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) top: wire::Top,
    /// The lanes of the mail relay, if there is one.
    pub(super) lanes: Vec<wire::Lane>,
    /// What operators paused of the mail.
    pub(super) pauses: Vec<wire::MailPause>,
}

/// The samples as they arrive. The thread ends when this is dropped.
pub(super) struct Sampler {
    samples: Receiver<Result<Sample, Fault>>,
    _stop: Sender<()>,
}

/// How many lanes are shown.
const MOST_LANES: usize = 20;

impl Sampler {
    /// Starts to ask.
    pub(super) fn start(client: Client, interval: Duration, path: Path) -> Self {
        let (sender, samples) = mpsc::sync_channel(1);
        let (stop, stopped) = mpsc::channel();
        thread::spawn(move || ask(&client, &path, interval, &sender, &stopped));
        Self { samples, _stop: stop }
    }

    /// The next sample.
    pub(super) fn next(&self) -> Result<Sample, Fault> {
        self.samples.recv().expect("the thread lives as long as this")
    }

    /// The next sample, if it has arrived.
    pub(super) fn arrived(&self) -> Option<Result<Sample, Fault>> {
        self.samples.try_recv().ok()
    }
}

fn ask(
    client: &Client,
    path: &Path,
    interval: Duration,
    samples: &SyncSender<Result<Sample, Fault>>,
    stopped: &Receiver<()>,
) {
    // The lanes are asked for after a sample was sent, and shown with the next one: they hold up none.
    let mut known = Some(wire::Lanes { lanes: Vec::new(), pauses: Vec::new() });
    loop {
        let top = client.get(path).and_then(|answer| answer.read(client.server()));
        let answered = top.is_ok();
        let (lanes, pauses) = known.clone().map(|mail| (mail.lanes, mail.pauses)).unwrap_or_default();
        if samples.send(top.map(|top| Sample { at: moment(), top, lanes, pauses })).is_err() {
            return;
        }
        if answered && known.is_some() {
            known = lanes_of(client);
        }
        if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The lanes of the mail relay; `None` if the server has no relay, or does not show them.
fn lanes_of(client: &Client) -> Option<wire::Lanes> {
    let answer = client.get(&Path::new(&["lanes"]).at_most(MOST_LANES)).ok()?;
    answer.read::<wire::Lanes>(client.server()).ok()
}

#[expect(clippy::disallowed_methods, reason = "rates are counts over the time that really passed")]
fn moment() -> Instant {
    Instant::now()
}
