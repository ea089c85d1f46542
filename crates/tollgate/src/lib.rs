//! The program: its configuration and its command line.

pub mod cli;
pub mod config;
