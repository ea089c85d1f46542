//! The facts about a server: those that it reports, and the measured ones. Unknown facts are absent.

use std::time::Duration;

/// The facts about one server.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The time to connect.
    pub connected_in: Option<Duration>,
    /// The user that the inspection is logged in as.
    pub user: Option<String>,
    /// `redis` or `valkey`.
    pub flavour: Option<String>,
    /// Its version, as in `7.0.15`.
    pub version: Option<String>,
    /// `standalone`, `cluster` or `sentinel`.
    pub mode: Option<String>,
    /// `master` or `replica`.
    pub role: Option<String>,
    /// The number of its replicas.
    pub replicas: Option<u64>,
    /// The round-trip time.
    pub round_trip: Option<RoundTrip>,
    /// Its clock, compared with this machine's.
    pub clock: Option<ClockOffset>,
    /// Its memory, and what it does when that is full.
    pub memory: Option<Memory>,
    /// The data that survives a restart.
    pub persistence: Option<Persistence>,
    /// The number of tollgate's keys.
    pub keys: Option<KeyCount>,
    /// The result of each script.
    pub scripts: Vec<ScriptRun>,
    /// The number of commands that were tried one by one.
    pub tried: usize,
    /// The commands that this user may not run, in the form of an ACL.
    pub forbidden: Vec<String>,
    /// Whether this user may not use tollgate's keys.
    pub keys_forbidden: bool,
    /// The commands whose replies this user may not read: `CONFIG`, `INFO`.
    pub unread: Vec<&'static str>,
    /// Why the inspection stopped early.
    pub(super) trouble: Option<Trouble>,
}

/// The times of commands that do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The number of measurements.
    pub count: usize,
    /// The fastest.
    pub min: Duration,
    /// The one in the middle.
    pub median: Duration,
    /// The slowest.
    pub max: Duration,
}

/// The difference of a clock from this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// In microseconds; negative if it is behind.
    pub ahead_micros: i64,
    /// The error of that, in either direction.
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
    /// The number of keys that were evicted since the server started.
    pub evicted: Option<u64>,
}

/// The data that is written to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persistence {
    /// Whether the append-only log is on.
    pub append_only: Option<bool>,
    /// The interval at which the log is synced: `appendfsync`.
    pub fsync: Option<String>,
    /// When snapshots are made: `save`; empty means never.
    pub save: Option<String>,
}

/// The number of tollgate's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyCount {
    /// The number of sampled keys that have the prefix.
    pub ours: u64,
    /// The number of sampled keys.
    pub looked_at: u64,
    /// The number of keys in the database.
    pub total: u64,
}

/// The result of running a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRun {
    pub name: &'static str,
    /// The server's message, if it refused to run it.
    pub refusal: Option<String>,
}

/// Why an inspection stopped early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection failed.
    Unreachable(String),
    /// The login failed.
    LoginRefused(String),
    /// The server answers everything with an error.
    Refusing(String),
    /// The server does not answer, or stopped answering.
    Silent(String),
}

impl KeyCount {
    /// The estimated number of tollgate's keys, from the sample.
    pub fn estimate(&self) -> u64 {
        if self.is_whole() || self.looked_at == 0 {
            return self.ours;
        }
        let share = self.ours as f64 / self.looked_at as f64;
        (share * self.total as f64).round() as u64
    }

    /// Whether every key was sampled.
    pub fn is_whole(&self) -> bool {
        self.looked_at >= self.total
    }
}
