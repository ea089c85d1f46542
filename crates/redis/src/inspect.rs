//! Looks at the servers of a store from outside: whether they can be used, how far away they are, and
//! whether they are set up to keep limits.
//!
//! It opens lines of its own, so it works beside a running store and while the store does not. It
//! writes only under names that no counter has, which expire in a moment and are deleted.

mod arrangement;
mod commands;
mod facts;
mod gather;
mod judge;
mod probe;
mod talk;
mod words;

use std::sync::Arc;

use tollgate_core::Clock;

use crate::settings::{Address, Settings, Topology};
use crate::tls;

pub(crate) use commands::{acl_name, needs};
pub(crate) use gather::policy_of_info;
pub(crate) use judge::what_eviction_means;

pub use facts::{ClockOffset, Facts, KeyCount, Memory, Persistence, RoundTrip, ScriptRun};
use gather::Gatherer;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// What concerns the servers as a whole: Sentinels, the slots of a Cluster.
    pub findings: Vec<Finding>,
    /// Every server that has keys.
    pub servers: Vec<ServerReport>,
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// Where it is.
    pub address: Address,
    /// What it says of itself, and what was measured.
    pub facts: Facts,
    /// What that means.
    pub findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How good or bad it is.
    pub grade: Grade,
    /// What was looked at, in a word.
    pub about: &'static str,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// It works, but not as well as promised.
    Warning,
    /// It does not work.
    Problem,
}

impl Finding {
    /// As it should be.
    pub fn fine(about: &'static str, message: impl Into<String>) -> Self {
        Self { grade: Grade::Fine, about, message: message.into(), remedy: None }
    }

    /// Worth knowing.
    pub fn note(about: &'static str, message: impl Into<String>) -> Self {
        Self { grade: Grade::Note, ..Self::fine(about, message) }
    }

    /// Something that makes promises weaker.
    pub fn warning(about: &'static str, message: impl Into<String>) -> Self {
        Self { grade: Grade::Warning, ..Self::fine(about, message) }
    }

    /// Something that keeps the store from being used.
    pub fn problem(about: &'static str, message: impl Into<String>) -> Self {
        Self { grade: Grade::Problem, ..Self::fine(about, message) }
    }

    /// With what to do about it.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// Looks at the servers of a store. Nothing is waited for without end; what cannot be looked at is a
/// finding. `clock` is this machine's, which the servers' are compared with.
pub async fn inspect(settings: &Settings, clock: &dyn Clock) -> Inspection {
    let tls = match settings.tls.as_ref().map(tls::configuration).transpose() {
        Ok(tls) => tls,
        Err(reason) => {
            let finding = Finding::problem("tls", format!("TLS cannot be set up: {reason}"))
                .remedy("correct `tls_ca`: it names a file with the authority's certificate as PEM");
            return Inspection { findings: vec![finding], servers: Vec::new() };
        }
    };
    let gatherer = Gatherer::new(Arc::new(settings.clone()), tls, clock);
    match &settings.topology {
        Topology::Single(address) => {
            let servers = vec![gatherer.report(address, None).await];
            Inspection { findings: Vec::new(), servers }
        }
        Topology::Sentinel { sentinels, service } => {
            arrangement::sentinels(&gatherer, sentinels, service).await
        }
        Topology::Cluster { seeds } => arrangement::cluster(&gatherer, seeds).await,
    }
}
