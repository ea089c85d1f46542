//! The HTTP API and forward-auth without the program: roles, bodies, headers, hostile input.

mod acquire;
mod aliases;
mod answers;
mod asking;
mod bad_input;
mod bans;
mod check;
mod console;
mod count_when;
mod door;
mod foreign_tokens;
mod forward_auth;
mod forward_auth_dialects;
mod guards;
mod holds;
mod mail;
mod other_programs;
mod outage;
mod pages;
mod policies;
mod proxied;
mod refunds;
mod replay;
mod replay_waiting;
mod server;
mod tenants;
