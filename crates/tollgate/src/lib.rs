//! The program: its configuration, its command line, and how it speaks to a running server.

pub mod cli;
pub mod client;
pub mod command;
pub mod config;
pub mod serve;
