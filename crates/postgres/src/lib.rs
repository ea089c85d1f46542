//! Counters that several nodes share on PostgreSQL.
//!
//! PostgreSQL stores the counters; this process decides. A transaction locks the counters of an attempt in a
//! fixed order and loads them, `Charges::settle` decides, and the same transaction writes what changed.

mod arguments;
mod codec;
mod connection;
mod counter;
mod database;
mod fault;
pub mod inspect;
mod lanes;
mod load;
mod name;
mod pool;
mod redial;
mod reply_bound;
pub mod rows;
mod schema;
mod settings;
mod store;
mod transaction;
mod work;
mod write;

pub use rows::Databases;
pub use settings::{Password, Settings, Tls, UrlError};
pub use store::PostgresStore;
