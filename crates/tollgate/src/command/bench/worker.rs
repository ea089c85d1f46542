//! One connection's share of the load, and its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

use super::attempts::{Attempts, Dice};
use super::connection::{Connection, Dialler, Reply};

/// What all workers share.
pub(super) struct LoadState {
    pub(super) attempts: Attempts,
    pub(super) dialler: Dialler,
    pub(super) timeout: Duration,
    /// How many requests may still be sent.
    pub(super) budget: AtomicU64,
    /// How many were sent, for the progress bar.
    pub(super) sent: AtomicU64,
    /// How many of them failed.
    pub(super) failed: AtomicU64,
}

/// The results of requests.
pub(super) struct Tally {
    /// How long answered requests took, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Requests without a response, and attempts that were neither allowed nor denied.
    pub(super) errors: u64,
    /// The first of them, as text.
    pub(super) first_error: Option<String>,
}

/// Sends one request after the other.
pub(super) struct Worker {
    shared: Arc<LoadState>,
    dice: Dice,
    pub(super) tally: Tally,
}

/// How long a worker waits after a connection failed.
const REST: Duration = Duration::from_millis(100);

impl Worker {
    pub(super) fn new(shared: Arc<LoadState>, number: u64) -> Self {
        Self { shared, dice: Dice::new(number.wrapping_mul(0x1000_0000_0000)), tally: Tally::default() }
    }

    /// Sends requests until the budget is spent. It may be dropped at any time; the tally stays correct.
    pub(super) async fn drive(&mut self) {
        let mut connection: Option<Connection> = None;
        while self.spend() {
            let mut open = match connection.take().filter(Connection::is_open) {
                Some(open) => open,
                None => match self.shared.dialler.dial().await {
                    Ok(open) => open,
                    Err(error) => {
                        self.fail(error);
                        sleep(REST).await;
                        continue;
                    }
                },
            };
            if self.ask(&mut open).await {
                connection = Some(open);
            }
        }
    }

    /// Takes one request from the budget, if there is one left.
    fn spend(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.shared.budget.try_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Sends one request. Returns whether the connection can be reused.
    async fn ask(&mut self, connection: &mut Connection) -> bool {
        let request = self.shared.dialler.request(self.shared.attempts.body(&mut self.dice));
        let start = Instant::now();
        let answer = timeout(self.shared.timeout, connection.ask(request)).await;
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match answer {
            Ok(Ok(reply)) => {
                self.shared.sent.fetch_add(1, Ordering::Relaxed);
                self.tally.latency.saturating_record(took);
                self.count(&reply);
                true
            }
            Ok(Err(error)) => {
                self.fail(error);
                false
            }
            Err(_) => {
                self.fail("no answer in time".to_owned());
                false
            }
        }
    }

    fn count(&mut self, reply: &Reply) {
        if self.shared.attempts.batch() == 1 {
            return self.count_status(reply.status);
        }
        match serde_json::from_slice::<Batch>(&reply.body) {
            Ok(batch) if reply.status == 200 => {
                for decision in batch.decisions {
                    self.count_status(decision.status);
                }
            }
            _ => self.count_status(reply.status.max(400)),
        }
    }

    fn count_status(&mut self, status: u16) {
        match status {
            200 => self.tally.allowed += 1,
            429 => self.tally.denied += 1,
            _ => self.note(format!("status {status}")),
        }
    }

    fn fail(&mut self, error: String) {
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        self.note(error);
    }

    fn note(&mut self, error: String) {
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        self.tally.errors += 1;
        self.tally.first_error.get_or_insert(error);
    }
}

/// The response to several attempts.
#[derive(Deserialize)]
struct Batch {
    decisions: Vec<AnswerStatus>,
}

#[derive(Deserialize)]
struct AnswerStatus {
    status: u16,
}

impl Tally {
    /// How many requests were answered.
    pub(super) fn answered(&self) -> u64 {
        self.latency.len()
    }

    /// Adds another tally.
    pub(super) fn add(&mut self, other: Self) {
        self.latency.add(other.latency).expect("both have the same bounds");
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

impl Default for Tally {
    fn default() -> Self {
        const LONGEST: u64 = 3_600_000_000_000;
        let latency = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are far apart");
        Self { latency, allowed: 0, denied: 0, errors: 0, first_error: None }
    }
}
