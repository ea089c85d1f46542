//! Doors: each turns bytes into an attempt, and a decision into bytes.
//!
//! Absent on purpose: deciding. A door that decides anything itself is wrong.

pub mod http;

pub use http::{
    AccessKey, AccessKeys, ForwardAuth, ForwardAuthSettings, HttpParts, KnownRoutes, LONGEST_WAIT, Live,
    MailTenant, Patience, Peer, Role, RouteInfo, TooLate, is_upload, router,
};
