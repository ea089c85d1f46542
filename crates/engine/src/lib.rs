//! Decides attempts: finds the policy, calls the store, evaluates the reply, and records the decision for
//! operators.
//!
//! The engine gets an `Arc<dyn Store>` and does not know its type. Absent on purpose: protocols,
//! configuration files, and clocks that decide anything. The store owns time.

mod account_records;
pub mod admit;
mod banning;
pub mod breaker;
mod breaker_gate;
pub mod calendar;
mod condition;
mod denied;
pub mod engine;
mod followed;
pub mod guard;
pub mod journal;
pub mod leases;
pub mod lists;
pub mod log_limiter;
pub mod meter;
mod named_records;
mod owned_attempt;
pub mod pacer;
mod pauses;

pub mod ranking;
pub mod receipt;
mod retract;
mod retry;
pub mod rows;
pub mod runtime_config;
pub mod shared_store;
pub mod taken;
mod tend;
mod ticket;

pub use admit::{Admission, Admissions, Admit, NotAdmitted, Pinned, Terms};
pub use engine::{ChangeFault, Engine, Fault, Parts, Snapshot};
pub use guard::{Begun, Ending, Finished, Notice};
pub use leases::{Lease, Leases};
pub use lists::{ListFault, Wish};
pub use log_limiter::PacedLog;
pub use pacer::{Ask, Pacer, PacerOptions};

pub use shared_store::{Fallback, Health};
pub use taken::Taken;
