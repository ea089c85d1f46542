//! The servers that tests start.

mod cluster;
mod front;
mod killed;
mod nonsense;
mod postgres;
mod proxy;
mod sentinel;
mod server;
