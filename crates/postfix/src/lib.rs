//! The Postfix policy service: `check_policy_service` requests in, one action for each of them out.
//!
//! [`Requests`] parses the protocol, without I/O. [`PolicyServer`] listens, bounds everything that a client can
//! grow, and asks the engine through its one entry point. Absent on purpose: deciding, and the action `OK`,
//! which would make Postfix skip the restrictions after the check.

mod action;
mod address;
mod asking;
mod meters;
mod request;
mod requests;
mod resent;
mod server;
mod socket_file;

pub use action::Action;
pub use address::PolicyAddress;
pub use asking::FIELDS;
pub use meters::PolicyMeters;
pub use request::{MOST_ATTRIBUTES, MOST_LINE, MOST_REQUEST, Malformed, Request};
pub use requests::Requests;
pub use server::{PolicyParts, PolicyServer, PolicySettings};
