//! The Postfix policy service.

mod protocol;
mod serving;
