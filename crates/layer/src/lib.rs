//! Rate limits as a [`tower`] layer, for axum, hyper, tonic and other services of HTTP requests. The engine
//! runs in the process; only a shared store needs the network.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//!
//! use axum::extract::ConnectInfo;
//! use axum::{Router, routing::get};
//! use tollgate_core::{Policies, Policy, Rule};
//! use tollgate_engine::{Engine, Parts};
//! use tollgate_store::{MemoryStore, SystemClock};
//! use tollgate_tower::TollgateLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Arc::new(Rule::new("client", &["ip"], vec!["10/s burst 50".parse()?])?);
//! let api = Policy::new("api".into(), vec![Arc::clone(&client)], false);
//! let policies = Policies::new(true, vec![client], vec![api]);
//!
//! let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 1_000_000));
//! let parts = Parts { store: store.clone(), records: store, fallback: None };
//! let engine = Arc::new(Engine::start(policies, parts).await?);
//!
//! let limited = TollgateLayer::new(engine, "api").peer(|request| {
//!     request.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
//! });
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limited);
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! Rules can count by `route` (the name given to the layer), `ip`, `method`, `path`, `host`,
//! `header.NAME`, `cookie.NAME`, `query.NAME`, and `subject`, `claim.NAME`, `api_key` and `consumer`
//! if the layer knows how clients prove who they are: by [`TollgateLayer::credentials`], or by an
//! [`Identity`](tollgate_web::Identity) that an earlier layer puts into the extensions of the request.
//!
//! The answer to an allowed request has the rate-limit headers. A denied request gets 429 and a problem
//! (RFC 9457), or, if it is gRPC, the status `RESOURCE_EXHAUSTED`; the service never sees it. Rules with
//! `count_when` count by the status that the service answers with.
//!
//! Rules with `at once` hold a slot from the decision until the end of the response, or until the request or
//! its response is dropped: see [`TollgateLayer::leases`]. An upgraded connection is not followed: its slot
//! is free once the response that upgrades it has been sent.

// Programs use this API.
#![warn(missing_docs)]

mod answering;
mod body;
mod layer;
mod passing;
mod service;

pub use answering::Answering;
pub use body::Held;
pub use layer::TollgateLayer;
pub use service::Tollgate;
pub use tollgate_web::Statuses;
