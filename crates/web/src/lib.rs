//! The fields that rules read from an HTTP request, and decisions as HTTP answers: the part that every door
//! which speaks HTTP has in common.
//!
//! It knows the types of the `http` crate. Absent on purpose: sockets, servers, clients and runtimes,
//! and every rule of who may pass.

pub mod address;
pub mod answer;
pub mod correlation;
pub mod facts;
pub mod frame_watch;
pub mod host;
pub mod identity;
pub mod json;
pub mod method;
pub mod path;
pub mod words;

pub use address::TrustedProxies;
pub use answer::{AnswerSettings, Answers, Problem};
pub use correlation::Correlation;
pub use facts::{Aliases, Asked, Facts};
pub use frame_watch::{FrameFlood, FrameWatch};
pub use identity::{Credentials, Identity};
