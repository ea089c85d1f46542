//! The layer around a real gRPC server: tonic's client reads a refusal as a status of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use tokio::net::TcpListener;
use tollgate_core::{Policies, Policy, Rule, Timestamp};
use tollgate_engine::{Engine, Parts};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_tower::TollgateLayer;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn a_tonic_service_is_limited_and_its_client_is_told_in_its_own_words() {
    let rule = Arc::new(Rule::new("calls", &["path"], vec!["2/min".parse().unwrap()]).unwrap());
    let policies = Policies::new(true, vec![rule.clone()], vec![Policy::new("p".into(), vec![rule], false)]);
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let store = Arc::new(MemoryStore::new(clock, 1000));
    let parts = Parts { store: store.clone(), records: store, fallback: None };
    let engine = Arc::new(Engine::start(policies, parts).await.unwrap());

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(TollgateLayer::new(engine, "p")).add_service(health);
    let serving = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    for _ in 0..2 {
        let answer = client.check(HealthCheckRequest::default()).await.unwrap();
        assert_eq!(answer.metadata().get("x-ratelimit-limit").unwrap(), "2");
    }
    let refused = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "60");
    serving.abort();
}
