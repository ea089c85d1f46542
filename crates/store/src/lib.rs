//! Where counters live: in memory, or in memory with a file beside it.
//!
//! Stores in this process call [`tollgate_core::Charges::settle`] under locks taken in one order.
//! Absent on purpose: policies, verdicts, and every kind of outage handling.

pub mod clock;
pub mod file;
pub mod memory;

pub use clock::{ManualClock, SteadyClock, SystemClock};
pub use file::FileStore;
pub use memory::MemoryStore;
