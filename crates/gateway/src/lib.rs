//! The gateway: a reverse proxy that enforces limits and forwards requests to upstreams.
//!
//! Absent on purpose: configuration files, which the program turns into [`settings`], and decisions, which
//! the engine makes.

mod alarm;
mod captcha;
mod connection;
mod date;
mod exchange;
mod flow;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod h1;
mod http2;
mod listen;
pub mod meter;
mod plan;
mod proxy;
pub mod route;
pub mod settings;
mod stream;
mod tls;
mod tunnel;
mod upstream;
mod worker;

pub use gateway::{Gateway, NeedsRestart, Parts, StartError};
pub use plan::BadSettings;
pub use settings::Settings;
