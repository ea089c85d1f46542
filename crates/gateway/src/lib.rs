//! The gateway: a reverse proxy that passes requests on to upstreams, within limits.
//!
//! Absent on purpose: configuration files (the program turns them into [`settings`]), and deciding,
//! which is the engine's.

pub mod settings;
