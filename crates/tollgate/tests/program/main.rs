//! The real program: what it serves, and what faults do to it.

mod bodies;
mod cluster;
mod commands;
mod crash;
mod credentials;
mod derived;
mod descriptors;
mod escaping;
mod examples;
mod first_start;
mod forward_auth;
mod gateway_floods;
mod gateway_guard;
mod gateway_guard_redirects;
mod gateway_keys;
mod gateway_marketplace;
mod gateway_websocket;
mod hostile_peers;
mod http2_floods;
mod keys;
mod log;
mod mailboxes;
mod other_programs;
mod policies;
mod quota_input;
mod reload;
mod restart;
mod shutdown;
mod slow_peers;
mod starting;
mod state_file;
mod together;
mod waiting;
mod why;

#[path = "../support/guarding/mod.rs"]
mod guarding;
#[path = "../support/mail/mod.rs"]
mod mail;
#[path = "../support/market/mod.rs"]
mod market;
#[path = "../support/market_rows/mod.rs"]
mod market_rows;
#[path = "../support/nodes/mod.rs"]
mod nodes;
#[path = "../support/outage/mod.rs"]
mod outage;
#[path = "../support/pages/mod.rs"]
mod pages;
#[path = "../support/program/mod.rs"]
mod program;
#[path = "../support/responder/mod.rs"]
mod responder;
#[path = "../support/server/mod.rs"]
mod server;
#[path = "../support/upstream/mod.rs"]
mod upstream;
