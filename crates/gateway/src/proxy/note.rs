//! What is kept of a request once it is over: counts, and perhaps a line in the access log.

use crate::connection::Visit;
use crate::h1::request::RequestHead;
use crate::settings::AccessLog;
use crate::worker::Local;

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
    pub(super) decided: Option<&'static str>,
}

impl<'n> Note<'n> {
    pub(super) fn new(visit: &'n Visit, request: &'n RequestHead) -> Self {
        let started = visit.worker.stopwatch.raw();
        let (path, route, place, client, decided) = ("", None, None, None, None);
        Self { visit, request, started, path, route, place, status: 0, client, decided }
    }

    /// Writes it down.
    pub(super) fn end(&self, local: &Local, status: u16) {
        let stopwatch = &self.visit.worker.stopwatch;
        let micros = stopwatch.delta_as_nanos(self.started, stopwatch.raw()) / 1_000;
        let meter = self.route.map_or(&local.unmatched, |route| &local.routes[route]);
        meter.note(status, micros);
        if let AccessLog::OneIn(many) = local.plan.settings.access_log
            && (many.get() == 1 || self.visit.worker.luck.borrow_mut().u32(..many.get()) == 0)
        {
            self.log(local, status, micros);
        }
    }

    /// Queries are left out: they may hold secrets.
    #[cold]
    fn log(&self, local: &Local, status: u16, micros: u64) {
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
            decided = self.decided,
            "request"
        );
    }
}

/// Counts a request that could not be read.
pub(crate) fn note_refused(visit: &Visit, status: u16) {
    visit.worker.local().unmatched.note(status, 0);
}
