//! Limits on requests in flight: the layer keeps a slot until the response has been sent.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tollgate_core::store::{Counter, HoldsOrder, Store};
use tollgate_core::{Clock, Policies, Policy, Rule, Span, Timestamp};
use tollgate_engine::{Engine, Leases, Parts};
use tollgate_store::faulty::{FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_tower::TollgateLayer;
use tower::{Layer, Service, ServiceExt};

/// A body of several frames that knows its last one.
struct Frames(VecDeque<&'static str>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|frame| Ok(Frame::data(Bytes::from(frame)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

/// An engine with one policy `p` of one limit for all.
struct Stage {
    clock: Arc<ManualClock>,
    engine: Arc<Engine>,
}

impl Stage {
    async fn new(limit: &str) -> Self {
        Self::over(limit, |memory| memory).await
    }

    async fn over<S: Store + 'static>(limit: &str, store: impl FnOnce(MemoryStore) -> S) -> Self {
        let rule = Arc::new(Rule::new("r", &[], vec![limit.parse().unwrap()]).unwrap());
        let policy = Policy::new("p".into(), vec![Arc::clone(&rule)], false);
        let policies = Policies::new(true, vec![rule], vec![policy]);
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
        let memory = || MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 1000);
        let parts = Parts { store: Arc::new(store(memory())), records: Arc::new(memory()), fallback: None };
        let engine = Arc::new(Engine::start(policies, parts).await.unwrap());
        Self { clock, engine }
    }

    fn layer(&self) -> TollgateLayer {
        TollgateLayer::new(Arc::clone(&self.engine), "p")
    }

    fn leases(&self) -> Arc<Leases> {
        Arc::new(Leases::new(Arc::clone(&self.engine), Arc::clone(&self.clock) as Arc<dyn Clock>))
    }

    async fn held(&self) -> usize {
        let pinned = self.engine.pin();
        let counter = Counter { plan: pinned.policies.rule("r").unwrap().plan_at("r"), key: "r" };
        self.engine.counters.holds(&counter, HoldsOrder::List).await.unwrap().holds.len()
    }
}

/// A service that answers in two frames, not at all, or with an error.
async fn serve(request: Request<String>) -> Result<Response<Frames>, &'static str> {
    match request.uri().path() {
        "/never" => pending().await,
        "/broken" => Err("broken"),
        _ => Ok(Response::new(Frames(["one", "two"].into()))),
    }
}

fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::new()).unwrap()
}

macro_rules! limited {
    ($layer:expr) => {
        $layer.layer(tower::service_fn(serve))
    };
}

macro_rules! ask {
    ($service:expr, $path:expr) => {
        $service.ready().await.unwrap().call(get($path)).await.unwrap()
    };
}

#[tokio::test]
async fn a_request_holds_its_place_until_its_answer_has_left() {
    let stage = Stage::new("2 at once").await;
    let mut service = limited!(stage.layer());
    let (mut one, two) = (ask!(service, "/"), ask!(service, "/"));
    assert_eq!((one.status().as_u16(), two.status().as_u16(), stage.held().await), (200, 200, 2));
    assert_eq!(ask!(service, "/").status(), 429);
    assert_eq!(one.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    assert_eq!((ask!(service, "/").status().as_u16(), stage.held().await), (429, 2), "a part has left");
    assert_eq!(one.frame().await.unwrap().unwrap().into_data().unwrap(), "two");
    assert_eq!(stage.held().await, 1, "all of it has left");
    drop(two);
    assert_eq!(stage.held().await, 0, "the client no longer wants it");
}

#[tokio::test]
async fn however_a_request_ends_its_place_is_free() {
    let stage = Stage::new("1 at once").await;
    let mut service = limited!(stage.layer());
    let mut never = Box::pin(service.ready().await.unwrap().call(get("/never")));
    poll_fn(|context| {
        assert!(never.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    assert_eq!(stage.held().await, 1);
    drop(never);
    assert_eq!(stage.held().await, 0, "the client went away");
    assert!(service.ready().await.unwrap().call(get("/broken")).await.is_err());
    assert_eq!(stage.held().await, 0, "the service failed");
}

#[tokio::test]
async fn a_client_with_one_request_at_a_time_is_never_refused() {
    let stage = Stage::new("1 at once").await;
    let mut service = limited!(stage.layer());
    for number in 0..100 {
        let answer = ask!(service, "/");
        assert_eq!(answer.status(), 200, "the {number}th");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "onetwo");
    }
}

#[tokio::test]
async fn a_hold_that_expires_needs_leases_that_renew_it() {
    let stage = Stage::new("1 at once for 30s").await;
    let answer = ask!(limited!(stage.layer()), "/");
    assert_eq!((answer.status().as_u16(), stage.held().await), (500, 0));
    let problem = match answer.into_body().collect().await {
        Ok(body) => String::from_utf8(body.to_bytes().to_vec()).unwrap(),
        Err(never) => panic!("{never}"),
    };
    assert!(problem.contains("TollgateLayer::leases"), "{problem}");
    let leases = stage.leases();
    let mut service = limited!(stage.layer().leases(Arc::clone(&leases)));
    let answer = ask!(service, "/");
    for _ in 0..20 {
        stage.clock.advance(Span::from_secs(10));
        leases.tend().await;
    }
    assert_eq!((ask!(service, "/").status().as_u16(), leases.meters().lost()), (429, 0), "it still comes");
    drop(answer);
    assert_eq!(ask!(service, "/").status(), 200);
}

#[tokio::test]
async fn a_remote_store_needs_leases_that_release_holds() {
    let stage = Stage::over("1 at once", |store| FaultyStore::over(Arc::new(store), |_| Meeting::Pass)).await;
    assert_eq!(ask!(limited!(stage.layer()), "/").status(), 500);
    let leases = stage.leases();
    let running = Arc::clone(&leases);
    let running = tokio::spawn(async move { running.run().await });
    let mut service = limited!(stage.layer().leases(leases));
    let answer = ask!(service, "/");
    assert_eq!((answer.status().as_u16(), ask!(service, "/").status().as_u16()), (200, 429));
    drop(answer);
    let freed = async {
        while stage.held().await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), freed).await.expect("it is released");
    for number in 0..100 {
        let answer = ask!(service, "/");
        assert_eq!(answer.status(), 200, "the {number}th");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "onetwo");
        assert_eq!(stage.held().await, 0, "the last of it waited until its place was free");
    }
    running.abort();
}
