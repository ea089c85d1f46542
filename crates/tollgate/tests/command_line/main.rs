//! The commands of the real program.

mod bans;
mod bench;
mod commands;
mod doctor;
mod doctor_file;
mod faults;
mod help_and_manual;
mod import_bad;
mod import_foreign;
mod import_gateway;
mod import_program;
mod import_sources;
mod import_sources_http;
mod policies;
mod replay_program;
mod seeing;
mod terminal;
mod tls;
mod top;

#[path = "../support/imported/mod.rs"]
mod imported;
#[path = "../support/patient/mod.rs"]
mod patient;
#[path = "../support/program/mod.rs"]
mod program;
#[path = "../support/responder/mod.rs"]
mod responder;
