//! The program: its configuration, its command line, and its client.

pub mod cli;
pub mod client;
pub mod command;
pub mod config;
#[doc(hidden)]
pub mod fuzzing;
mod printable;
pub mod serve;
