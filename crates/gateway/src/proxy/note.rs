//! What is kept of a request once it is over: counts, and perhaps a line in the access log.

use std::sync::Arc;

use tollgate_core::Decision;
use tollgate_web::{Correlation, words};

use crate::connection::Visit;
use crate::h1::request::RequestHead;
use crate::settings::AccessLog;
use crate::worker::Local;

/// How a request's limits were decided, as far as the log tells.
pub(super) struct Decided {
    origin: &'static str,
    /// The policy that refused it, and the rule that is named.
    refused: Option<(Arc<str>, Option<Arc<str>>)>,
}

/// What is known of a request, to be written down at its end.
pub(super) struct Note<'n> {
    visit: &'n Visit,
    request: &'n RequestHead,
    started: u64,
    /// The path in its normal form; until that is known there is none.
    pub(super) path: &'n str,
    pub(super) route: Option<usize>,
    /// Which address of the upstream was asked.
    pub(super) place: Option<usize>,
    pub(super) status: u16,
    /// Whose request it is, if that is not the peer.
    pub(super) client: Option<std::net::IpAddr>,
    /// How its limits were decided.
    pub(super) decided: Option<Decided>,
    /// The id that it is known by, if it goes into the log.
    logged: Option<&'n Correlation>,
}

impl Decided {
    pub(super) fn new(origin: &'static str) -> Self {
        Self { origin, refused: None }
    }

    /// By the queue of a policy, in which there is no room.
    pub(super) fn queued(policy: Arc<str>) -> Self {
        Self { origin: "queue", refused: Some((policy, None)) }
    }

    /// With whoever refused it.
    pub(super) fn of(decision: &Decision<'_>) -> Self {
        let refused = (!decision.allowed()).then(|| {
            let rule = decision.denied_by().map(|line| Arc::clone(&line.rule.name));
            (Arc::clone(&decision.policy().name), rule)
        });
        Self { origin: words::origin(decision.origin), refused }
    }
}

/// Whether a request goes into the log. That is known from the beginning, since what goes there has an
/// id that is the same for everybody.
pub(super) fn is_logged(visit: &Visit, local: &Local) -> bool {
    match local.plan.settings.access_log {
        AccessLog::Off => false,
        AccessLog::OneIn(many) => many.get() == 1 || visit.worker.luck.borrow_mut().u32(..many.get()) == 0,
    }
}

impl<'n> Note<'n> {
    pub(super) fn new(visit: &'n Visit, request: &'n RequestHead, logged: Option<&'n Correlation>) -> Self {
        let started = visit.worker.stopwatch.raw();
        let (path, route, place, client, decided) = ("", None, None, None, None);
        Self { visit, request, started, path, route, place, status: 0, client, decided, logged }
    }

    /// Whether it goes into the log.
    pub(super) fn is_logged(&self) -> bool {
        self.logged.is_some()
    }

    /// Takes note of how its limits were decided.
    #[inline]
    pub(super) fn decide(&mut self, decision: &Decision<'_>) {
        if self.logged.is_some() {
            self.decided = Some(Decided::of(decision));
        }
    }

    /// Writes it down.
    pub(super) fn end(&self, local: &Local, status: u16) {
        let stopwatch = &self.visit.worker.stopwatch;
        let micros = stopwatch.delta_as_nanos(self.started, stopwatch.raw()) / 1_000;
        let meter = self.route.map_or(&local.unmatched, |route| &local.routes[route]);
        meter.note(status, micros);
        if let Some(correlation) = self.logged {
            self.log(local, correlation, status, micros);
        }
    }

    /// Queries are left out: they may hold secrets.
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
            client = %self.client.unwrap_or(self.visit.origin.peer),
            upstream = route.filter(|_| self.place.is_some()).map(|route| &*local.plan.upstreams[route.upstream].settings.name),
            address = address.map(display),
            decided = decided.map(|decided| decided.origin),
            policy = refused.map(|(policy, _)| &**policy),
            rule = refused.and_then(|(_, rule)| rule.as_deref()),
            correlation = correlation.given.as_ref().and_then(|id| id.to_str().ok()),
            "request"
        );
    }
}

/// Counts a request that could not be read.
pub(crate) fn note_refused(visit: &Visit, status: u16) {
    visit.worker.local().unmatched.note(status, 0);
}
