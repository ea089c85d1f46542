//! The real program: what it serves, and what faults do to it.

mod answers;
mod bans;
mod bodies;
mod client_certificates;
mod closing;
mod cluster;
mod cluster_mail;
mod commands;
mod count_rows;
mod count_rows_faults;
mod crash;
mod credentials;
mod derived;
mod descriptors;
mod escaping;
mod examples;
mod first_start;
mod forward_auth;
mod gateway_certificates;
mod gateway_closing;
mod gateway_floods;
mod gateway_guard;
mod gateway_guard_many;
mod gateway_guard_redirects;
mod gateway_holding;
mod gateway_keys;
mod gateway_marketplace;
mod gateway_routes;
mod gateway_together;
mod gateway_websocket;
mod guard_hour;
mod guard_webhooks;
mod guards;
mod hostile_peers;
mod http2_floods;
mod keys;
mod killed;
mod log;
mod mail_api;
mod mail_doors;
mod mail_levels;
mod mail_setups;
mod mailboxes;
mod metrics;
mod outbound;
mod overrides;
mod policies;
mod postfix;
mod postgres;
mod postgres_outage;
mod queue_dir;
mod quota_input;
mod quotas;
mod redis_faults;
mod redis_nodes;
mod redis_outage;
mod redis_policies;
mod redis_start;
mod relay;
mod relay_doors;
mod relay_killed;
mod relay_large;
mod relay_refusals;
mod relay_reports;
mod relay_stores;
mod reload;
mod restart;
mod secret_keys;
mod sharing_nodes;
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
