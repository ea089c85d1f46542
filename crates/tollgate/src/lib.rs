//! The program: its configuration, its command line, and how it speaks to a running server.

pub mod cli;
pub mod client;
pub mod command;
pub mod config;
mod printable;
pub mod serve;
