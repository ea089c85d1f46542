//! HTTP/1: heads and bodies as bytes, on both sides of the gateway.
//!
//! The gateway reads HTTP/1 itself because libraries hide what it must see: which header lines gave the
//! length of a body, and how each line ended. If the gateway and the upstream disagree on where a request
//! ends, a client can smuggle the next request past a limit.

pub(crate) mod client;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod lines;
pub(crate) mod outbox;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod side;
pub(crate) mod write;
