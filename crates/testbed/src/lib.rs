//! Real servers for tests, and what goes wrong with them: Redis and Valkey alone, as a Cluster and
//! under Sentinel; PostgreSQL and pgbouncer; nginx, Caddy and HAProxy; Postfix and `smtp-sink`; all on ports
//! of loopback and in directories of their own. A proxy that delays, cuts and swallows; and peers that talk
//! nonsense.
//!
//! Everything here blocks, and panics when a test cannot go on. Whatever was started ends when its
//! value is dropped, and also when the process that started it is killed (`guard.rs` says how).
//! Only tests may use this crate.

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
