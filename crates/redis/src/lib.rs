//! Counters that several nodes share on Redis or Valkey.
//!
//! One script settles all charges of an attempt in one round trip, by the server's own clock. The contract
//! tests compare it with `Charges::settle`.

mod cluster;
mod dial;
mod fleet;
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
mod name;
mod offset;
mod pack;
mod pool;
mod redial;
mod request;
mod resp;
mod row;
mod script;
mod sentinel;
mod settings;
mod standing;
mod store;
mod wire;

pub use name::{CounterPart, NameMeaning};
pub use settings::{Address, Password, Settings, Tls, Topology, UrlError};
pub use store::RedisStore;
