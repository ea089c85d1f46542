//! The gateway, forward-auth and the layer answer missing and wrong credentials alike: the same status, the
//! same headers that matter and the same problem.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::program::{self, Home};
use crate::upstream::Upstream;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tollgate::config::{self, Format};
use tollgate_engine::{Engine, Parts};
use tollgate_store::{MemoryStore, SystemClock};
use tollgate_tower::TollgateLayer;
use tower::{Layer, ServiceExt, service_fn};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn config(upstream: &Upstream, clients: &str) -> String {
    format!(
        "
store: memory
rules: {{ caller: {{ by: consumer, limits: 100/hour }} }}
policies: {{ web: [caller] }}
clients: {{ {clients} }}
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ shop: {} }}
  routes: {{ all: {{ upstream: shop, policy: web }} }}
",
        upstream.address
    )
}

/// What all doors must say alike.
#[derive(Debug, PartialEq)]
struct Said {
    status: u16,
    asks_for: Option<String>,
    content_type: Option<String>,
    problem: Value,
}

impl Said {
    fn new(status: u16, header: impl Fn(&str) -> Option<String>, body: &[u8]) -> Self {
        let mut problem: Value = serde_json::from_slice(body).unwrap();
        // Each answer has an id of its own.
        problem.as_object_mut().unwrap().remove("correlationId");
        Self { status, asks_for: header("www-authenticate"), content_type: header("content-type"), problem }
    }

    fn over(reply: &program::Reply) -> Self {
        let header = |name: &str| reply.header(name).map(str::to_owned);
        Self::new(reply.status, header, &reply.body)
    }
}

/// What the layer says, with the same configuration.
fn by_layer(text: &str, headers: &[(&str, &str)]) -> Said {
    let environment =
        [("KEY".to_owned(), "key-0123456789abcdef".to_owned()), ("SECRET".to_owned(), SECRET.to_owned())];
    let config = config::load_str(text, Format::Yaml, "t.yaml", environment.into_iter()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 1_000));
        let parts = Parts { store: store.clone(), records: store, fallback: None };
        let engine = Arc::new(Engine::start(config.policies, parts).await.unwrap());
        let layer = TollgateLayer::new(engine, "web")
            .credentials(config.clients.credentials)
            .fields(config.clients.aliases)
            .answers(config.answers);
        let inner =
            service_fn(|_| async { Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty())) });
        let mut request = Request::get("/").body(Body::empty()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let answer = layer.layer(inner).oneshot(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let header = |name: &str| Some(parts.headers.get(name)?.to_str().unwrap().to_owned());
        let body = body.collect().await.unwrap_or_else(|_| panic!("a body")).to_bytes();
        Said::new(parts.status.as_u16(), header, &body)
    })
}

#[test]
fn three_doors_answer_missing_and_wrong_credentials_alike() {
    let upstream = Upstream::start();
    let keys = "api_keys: { keys: [{ name: laptop, consumer: ada, token_env: KEY }] }";
    let tokens = "tokens: { secret_env: SECRET }";
    for clients in [keys.to_owned(), format!("{keys}, {tokens}")] {
        let text = config(&upstream, &clients);
        let home = Home::with(&text).variable("KEY", "key-0123456789abcdef").variable("SECRET", SECRET);
        let server = home.start();
        let wrong: [&[(&str, &str)]; 5] = [
            &[],
            &[("x-api-key", "wrong")],
            &[("x-api-key", "key-0123456789abcdef"), ("x-api-key", "key-0123456789abcdef")],
            &[("authorization", "Bearer no-token")],
            &[("authorization", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJ0ZW5hbnQiOiJ4In0.AAAA")],
        ];
        for headers in wrong {
            let gateway = Said::over(&server.gateway().ask("GET", "/", headers, None));
            let told = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];
            let told: Vec<_> = told.into_iter().chain(headers.iter().copied()).collect();
            let path = "/api/v1/forward-auth/web";
            let forward_auth = Said::over(&server.connect().ask("GET", path, &told, None));
            assert_eq!(gateway.status, 401, "{headers:?}: {gateway:?}");
            assert_eq!(gateway.asks_for.is_some(), clients.contains("tokens"), "{headers:?}: {gateway:?}");
            assert_eq!(gateway, forward_auth, "gateway and forward-auth, {headers:?}");
            assert_eq!(gateway, by_layer(&text, headers), "gateway and layer, {headers:?}");
        }
    }
}
