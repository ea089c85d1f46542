//! Replays of logs.

mod bad_input;
mod deciding;
mod formats;
mod support;
