//! What is recorded of a request: counters, and perhaps a line in the access log.

use std::sync::Arc;

use tollgate_core::Decision;
use tollgate_web::{Correlation, words};

use crate::connection::Downstream;
use crate::h1::request::RequestHead;
use crate::settings::AccessLog;
use crate::worker::Local;

/// How a request's limits were decided, for the log.
pub(super) struct Decided {
    origin: &'static str,
    /// The policy that refused it, and the rule it names.
    refused: Option<(Arc<str>, Option<Arc<str>>)>,
}

/// The facts about a request that are recorded at its end.
pub(super) struct Note<'n> {
    downstream: &'n Downstream,
    request: &'n RequestHead,
    started: u64,
    /// The normalised path; empty until it is known.
    pub(super) path: &'n str,
    pub(super) route: Option<usize>,
    /// The index of the upstream's address that was used.
    pub(super) place: Option<usize>,
    pub(super) status: u16,
    /// The client's address, if it is not the peer's.
    pub(super) client: Option<std::net::IpAddr>,
    /// How its limits were decided.
    pub(super) decided: Option<Decided>,
    /// Its id, if it is logged.
    logged: Option<&'n Correlation>,
}

impl Decided {
    pub(super) fn new(origin: &'static str) -> Self {
        Self { origin, refused: None }
    }

    /// Refused because the queue of a policy is full.
    pub(super) fn queued(policy: Arc<str>) -> Self {
        Self { origin: "queue", refused: Some((policy, None)) }
    }

    /// By a decision, with the policy and rule that refused it.
    pub(super) fn of(decision: &Decision<'_>) -> Self {
        let refused = (!decision.allowed()).then(|| {
            let rule = decision.denied_by().map(|line| Arc::clone(&line.rule.name));
            (Arc::clone(&decision.policy().name), rule)
        });
        Self { origin: words::origin(decision.origin), refused }
    }
}

/// Whether a request is logged. This is decided at the start, since a logged request has one id for the
/// client, the upstream and the log.
pub(super) fn is_logged(downstream: &Downstream, local: &Local) -> bool {
    match local.plan.settings.access_log {
        AccessLog::Off => false,
        AccessLog::OneIn(many) => {
            many.get() == 1 || downstream.worker.luck.borrow_mut().u32(..many.get()) == 0
        }
    }
}

impl<'n> Note<'n> {
    pub(super) fn new(
        downstream: &'n Downstream,
        request: &'n RequestHead,
        logged: Option<&'n Correlation>,
    ) -> Self {
        let started = downstream.worker.stopwatch.raw();
        let (path, route, place, client, decided) = ("", None, None, None, None);
        Self { downstream, request, started, path, route, place, status: 0, client, decided, logged }
    }

    /// Whether it is logged.
    pub(super) fn is_logged(&self) -> bool {
        self.logged.is_some()
    }

    /// Writes the counters and the log line.
    pub(super) fn end(&self, local: &Local, status: u16) {
        let stopwatch = &self.downstream.worker.stopwatch;
        let micros = stopwatch.delta_as_nanos(self.started, stopwatch.raw()) / 1_000;
        let meter = self.route.map_or(&local.unmatched, |route| &local.routes[route]);
        meter.note(status, micros);
        if let Some(correlation) = self.logged {
            self.log(local, correlation, status, micros);
        }
    }

    /// Queries are not logged: they may hold secrets.
    #[cold]
    fn log(&self, local: &Local, correlation: &Correlation, status: u16, micros: u64) {
        let decided = self.decided.as_ref();
        let refused = decided.and_then(|decided| decided.refused.as_ref());
        let route = self.route.map(|route| &local.plan.routes[route]);
        let address = route.zip(self.place).map(|(route, place)| local.pools[route.upstream].address(place));
        tracing::info!(
            component = "access",
            method = self.request.method.as_str(),
            route = route.map(|route| &*route.name),
            host = self.request.host.as_deref().map(|host| String::from_utf8_lossy(host).into_owned()),
            path = self.path,
            status,
            duration_us = micros,
            client = %self.client.unwrap_or(self.downstream.origin.peer),
            upstream = route.filter(|_| self.place.is_some()).map(|route| &*local.plan.upstreams[route.upstream].settings.name),
            address = address.map(display),
            decided = decided.map(|decided| decided.origin),
            policy = refused.map(|(policy, _)| &**policy),
            rule = refused.and_then(|(_, rule)| rule.as_deref()),
            correlation = correlation.sent.as_ref().and_then(|id| id.to_str().ok()),
            "request"
        );
    }
}

/// Counts a request whose head could not be read.
pub(crate) fn note_refused(downstream: &Downstream, status: u16) {
    downstream.worker.local().unmatched.note(status, 0);
}
