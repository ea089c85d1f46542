//! Counters in memory, with or without a file.
//!
//! Stores in this process call [`tollgate_core::Charges::settle`] under locks taken in one order.
//! Absent on purpose: policies, verdicts, and all handling of outages.

pub mod clock;
#[cfg(feature = "testing")]
pub mod faulty;
pub mod file;
pub mod memory;

pub use clock::{ManualClock, SteadyClock, SystemClock};
pub use file::FileStore;
pub use memory::MemoryStore;
