//! What a configuration may say, and how mistakes in it are reported.

mod arbitrary;
mod bad;
mod clashes;
mod clients;
mod count_rows;
mod count_when;
mod environment;
mod gateway;
mod gateway_guards;
mod good;
mod guards;
mod lists;
mod on_outage;
mod postfix;
mod postgres;
mod redis;
mod relay;
mod schema;
mod secrets;
mod shapes;
mod warnings;
mod whole_program;

#[path = "../support/program/mod.rs"]
mod program;
