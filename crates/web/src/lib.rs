//! Reads the fields of rules from an HTTP request and writes decisions as HTTP responses. All HTTP doors
//! share it.
//!
//! It uses the types of the `http` crate. Absent on purpose: sockets, servers, clients, runtimes, and the
//! decisions themselves.

pub mod address;
pub mod answer;
pub mod correlation;
pub mod facts;
pub mod frame_watch;
pub mod identity;
pub mod json;
pub mod method;
pub mod path;
mod statuses;
pub mod words;

pub use address::TrustedProxies;
pub use answer::{AnswerSettings, Answers, Problem};
pub use correlation::Correlation;
pub use facts::{Aliases, Asked, Facts};
pub use frame_watch::{FrameFlood, FrameWatch};
pub use identity::{Credentials, Identity};
pub use statuses::Statuses;
