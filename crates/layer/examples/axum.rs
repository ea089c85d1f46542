//! An axum service with limits: `cargo run -p tollgate-tower --example axum`, then
//! `curl -i http://127.0.0.1:3000/` a few times.
//!
//! Each client may send ten requests a second, with a burst of thirty. The login counts only failed attempts:
//! five a minute.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use tollgate_core::{Policies, Policy, Rule};
use tollgate_engine::{Engine, Parts};
use tollgate_store::{MemoryStore, SystemClock};
use tollgate_tower::{Statuses, TollgateLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Arc::new(Rule::new("client", &["ip"], vec!["10/s burst 30".parse()?])?);
    let mut login = Rule::new("login", &["ip"], vec!["5/min".parse()?])?;
    login.count_when = Some("[401, 403]".parse::<Statuses>()?.classes());
    let login = Arc::new(login);
    let policies = Policies::new(
        true,
        vec![Arc::clone(&client), Arc::clone(&login)],
        vec![
            Policy::new("api".into(), vec![Arc::clone(&client)], false),
            Policy::new("login".into(), vec![client, login], false),
        ],
    );
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 1_000_000));
    let parts = Parts { store: store.clone(), records: store, fallback: None };
    let engine = Arc::new(Engine::start(policies, parts).await?);

    let limited = |policy: &str| {
        TollgateLayer::new(Arc::clone(&engine), policy)
            .peer(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()))
    };
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }).layer(limited("api")))
        .route("/login", post(log_in).layer(limited("login")));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listens on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn log_in(headers: HeaderMap) -> StatusCode {
    let right = headers.get("x-password").is_some_and(|password| password == "open sesame");
    if right { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED }
}
