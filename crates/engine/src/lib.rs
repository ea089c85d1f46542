//! Decides attempts: finds the policy, calls the store, evaluates the reply, and records the decision for
//! operators.
//!
//! The engine gets an `Arc<dyn Store>` and does not know its type. Absent on purpose: protocols,
//! configuration files, and clocks that decide anything. The store owns time.

// Every door, and programs through `tollgate-tower`, use this API.
#![warn(missing_docs)]

pub mod account_records;
pub mod admit;
mod banning;
mod binary;
pub mod breaker;
mod breaker_gate;
pub mod calendar;
mod condition;
pub mod counters;
pub mod decision_token;
mod denied;
pub mod engine;
mod followed;
pub mod guard;
pub mod journal;
pub mod leases;
pub mod lists;
pub mod live_config;
pub mod log_limiter;
pub mod meter;
mod named_records;
pub mod nearest;
pub mod nodes;
mod null_sender;
pub mod observer;
mod owned_attempt;
pub mod pacer;
mod pauses;
pub mod ranking;
pub mod rates;
pub mod receipt;
mod retract;
mod retry;
pub mod rows;
pub mod runtime_config;
pub mod session;
pub mod shared_store;
pub mod taken;
mod tend;
mod ticket;

pub use admit::{Admission, Admissions, Admit, NotAdmitted, Pinned, Terms};
pub use counters::Counters;
pub use engine::{Engine, Fault, Parts};
pub use guard::{Ending, Finished, Guards, Notice};
pub use leases::{Lease, Leases};
pub use lists::{ListFault, LiveLists, Wish};
pub use live_config::{ChangeFault, LiveConfig, Snapshot};
pub use log_limiter::PacedLog;
pub use null_sender::NullSender;
pub use observer::Observer;
pub use pacer::{Ask, Pacer, PacerOptions, Turns};
pub use shared_store::{Fallback, Health};
pub use taken::Taken;
