//! An SMTP relay: it accepts mail under limits, keeps it in a durable queue, and hands it on under limits.
//!
//! The limits are rules of the engine like any others. Nothing about limiting is written a second time here.

pub mod acceptance;
pub mod accounts;
pub mod client;
pub mod direct;
pub mod dsn;
pub mod lanes;
pub mod limits;
pub mod message;
pub mod meters;
mod moment;
pub mod queue;
mod relay;
pub mod replies;
pub mod sender;
pub mod server;
pub mod session;
pub mod seven_bit;

pub use relay::{DirectSettings, Relay, RelayParts, RelaySettings, StartError};
