//! Doors: each turns bytes into an attempt, and a decision into bytes.
//!
//! Absent on purpose: every rule of who may pass. A door that weighs anything itself is wrong.

pub mod http;

pub use http::{
    AccessKey, AccessKeys, ForwardAuth, ForwardAuthSettings, HttpParts, KnownRoutes, LONGEST_WAIT, Patience,
    Peer, Role, RouteInfo, TooLate, router,
};
