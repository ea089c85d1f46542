//! Real servers for tests, and their failures: Redis and Valkey alone, as a Cluster and under Sentinel;
//! PostgreSQL and pgbouncer; nginx, Caddy and HAProxy; Postfix and `smtp-sink`. All of them use loopback
//! ports and their own directories. Also a proxy that delays, cuts and swallows, and servers that send
//! garbage.
//!
//! Everything here blocks, and panics if a test cannot go on. Each server stops when its value is dropped,
//! and also when the process that started it is killed (`guard.rs` says how). Only tests may use this crate.

mod alone;
mod binary;
mod certificates;
mod clock;
mod cluster;
mod front;
mod guard;
mod mail;
mod nonsense;
mod patience;
mod port;
mod postgres;
mod proxy;
mod reply;
mod sentinel;
mod server;
mod slot;
mod wire;

pub use alone::{alone, rerun};
pub use binary::{Flavour, redis_server, valkey_server};
pub use cluster::{Cluster, ClusterOptions, Migration, Node};
pub use front::{Front, FrontOptions};
pub use mail::{Postfix, Sink, Sunk};
pub use nonsense::{Kind, Nonsense};
pub use patience::{PATIENCE, pause, wait_until};
pub use port::Port;
pub use postgres::{Pgbouncer, Postgres};
pub use proxy::Proxy;
pub use reply::Reply;
pub use sentinel::{Sentinel, SentinelOptions};
pub use server::{Options, Server};
pub use slot::slot_of;
pub use wire::Wire;
