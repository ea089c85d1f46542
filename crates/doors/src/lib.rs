//! Doors: each turns bytes into an attempt, and a decision into bytes.
//!
//! Absent on purpose: deciding. A door that decides anything itself is wrong.

pub mod http;
mod server;

pub use http::{
    AccessKey, AccessKeys, ForwardAuth, ForwardAuthSettings, HttpParts, KnownRoutes, LONGEST_WAIT, Live,
    MailTenant, Peer, Role, RouteInfo, router,
};
pub use server::HttpServer;
