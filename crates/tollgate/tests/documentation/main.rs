//! The pages, the examples and the source itself: what they say is true.

mod blocks;
mod coming_from_metrics;
mod coming_from_rows;
mod content;
mod covered;
mod examples;
mod failures;
mod front_page;
mod inline;
mod installing;
mod log_lines;
mod metrics;
mod monitoring;
mod packaging;
mod prometheus;
mod python;
mod redis;
mod shown;
mod stores;
mod tidy;
mod transcript;

#[path = "../support/coming_from/mod.rs"]
mod coming_from;
#[path = "../support/mail/mod.rs"]
mod mail;
#[path = "../support/nodes/mod.rs"]
mod nodes;
#[path = "../support/pages/mod.rs"]
mod pages;
#[path = "../support/program/mod.rs"]
mod program;
#[path = "../support/server/mod.rs"]
mod server;
#[path = "../support/upstream/mod.rs"]
mod upstream;
