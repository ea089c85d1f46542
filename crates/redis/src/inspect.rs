//! Inspects the servers of a store from outside: whether they can be used, their latency, and whether they
//! are configured to keep limits.
//!
//! It opens its own connections, so it works beside a running store and during an outage. It writes only to
//! keys that no counter uses; these expire soon and are deleted.

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

use crate::settings::{Address, Settings, Tls, Topology};

pub(crate) use commands::{acl_name, needs};
pub(crate) use gather::policy_of_info;
pub(crate) use judge::consequence_of_eviction;

pub use facts::{ClockOffset, Facts, KeyCount, Memory, Persistence, RoundTrip, ScriptRun};
use gather::Gatherer;

/// The result of an inspection.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Findings about the servers as a whole: Sentinels, the slots of a Cluster.
    pub findings: Vec<Finding>,
    /// Every server that has keys.
    pub servers: Vec<ServerReport>,
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerReport {
    pub address: Address,
    /// The facts that the server reports, and the measured ones.
    pub facts: Facts,
    /// The findings that follow from the facts.
    pub findings: Vec<Finding>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub grade: Grade,
    /// The subject, in a word.
    pub about: &'static str,
    /// The finding, as a sentence.
    pub message: String,
    /// The remedy, if there is one.
    pub remedy: Option<String>,
}

/// The severity of a finding.
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

    /// Weakens a promise.
    pub fn warning(about: &'static str, message: impl Into<String>) -> Self {
        Self { grade: Grade::Warning, ..Self::fine(about, message) }
    }

    /// Prevents the use of the store.
    pub fn problem(about: &'static str, message: impl Into<String>) -> Self {
        Self { grade: Grade::Problem, ..Self::fine(about, message) }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// Inspects the servers of a store. Every wait has a time-out. A check that fails is a finding. The servers'
/// clocks are compared with `clock`, this machine's.
pub async fn inspect(settings: &Settings, clock: &dyn Clock) -> Inspection {
    let tls = match settings.tls.as_ref().map(Tls::configuration).transpose() {
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
