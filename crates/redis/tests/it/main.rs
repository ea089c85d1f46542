//! The store on real Redis and Valkey servers.

mod bounds;
mod calls;
mod damage;
mod errors;
mod expiry;
mod failovers;
mod many_holds;
mod nonsense;
mod once;
mod pacing;
mod records;
mod secret;
mod stage;
mod tags;
mod time;
mod ways;
