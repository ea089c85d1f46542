//! HTTP requests to fields, and decisions to responses.

mod address;
mod answers;
mod api_keys;
mod bodies;
mod facts;
mod host;
mod other_programs;
mod outage;
mod path;
mod problems;
mod statuses;
mod support;
mod templates;
mod tokens;
