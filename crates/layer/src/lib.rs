//! Rate limits as a [`tower`] layer, for axum, hyper, tonic and whatever else is a service of HTTP
//! requests. The engine is inside of the process: nothing is asked over a network unless its store is.
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
//! What rules can count by: `route` (the name given to the layer), `ip`, `method`, `path`, `host`,
//! `header.NAME`, `cookie.NAME`, `query.NAME`, and `subject`, `claim.NAME`, `api_key` and `consumer`
//! once the layer is told how clients prove who they are: by [`TollgateLayer::credentials`], or by an
//! [`Identity`](tollgate_web::Identity) that an earlier layer puts into the extensions of the request.
//!
//! A request that passes has the rate-limit headers on its answer. One that does not is answered with
//! 429 and a problem (RFC 9457), or, if it is gRPC, with the status `RESOURCE_EXHAUSTED`; the service
//! never sees it. Rules with `count_when` count what the service answers.
//!
//! Rules with `at once` hold a place from the decision until the last of the answer is handed over,
//! or the request or its answer is dropped: see [`TollgateLayer::leases`]. A connection that goes over
//! to another protocol is not followed: its place is free once the answer that says so has left.

mod answering;
mod body;
mod layer;
mod passing;
mod service;

pub use answering::Answering;
pub use body::Held;
pub use layer::TollgateLayer;
pub use service::Tollgate;
