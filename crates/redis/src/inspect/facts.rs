//! What a server says of itself, and what was measured. What could not be learned is absent.

use std::time::Duration;

/// One server, as far as it let itself be looked at.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// How long it took to connect.
    pub connected_in: Option<Duration>,
    /// As whom we are logged in.
    pub user: Option<String>,
    /// `redis` or `valkey`.
    pub flavour: Option<String>,
    /// Its version, as in `7.0.15`.
    pub version: Option<String>,
    /// `standalone`, `cluster` or `sentinel`.
    pub mode: Option<String>,
    /// `master` or `replica`.
    pub role: Option<String>,
    /// How many replicas follow it.
    pub replicas: Option<u64>,
    /// How long a command takes.
    pub round_trip: Option<RoundTrip>,
    /// What its clock shows, against this machine's.
    pub clock: Option<ClockOffset>,
    /// How much it keeps, and what it does when that is too much.
    pub memory: Option<Memory>,
    /// What it remembers after a restart.
    pub persistence: Option<Persistence>,
    /// How many keys are ours.
    pub keys: Option<KeyCount>,
    /// What came of running each script.
    pub scripts: Vec<ScriptRun>,
    /// How many commands were tried on their own.
    pub tried: usize,
    /// Those of them that this user may not run, as an ACL names them.
    pub forbidden: Vec<String>,
    /// Whether our keys are kept from this user.
    pub keys_forbidden: bool,
    /// What it did not let us read: `CONFIG`, `INFO`.
    pub unread: Vec<&'static str>,
    /// Why it could not be looked at any further.
    pub(super) trouble: Option<Trouble>,
}

/// How long commands took that do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// How many were measured.
    pub count: usize,
    /// The fastest.
    pub min: Duration,
    /// The one in the middle.
    pub median: Duration,
    /// The slowest.
    pub max: Duration,
}

/// How far a clock is ahead of this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// In microseconds; negative if it is behind.
    pub ahead_micros: i64,
    /// By how much that may be wrong, either way.
    pub uncertainty_micros: u64,
}

/// Memory, and what happens when it is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use.
    pub used: Option<u64>,
    /// The bound in bytes; 0 if there is none.
    pub max: Option<u64>,
    /// `maxmemory-policy`.
    pub policy: Option<String>,
    /// How many keys were evicted since it started.
    pub evicted: Option<u64>,
}

/// What is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persistence {
    /// Whether there is a log of everything that is written.
    pub append_only: Option<bool>,
    /// How often that log is synced: `appendfsync`.
    pub fsync: Option<String>,
    /// When snapshots are made: `save`; empty if never.
    pub save: Option<String>,
}

/// How many keys are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyCount {
    /// How many begin with our prefix, of those looked at.
    pub ours: u64,
    /// How many were looked at.
    pub looked_at: u64,
    /// How many there are in the database.
    pub total: u64,
}

/// What came of running a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRun {
    /// What it is called here.
    pub name: &'static str,
    /// What the server said instead of running it.
    pub refusal: Option<String>,
}

/// Why a server could not be looked at any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no connection.
    Unreachable(String),
    /// It does not let us in.
    LoginRefused(String),
    /// It answers everything with an error.
    Refusing(String),
    /// It does not answer, or not any more.
    Silent(String),
}

impl KeyCount {
    /// How many keys are ours in all, by the share of those looked at.
    pub fn estimate(&self) -> u64 {
        if self.is_whole() || self.looked_at == 0 {
            return self.ours;
        }
        let share = self.ours as f64 / self.looked_at as f64;
        (share * self.total as f64).round() as u64
    }

    /// Whether every key was looked at.
    pub fn is_whole(&self) -> bool {
        self.looked_at >= self.total
    }
}
