//! What happens now, and what happened in the last fifteen minutes. Everything is sampled and written once a
//! second for all pages together, however many are open.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;
use futures_util::stream;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tollgate_core::{Clock, Timestamp};
use tollgate_engine::rates::{self, Outcomes, Rates};
use tollgate_engine::{Engine, Health, Pacer};
use tollgate_relay::Relay;

use super::App;
use super::auth::{AccessKeys, Caller, Role};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::messages::MailPauseShown;
use super::problem::Problem;
use super::shown::{Moment, json_bytes};
use super::top::{BusyShown, NearShown, ObservedShown, OffenderShown};

const STATUS: &str = "/api/v1/status";
const HISTORY: &str = "/api/v1/status/history";
const STREAM: &str = "/api/v1/status/stream";

/// How many pages may follow the status at once; further ones ask again and again instead.
const MOST_STREAMS: usize = 256;
/// After so many events a stream ends, and the browser connects again: to another node, if that is less busy.
const MOST_EVENTS: u32 = 600;
/// How many keys of each kind are shown.
const MOST_KEYS: usize = 10;
/// Keeps nginx from holding back events.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Samples the rates and tells all pages.
pub struct Live {
    engine: Arc<Engine>,
    pacer: Pacer,
    relay: Option<Arc<Relay>>,
    clock: Arc<dyn Clock>,
    events: watch::Sender<Event>,
    streams: Arc<Semaphore>,
    /// How often the rates were sampled.
    ticks: AtomicU64,
    /// The last answers, and the sample they are of.
    status: Mutex<Cached>,
    history: Mutex<Cached>,
}

#[derive(Clone, Default)]
struct Cached {
    tick: u64,
    json: Bytes,
}

/// The latest status as an event; `None` once the server ends.
type Event = Option<Bytes>;

/// What happens now.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NodeStatus")]
struct StatusShown<'s> {
    /// The last second that was sampled (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
    store: StoreShown,
    /// Why the mail relay does not work; null if it works or there is none.
    relay_fault: Option<String>,
    /// The mail and the accounts that operators paused.
    pauses: Vec<MailPauseShown>,
    /// The policies with attempts in the last minute.
    policies: Vec<PolicyRates<'s>>,
    /// How many attempts wait for their turn.
    waiting: usize,
    /// The keys that are denied most, most first.
    offenders: Vec<OffenderShown>,
    /// The busiest keys, in a sample of all decisions.
    busiest: Vec<BusyShown>,
    /// The keys that rules with `on_exceed: observe` would have denied most, most first.
    observed: Vec<ObservedShown>,
    /// The keys nearest to their limits, nearest first.
    nearest: Vec<NearShown>,
    /// How many pages follow this status.
    pages: usize,
}

/// The state of the store.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StoreStatus")]
struct StoreShown {
    /// Whether other nodes share it.
    shared: bool,
    /// `up`, or `degraded` while decisions are made without it.
    state: &'static str,
    /// Why it cannot be used; null if it can.
    reason: Option<&'static str>,
    /// The cause in words; null if it can be used.
    cause: Option<String>,
}

/// What happened at one policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyStatus")]
struct PolicyRates<'s> {
    policy: &'s str,
    /// How many attempts wait for their turn now.
    waiting: i64,
    /// In the last whole second.
    second: OutcomesShown,
    /// In the last minute.
    minute: OutcomesShown,
}

/// How often each outcome occurred.
#[derive(Clone, Copy, Default, Serialize, JsonSchema)]
#[schemars(rename = "Outcomes")]
struct OutcomesShown {
    allow: u64,
    /// Blocked by the blocklist.
    blocked: u64,
    deny: u64,
    wait: u64,
    defer: u64,
    /// Allowed, although a rule that only observes was exceeded.
    observe: u64,
}

/// The last fifteen minutes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StatusHistory")]
struct HistoryShown<'h> {
    /// The last second (RFC 3339). Every series ends there and has one number for each second, oldest first.
    #[schemars(with = "String")]
    at: Moment,
    policies: Vec<SeriesShown<'h>>,
}

/// The seconds of one policy. An outcome that did not occur is absent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PolicyHistory")]
struct SeriesShown<'h> {
    policy: &'h str,
    outcomes: BTreeMap<&'static str, Vec<u32>>,
}

impl From<Outcomes> for OutcomesShown {
    fn from([allow, blocked, deny, wait, defer, observe]: Outcomes) -> Self {
        Self { allow, blocked, deny, wait, defer, observe }
    }
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let read = Some(Role::Read);
    let status = Operation::new(STATUS, "Show rates, the state of the store, and the most denied keys")
        .answers::<StatusShown<'_>>();
    let history =
        Operation::new(HISTORY, "Show the outcomes of the last fifteen minutes, by second and policy")
            .query(&[("seconds", "only so many of the latest seconds; 900 by default, which is all")])
            .answers::<HistoryShown<'_>>();
    let follow = Operation::new(STREAM, "Follow the status: a server-sent event each second")
        .also::<String>(200, "text/event-stream");
    vec![
        Endpoint::new(Method::GET, STATUS, read, show_status).does(status),
        Endpoint::new(Method::GET, HISTORY, read, show_history).does(history),
        Endpoint::new(Method::GET, STREAM, read, follow_status).does(follow),
    ]
}

impl Live {
    /// Follows these parts.
    pub fn new(engine: Arc<Engine>, pacer: Pacer, relay: Option<Arc<Relay>>, clock: Arc<dyn Clock>) -> Self {
        let events = watch::Sender::new(Some(Bytes::new()));
        let streams = Arc::new(Semaphore::new(MOST_STREAMS));
        let (status, history) = (Mutex::default(), Mutex::default());
        let ticks = AtomicU64::new(0);
        Self { engine, pacer, relay, clock, events, streams, ticks, status, history }
    }

    /// Samples the rates, and tells the pages. The process calls this once a second.
    pub fn tick(&self) {
        let observer = &self.engine.observer;
        observer.rates.sample(&observer.meters, self.clock.now());
        self.ticks.fetch_add(1, Ordering::Relaxed);
        if self.events.receiver_count() > 0 {
            let json = self.status();
            let event = [b"event: status\ndata: ", &*json, b"\n\n"].concat();
            self.events.send_replace(Some(event.into()));
        }
    }

    /// Ends all streams, so that the server can end.
    pub fn end(&self) {
        self.events.send_replace(None);
    }

    /// The status, written at most once for each sample.
    fn status(&self) -> Bytes {
        self.cached(&self.status, |now| self.write_status(now))
    }

    fn history(&self) -> Bytes {
        self.cached(&self.history, |_| self.write_history(rates::SECONDS))
    }

    fn cached(&self, cache: &Mutex<Cached>, write: impl FnOnce(Timestamp) -> Vec<u8>) -> Bytes {
        let tick = self.ticks.load(Ordering::Relaxed);
        let cached = &mut *cache.lock();
        if cached.tick != tick || cached.json.is_empty() {
            *cached = Cached { tick, json: write(self.clock.now()).into() };
        }
        cached.json.clone()
    }

    fn write_status(&self, now: Timestamp) -> Vec<u8> {
        let (counters, observer) = (&self.engine.counters, &self.engine.observer);
        let (second, minute) = (observer.rates.latest(1), observer.rates.latest(60));
        let waiting: BTreeMap<Arc<str>, i64> = self.pacer.meters().waiting().into_iter().collect();
        let of_second =
            |policy: &Arc<str>| second.iter().find(|(name, _)| name == policy).map(|(_, sum)| *sum);
        let policies = minute.iter().map(|(policy, sum)| PolicyRates {
            policy,
            waiting: waiting.get(policy).copied().unwrap_or_default(),
            second: of_second(policy).unwrap_or_default().into(),
            minute: (*sum).into(),
        });
        let (state, reason) = match counters.health() {
            Health::Up => ("up", None),
            Health::Degraded(reason) => ("degraded", Some(reason.name())),
        };
        let store =
            StoreShown { shared: counters.are_shared(), state, reason, cause: counters.outage_cause() };
        let status = StatusShown {
            at: Moment(observer.rates.sampled_at().unwrap_or(now)),
            store,
            relay_fault: self.relay.as_ref().and_then(|relay| relay.fault()),
            pauses: MailPauseShown::all(self.relay.as_ref(), None),
            policies: policies.collect(),
            waiting: self.pacer.waiting(),
            offenders: observer.offenders.top(MOST_KEYS).into_iter().map(OffenderShown::from).collect(),
            busiest: observer.busiest.top(MOST_KEYS).into_iter().map(BusyShown::from).collect(),
            observed: observer.observed.top(MOST_KEYS).into_iter().map(ObservedShown::from).collect(),
            nearest: observer
                .nearest
                .top(MOST_KEYS, now)
                .iter()
                .map(|near| NearShown::of(near, now))
                .collect(),
            pages: self.events.receiver_count(),
        };
        serde_json::to_vec(&status).expect("texts and numbers can be written")
    }

    fn write_history(&self, seconds: usize) -> Vec<u8> {
        let history = self.engine.observer.rates.history(seconds);
        let policies = history.policies.iter().map(|(policy, series)| {
            let outcomes = Rates::OUTCOMES.into_iter().enumerate();
            let outcomes =
                outcomes.map(|(at, name)| (name, series.iter().map(|second| second[at]).collect()));
            let occurred = |(_, counts): &(&str, Vec<u32>)| counts.iter().any(|count| *count > 0);
            SeriesShown { policy, outcomes: outcomes.filter(occurred).collect() }
        });
        let at = Moment(Timestamp::from_micros(history.last * 1_000_000));
        let shown = HistoryShown { at, policies: policies.collect() };
        serde_json::to_vec(&shown).expect("texts and numbers can be written")
    }
}

async fn show_status(app: Arc<App>, _: Ask) -> Answered {
    Ok(json_bytes(app.live.status()))
}

/// The history, or only its latest seconds: a page that missed a few needs no more.
async fn show_history(app: Arc<App>, ask: Ask) -> Answered {
    let Some(text) = ask.query("seconds") else { return Ok(json_bytes(app.live.history())) };
    let seconds = text.parse().ok().filter(|seconds| (1..=rates::SECONDS).contains(seconds));
    let wrong = || Problem::bad_request(format!("`seconds` is a number from 1 to {}", rates::SECONDS));
    Ok(json_bytes(app.live.write_history(seconds.ok_or_else(wrong)?)))
}

/// A page that follows the status.
struct Follower {
    events: watch::Receiver<Event>,
    left: u32,
    keys: Arc<AccessKeys>,
    caller: Option<Caller>,
    clock: Arc<dyn Clock>,
    /// Its place among all streams.
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next event; `None` if the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        self.left = self.left.checked_sub(1).filter(|_| self.events.borrow().is_some())?;
        self.events.changed().await.ok()?;
        let event = self.events.borrow_and_update().clone();
        event.filter(|_| self.may_follow())
    }

    /// Whether the caller may still read: its session has not ended, and the keys are those of its admission.
    /// Otherwise the browser has to connect again.
    fn may_follow(&self) -> bool {
        let Some(caller) = &self.caller else { return true };
        self.keys.still_has(caller) && caller.until().is_none_or(|until| self.clock.now() < until)
    }
}

async fn follow_status(app: Arc<App>, ask: Ask) -> Answered {
    let permit = Arc::clone(&app.live.streams).try_acquire_owned().map_err(|_| {
        let detail =
            format!("{MOST_STREAMS} pages follow the status already: ask for {STATUS} every few seconds");
        Problem::unavailable(detail)
    })?;
    let mut events = app.live.events.subscribe();
    events.borrow_and_update();
    let keys = Arc::clone(&app.keys);
    let clock = Arc::clone(&app.clock);
    let caller = ask.into_caller();
    let follower = Follower { events, left: MOST_EVENTS, keys, caller, clock, _permit: permit };
    let first = [b"retry: 2000\nevent: status\ndata: ", &*app.live.status(), b"\n\n"].concat();
    let events = stream::unfold((Some(Bytes::from(first)), follower), |(first, mut follower)| async {
        let event = match first {
            Some(first) => first,
            None => follower.next().await?,
        };
        Some((Ok::<_, Infallible>(event), (None, follower)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}
