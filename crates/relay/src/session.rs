//! One SMTP session, pure: lines and answers in, replies and effects out. No input or output, no clock.

pub mod data;
pub mod headers;
