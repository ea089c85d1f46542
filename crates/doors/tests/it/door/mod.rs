//! The real router over a store in memory and a manual clock. Every reply is checked against the schema in
//! the OpenAPI document.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(unreachable_pub, reason = "a module of tests is seen by its file alone")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_core::key::FieldKind;
use tollgate_core::store::{Answer, Forget};
use tollgate_core::versioned_map::{Changes, Edit, Namespace};
use tollgate_core::{
    Deferral, Field, OnExceed, OnOutage, Plan, Policies, Policy, Records, Rule, Span, Store, Timestamp,
};
use tollgate_doors::{AccessKey, AccessKeys, ForwardAuth, HttpParts, Live, Peer, Role, RouteInfo, router};
use tollgate_engine::{Admissions, Engine, Fallback, Leases, Pacer, PacerOptions, Parts};
use tollgate_relay::Relay;
use tollgate_store::faulty::{Call, FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};
use tower::ServiceExt;

/// 2026-01-15T10:00:00Z: the start of every test.
pub const START: u64 = 1_768_471_200;

/// The address of the peer, unless a test uses a real server.
pub const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// A router and its parts.
pub struct Door {
    pub router: Router,
    pub clock: Arc<ManualClock>,
    pub engine: Arc<Engine>,
    pub pacer: Pacer,
    pub keys: Arc<AccessKeys>,
    pub records: Arc<Notebook>,
    pub reloads: Arc<AtomicUsize>,
    pub forward_auth: Arc<ForwardAuth>,
    pub live: Arc<Live>,
}

/// A complete reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

/// Records in memory, with the same secret for every door.
pub struct Notebook(MemoryStore);

impl Door {
    /// The records of the run-time configuration.
    pub fn recorded(&self) -> BTreeMap<String, Vec<u8>> {
        let Answer::Ready(Some(Ok(changes))) = self.records.changes(Namespace::Config, None) else {
            unreachable!("records in memory answer at once")
        };
        changes.entries.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    pub fn open() -> Self {
        Self::with(policies(), Vec::new(), StoreKind::Memory)
    }

    pub fn guarded() -> Self {
        let key = |name: &str, role| AccessKey {
            name: name.into(),
            role,
            hash: Sha256::digest(name).into(),
            tenant: None,
        };
        let keys = vec![key("checker", Role::Check), key("reader", Role::Read), key("boss", Role::Admin)];
        Self::with(policies(), keys, StoreKind::Memory)
    }

    pub fn without_store() -> Self {
        Self::with(policies(), Vec::new(), StoreKind::Gone)
    }

    pub fn with(policies: Policies, keys: Vec<AccessKey>, kind: StoreKind) -> Self {
        Self::with_relay(policies, keys, kind, None)
    }

    /// With what makes a relay of the door's engine and clock.
    pub fn with_relay(
        policies: Policies,
        keys: Vec<AccessKey>,
        kind: StoreKind,
        relay: Option<&dyn Fn(Admissions, Arc<ManualClock>) -> Arc<Relay>>,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START * 1_000_000)));
        let records = Arc::new(Notebook(MemoryStore::new(Arc::clone(&clock) as _, 1)));
        let store: Arc<dyn Store> = match kind {
            StoreKind::Memory => Arc::new(MemoryStore::new(Arc::clone(&clock) as _, 1_000_000)),
            StoreKind::Gone | StoreKind::Lost => {
                Arc::new(FaultyStore::over(forgotten(&clock), |call| match call {
                    // The engine starts only with a store of this process that answers.
                    Call::Probe => Meeting::Pass,
                    _ => Meeting::unreachable(),
                }))
            }
            StoreKind::Forgetful => Arc::new(FaultyStore::over(forgotten(&clock), |call| match call {
                Call::Refund | Call::Probe => Meeting::Pass,
                _ => Meeting::unreachable(),
            })),
        };
        let fallback = matches!(kind, StoreKind::Lost).then(|| Fallback {
            store: Arc::new(MemoryStore::new(Arc::clone(&clock) as _, 1_000_000)),
            clock: Arc::clone(&clock) as _,
            probe_every: Span::from_secs(10),
        });
        let engine = Arc::new(start(policies, store, Arc::clone(&records), fallback));
        let reloads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reloads);
        let reload = Arc::new(move || match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec!["listen".to_owned()]),
            _ => Err("rules.sender.limits: `100/hou`, character 5: a period is …".to_owned()),
        });
        let keys = Arc::new(AccessKeys::new(keys));
        let forward_auth = Arc::<ForwardAuth>::default();
        let pacer = Pacer::new(Arc::clone(&engine), PacerOptions::default());
        let admissions = Admissions {
            engine: Arc::clone(&engine),
            pacer: None,
            leases: Arc::new(Leases::new(Arc::clone(&engine), Arc::clone(&clock) as _)),
        };
        let relay = relay.map(|relay| relay(admissions.clone(), Arc::clone(&clock)));
        let live = Live::new(Arc::clone(&engine), pacer.clone(), relay.clone(), Arc::clone(&clock) as _);
        let live = Arc::new(live);
        let parts = HttpParts {
            admissions,
            pacer: pacer.clone(),
            keys: Arc::clone(&keys),
            reload,
            routes: Arc::new(known_routes),
            forward_auth: Arc::clone(&forward_auth),
            relay,
            live: Arc::clone(&live),
            clock: Arc::clone(&clock) as _,
            registry: Registry::default(),
        };
        Self { router: router(parts), clock, engine, pacer, keys, records, reloads, forward_auth, live }
    }

    pub fn advance(&self, secs: u64) {
        self.clock.advance(Span::from_secs(secs));
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], Vec::new()).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, &[], body.to_string().into_bytes()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(Method::PUT, path, &[], body.to_string().into_bytes()).await
    }

    /// Asks for a decision.
    pub async fn check(&self, policy: &str, fields: Value) -> Reply {
        self.post("/api/v1/check", json!({ "policy": policy, "fields": fields })).await
    }

    /// Sends any request, and checks the reply against the document.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
        let mut request = Request::builder().method(method.clone()).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let reply = self.answer(request.body(Body::from(body)).unwrap()).await;
        assert_promised(self, &method, path, &reply).await;
        reply
    }

    pub async fn answer(&self, mut request: Request<Body>) -> Reply {
        request.extensions_mut().insert(Peer::new(PEER));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Reply { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    pub async fn document(&self) -> Value {
        let request = Request::builder().uri("/api/v1/openapi.json").body(Body::empty()).unwrap();
        self.answer(request).await.json()
    }
}

/// Counters that were forgotten just now, so that every refund is too late.
fn forgotten(clock: &Arc<ManualClock>) -> Arc<MemoryStore> {
    let store = MemoryStore::new(Arc::clone(clock) as _, 1_000);
    assert!(matches!(store.forget(Forget::All), Answer::Ready(Some(Ok(())))));
    Arc::new(store)
}

pub enum StoreKind {
    Memory,
    Gone,
    Forgetful,
    /// A shared store that is down: counters of this process replace it.
    Lost,
}

/// An engine over a store whose answers are ready at once.
pub fn start(
    policies: Policies,
    store: Arc<dyn Store>,
    records: Arc<Notebook>,
    fallback: Option<Fallback>,
) -> Engine {
    let starting = Box::pin(Engine::start(policies, Parts { store, records, fallback }));
    let mut starting = starting;
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match starting.as_mut().poll(&mut context) {
        std::task::Poll::Ready(engine) => engine.unwrap(),
        std::task::Poll::Pending => unreachable!("records in memory answer at once"),
    }
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The headers with this prefix as `name: value`, sorted.
    pub fn headers_like(&self, prefix: &str) -> Vec<String> {
        let like = self.headers.iter().filter(|(name, _)| name.as_str().starts_with(prefix));
        let mut lines: Vec<String> =
            like.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    /// The detail of a problem.
    pub fn detail(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        self.json()["detail"].as_str().unwrap().to_owned()
    }

    /// The body without generated values.
    pub fn settled(&self) -> Value {
        let mut body = self.json();
        for made_up in ["receipt", "correlationId"] {
            if let Some(value) = body.get_mut(made_up) {
                assert!(value.as_str().is_some_and(|text| !text.is_empty()));
                *value = json!("…");
            }
        }
        body
    }
}

/// The routes of every door.
pub fn known_routes() -> Vec<RouteInfo> {
    let route = |name: &str, path: &str, policy: Option<&str>| RouteInfo {
        name: name.into(),
        path: path.into(),
        policy: policy.map(Into::into),
    };
    vec![
        route("checkout", "/checkout/*", None),
        route("orders", "/orders", Some("orders")),
        route("partner feed", "/feed", Some("partners")),
    ]
}

/// A rule by these fields, with these limits.
pub fn rule(name: &str, by: &[&str], limits: &[&str]) -> Rule {
    let by = by.iter().map(|field| Field { name: (*field).into(), kind: FieldKind::of_name(field) });
    let plan = plan(name, limits);
    Rule {
        name: name.into(),
        by: by.collect(),
        overrides: Default::default(),
        on_exceed: OnExceed::Reject,
        on_outage: OnOutage::of(&plan),
        plan,
        ban: None,
        code: None,
        count: None,
        count_when: None,
        rows: None,
        enabled: true,
        secret: false,
    }
}

pub fn plan(rule: &str, limits: &[&str]) -> Arc<Plan> {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new(rule.into(), limits).unwrap())
}

/// The policies of most tests.
pub fn policies() -> Policies {
    let mut domain = rule("domain", &["domain"], &["1000/hour", "10000/day"]);
    let own = plan("domain", &["5000/hour", "50000/day", "100 recipients per attempt"]);
    domain.overrides.insert("example.com".into(), own);
    let mut api_key = rule("api_key", &["api_key"], &["1000/hour", "10000/day"]);
    api_key.secret = true;
    api_key.overrides.insert("hidden-gold".into(), plan("api_key", &["9000/hour"]));
    let deferring = rule("recipient_domain", &["recipient_domain"], &["2/hour", "50000/day"]);
    let deferring = Rule { on_exceed: OnExceed::Defer(Deferral::default()), ..deferring };
    let pace = Rule { on_exceed: OnExceed::Wait(Span::from_secs(5)), ..rule("pace", &[], &["1/s burst 1"]) };
    let shadow = Rule { on_exceed: OnExceed::Observe, ..rule("shadow", &["ip"], &["1/hour"]) };
    let rules: Vec<Arc<Rule>> = [
        rule("global", &[], &["50000/hour", "500000/day"]),
        domain,
        rule("sender", &["sender"], &["3/hour", "1000/day"]),
        rule("ip", &["ip"], &["500/hour", "5000/day"]),
        api_key,
        deferring,
        rule("orders", &["route", "ip"], &["10/s burst 50"]),
        pace,
        shadow,
        rule("jobs", &["account"], &["2 at once for 30s"]),
        rule("slots", &["account"], &["1 at once"]),
        rule("trial", &["account"], &["2 in total"]),
    ]
    .map(Arc::new)
    .into();
    let named = |names: &[&str]| {
        let find = |name: &&str| Arc::clone(rules.iter().find(|rule| *rule.name == **name).unwrap());
        names.iter().map(find).collect()
    };
    let policy = |name: &str, names: &[&str]| Policy::new(name.into(), named(names), false);
    let policies = vec![
        policy("mail.accept", &["global", "domain", "sender", "ip", "api_key"]),
        policy("mail.deliver", &["recipient_domain"]),
        policy("orders", &["orders"]),
        policy("pace", &["pace"]),
        policy("shadow", &["shadow", "ip"]),
        policy("jobs", &["jobs"]),
        policy("slots", &["slots"]),
        policy("trial", &["trial"]),
    ];
    Policies::new(true, rules.clone(), policies)
}

/// Fails unless the document describes such a reply to such a request.
async fn assert_promised(door: &Door, method: &Method, path: &str, reply: &Reply) {
    let document = door.document().await;
    let path = path.split('?').next().unwrap_or_default();
    let Some(template) = documented(&document, method, path) else {
        assert!(matches!(reply.status, 404 | 405), "{method} {path} is not documented: {reply:?}");
        return;
    };
    let operation = &document["paths"][&template][method.as_str().to_lowercase()];
    let responses = &operation["responses"];
    let promised = responses.get(reply.status.to_string()).unwrap_or(&responses["default"]);
    if promised.get("content").is_none() {
        return assert_eq!((reply.header("content-type"), &*reply.text), (None, ""));
    }
    let media = reply.header("content-type").unwrap();
    let schema =
        promised["content"].get(media).unwrap_or_else(|| panic!("{method} {path}: {media} {reply:?}"));
    if media.ends_with("json") {
        let root = json!({
            "components": document["components"], "allOf": [schema["schema"]], "unevaluatedProperties": false,
        });
        let mut schemas = boon::Schemas::new();
        let mut compiler = boon::Compiler::new();
        compiler.add_resource("urn:reply", root).unwrap();
        let index = compiler.compile("urn:reply", &mut schemas).unwrap();
        if let Err(error) = schemas.validate(&reply.json(), index) {
            panic!("{method} {path} {}: {error:#}\n{}", reply.status, reply.text);
        }
    }
}

/// The documented path of a request path; a key may hold slashes.
pub fn documented(document: &Value, method: &Method, path: &str) -> Option<String> {
    fn fits(template: &[&str], path: &[&str]) -> bool {
        match (template, path) {
            ([], []) => true,
            (["{key}" | "{target}", rest @ ..], [_, more @ ..]) => fits(rest, more) || fits(template, more),
            ([part, rest @ ..], [one, more @ ..]) => {
                (part == one || part.starts_with('{') && !one.is_empty()) && fits(rest, more)
            }
            _ => false,
        }
    }
    let parts: Vec<&str> = path.split('/').collect();
    let paths = document["paths"].as_object().unwrap().iter();
    let known = paths.filter(|(_, methods)| methods.get(method.as_str().to_lowercase()).is_some());
    let fitting = known.filter(|(template, _)| fits(&template.split('/').collect::<Vec<_>>(), &parts));
    // The template with the most literal parts is the most specific.
    fitting
        .max_by_key(|(template, _)| (template.len(), -(template.matches('{').count() as i64)))
        .map(|(t, _)| t.clone())
}

impl Records for Notebook {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        self.0.change(space, edits)
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        self.0.changes(space, since)
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::ready(Ok([7; 32]))
    }
}
