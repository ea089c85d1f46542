//! Decides attempts: finds the policy, asks the store, weighs the answer, and keeps what people need
//! to see why.
//!
//! The engine gets an `Arc<dyn Store>`; which one it is, it does not know. Absent on purpose:
//! protocols, configuration files, and clocks that decide anything: the store owns time.

mod banning;
pub mod books;
pub mod breaker;
pub mod calendar;
mod condition;
mod denied;
pub mod engine;
mod gate;
pub mod guard;
pub mod journal;
pub mod leases;
pub mod lists;
pub mod meter;
pub mod pacer;
mod pauses;
pub mod pending;
pub mod ranking;
pub mod receipt;
mod retract;
pub mod shared;
mod tend;
mod ticket;
pub mod trickle;

pub use engine::{ChangeFault, Engine, Fault, Parts, Snapshot};
pub use guard::{Begun, Ending, Finished, Notice};
pub use leases::{Lease, Leases};
pub use lists::{ListFault, Wish};
pub use pacer::{Ask, Pacer, PacerOptions};
pub use pending::Pending;
pub use shared::{Fallback, Health};
pub use trickle::LogTrickle;
