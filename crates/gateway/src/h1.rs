//! HTTP/1: heads and bodies as bytes, on both sides of the gateway.
//!
//! It is written here rather than taken from a library since a gateway must see what libraries hide
//! from those who use them: which lines said how long a body is, and how lines ended. Where two
//! readers could disagree on where a request ends, the next one can be smuggled past a limit.

pub(crate) mod client;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod lines;
pub(crate) mod outbox;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod side;
pub(crate) mod write;
