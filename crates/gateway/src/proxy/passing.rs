//! Passing a request on to an upstream, and its response back.

use http::HeaderValue;
use tollgate_web::Problem;

use super::limits::Admitted;
use super::note::Note;
use super::{CLIENT_GONE, Case, Passed, Tunnel, tunnels};
use crate::exchange::{Client, Exchange, Failure, Patience, Server};
use crate::flow::Flow;
use crate::forward::Forwarded;
use crate::h1::decode::Decoder;
use crate::h1::write::Answer;
use crate::meter::{UpstreamError, UpstreamMeter};
use crate::settings::{HostHeader, Protocol};
use crate::upstream::{Borrowed, Unreachable};

/// How many addresses are tried for one request.
const MOST_PLACES: usize = 3;

/// How a response was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relayed {
    /// Whole, and the upstream's connection can be used again.
    Reusable,
    /// Whole, and it cannot.
    Spent,
    /// In part.
    Cut,
    /// The connection goes over to another protocol.
    Switched,
}

impl Case<'_> {
    /// Passes the request on to an upstream, and its response back. An error is the answer.
    pub(super) async fn forward<C: Client>(
        &self,
        client: &mut C,
        admitted: &mut Admitted,
        note: &mut Note<'_>,
    ) -> Result<Passed, Answer> {
        if self.pool().upstream.settings.protocol == Protocol::Http2 {
            // Boxed, since most upstreams speak HTTP/1.
            return Box::pin(self.forward_http2(client, admitted, note)).await;
        }
        if self.request.upgrade.is_some() && !tunnels::has_room(self.visit, &self.local) {
            return Err(self.problem(&Problem::unavailable("there are too many upgraded connections")));
        }
        let mut borrowed = self.borrow().await?;
        loop {
            note.place = Some(borrowed.place);
            let upload = self.write_head(&mut borrowed, admitted);
            let (side, alarm) = (&mut borrowed.side, &self.visit.alarm);
            let mut exchange = Exchange::new(client, side, alarm, self.patience(), upload);
            let failure = match exchange.head(self.request).await {
                Ok(()) if exchange.response.status == 101 && self.request.upgrade.is_none() => {
                    Failure::UpstreamMalformed("the upstream changes the protocol unasked")
                }
                Ok(()) => {
                    let relayed = self.relay(&mut exchange, admitted, note).await;
                    return Ok(self.put_away(relayed, borrowed, admitted));
                }
                Err(failure) => failure,
            };
            let lost = failure == Failure::UpstreamGone { heard: false };
            if lost && borrowed.reused && self.retries() && exchange.is_replayable(self.request) {
                // Most likely nobody's fault: it was closed while nobody used it.
                borrowed = self.connect(borrowed.place).await.map_err(|bad| self.unreachable(&bad))?;
                continue;
            }
            return self.failed(failure, borrowed.place, note);
        }
    }

    /// Passes a response on.
    pub(super) async fn relay<C: Client, S: Server>(
        &self,
        exchange: &mut Exchange<'_, C, S>,
        admitted: &mut Admitted,
        note: &mut Note<'_>,
    ) -> Relayed {
        let status = exchange.response.status;
        note.status = status;
        self.pool().succeeded(note.place.unwrap_or_default());
        self.end_login(admitted, &exchange.response);
        admitted.answered(status);
        if status == 101 {
            exchange.begin(&admitted.lines);
            return Relayed::Switched;
        }
        let Admitted { lines, held, .. } = admitted;
        match exchange.body(lines, held).await {
            Ok(()) if exchange.is_whole() => Relayed::Reusable,
            Ok(()) => Relayed::Spent,
            Err(failure) => {
                self.blame(failure);
                Relayed::Cut
            }
        }
    }

    /// Puts the upstream's connection where it belongs after a response.
    fn put_away(&self, relayed: Relayed, borrowed: Borrowed, admitted: &mut Admitted) -> Passed {
        match relayed {
            Relayed::Reusable if borrowed.side.is_at_rest() => {
                self.pool().give_back(borrowed);
                Passed::Whole
            }
            Relayed::Reusable | Relayed::Spent => Passed::Whole,
            Relayed::Cut => Passed::Cut,
            Relayed::Switched => {
                let held = std::mem::take(&mut admitted.held);
                Passed::Tunnel(Box::new(Tunnel::new(self.visit, borrowed.side, held)))
            }
        }
    }

    /// A connection to the upstream whose turn it is. If there is none to be had, others are tried.
    async fn borrow(&self) -> Result<Borrowed, Answer> {
        let pool = self.pool();
        let mut left = self.tries();
        loop {
            let place = pool.choose();
            if let Some(borrowed) = pool.reuse(place) {
                return Ok(borrowed);
            }
            left -= 1;
            match self.connect(place).await {
                Ok(borrowed) => return Ok(borrowed),
                Err(_) if left > 0 => {}
                Err(bad) => return Err(self.unreachable(&bad)),
            }
        }
    }

    async fn connect(&self, place: usize) -> Result<Borrowed, Unreachable> {
        let connected = self.pool().connect(place, &self.visit.alarm).await;
        connected.inspect_err(|bad| self.blame_connecting(bad))
    }

    /// Counts a connection that could not be made.
    pub(super) fn blame_connecting(&self, bad: &Unreachable) {
        self.meter().note(match bad {
            Unreachable::Late => UpstreamError::ConnectTimeout,
            Unreachable::Refused(_) => UpstreamError::Connect,
            Unreachable::Untrusted(_) => UpstreamError::Tls,
        });
    }

    /// How many addresses are tried.
    pub(super) fn tries(&self) -> usize {
        if self.retries() { self.pool().size().min(MOST_PLACES) } else { 1 }
    }

    /// Whether what failed may be tried again.
    pub(super) fn retries(&self) -> bool {
        self.pool().upstream.settings.retry
    }

    pub(super) fn unreachable(&self, bad: &Unreachable) -> Answer {
        self.problem(&match bad {
            Unreachable::Late => Problem::gateway_timeout("the service could not be reached in time"),
            Unreachable::Refused(_) => Problem::bad_gateway("the service cannot be reached"),
            Unreachable::Untrusted(_) => Problem::bad_gateway("the service cannot be trusted"),
        })
    }

    /// Puts the request's head before what is sent to the upstream. Answers what there is to upload.
    fn write_head(&self, borrowed: &mut Borrowed, admitted: &Admitted) -> Flow {
        let Borrowed { side, place, .. } = borrowed;
        side.outgoing = self.with_forwarded(*place, admitted, |forwarded| {
            forwarded.write(self.request, &mut side.outbox.small)
        });
        self.upload()
    }

    /// What there is to upload.
    pub(super) fn upload(&self) -> Flow {
        if self.request.body == Decoder::Empty { Flow::none() } else { Flow::new(self.route().body_bytes) }
    }

    /// What goes into the head of the request beside what the client sent.
    pub(super) fn with_forwarded<T>(
        &self,
        place: usize,
        admitted: &Admitted,
        use_it: impl FnOnce(&Forwarded<'_>) -> T,
    ) -> T {
        let (route, pool) = (self.route(), self.pool());
        let address = pool.address(place);
        let by_address;
        let host = match &pool.upstream.settings.host {
            HostHeader::Client => None,
            HostHeader::Fixed(host) => Some(host),
            HostHeader::Address => {
                by_address = HeaderValue::try_from(address.to_string()).ok();
                by_address.as_ref()
            }
        };
        use_it(&Forwarded {
            path: self.path,
            query: self.query,
            rewrite: route.rewrite.as_ref(),
            host,
            address,
            origin: &self.visit.origin,
            trust: self.visit.origin.trust(&self.local.plan),
            hearsay: self.local.plan.hearsay.as_ref(),
            captcha: admitted.guarded.as_ref().map(|guarded| guarded.captcha),
            correlation: self.logged.and_then(|logged| logged.given.as_ref()),
        })
    }

    pub(super) fn patience(&self) -> Patience {
        Patience {
            client: self.local.plan.settings.bounds.stall_timeout,
            upstream: self.pool().upstream.settings.stall_timeout,
            response: self.route().response_timeout,
        }
    }

    fn meter(&self) -> &UpstreamMeter {
        &self.local.upstreams[self.route().upstream]
    }

    /// Counts a failure that is the upstream's.
    fn blame(&self, failure: Failure) {
        let error = match failure {
            Failure::UpstreamGone { .. } | Failure::UpstreamRefused => UpstreamError::Closed,
            Failure::UpstreamLate => UpstreamError::Timeout,
            Failure::UpstreamStalled => UpstreamError::Stalled,
            Failure::UpstreamMalformed(_) => UpstreamError::Malformed,
            _ => return,
        };
        self.meter().note(error);
    }

    /// There is no response: an error is the answer, if there is anybody to answer to.
    pub(super) fn failed(
        &self,
        failure: Failure,
        place: usize,
        note: &mut Note<'_>,
    ) -> Result<Passed, Answer> {
        self.blame(failure);
        let reason = match failure {
            Failure::UpstreamGone { .. } => Some("it closed the connection"),
            Failure::UpstreamRefused => Some("it did not take a request"),
            Failure::UpstreamLate => Some("it did not answer in time"),
            Failure::UpstreamStalled => Some("it did not take a request in time"),
            _ => None,
        };
        if let Some(reason) = reason {
            self.pool().failed(place, &reason);
        }
        let problem = match failure {
            Failure::ClientGone => {
                note.status = CLIENT_GONE;
                return Ok(Passed::Cut);
            }
            Failure::ClientStalled => Problem::too_late("the body of the request did not come in time"),
            Failure::ClientMalformed(wrong) => Problem::bad_request(wrong),
            Failure::BodyTooLong => Problem::too_large(self.most_bytes()),
            Failure::UpstreamGone { .. } => Problem::bad_gateway("the service closed the connection"),
            Failure::UpstreamRefused => Problem::bad_gateway("the service did not take the request"),
            Failure::UpstreamMalformed(_) => Problem::bad_gateway("the service did not answer with HTTP"),
            Failure::UpstreamLate => Problem::gateway_timeout("the service did not answer in time"),
            Failure::UpstreamStalled => {
                Problem::gateway_timeout("the service did not take the request in time")
            }
        };
        Err(self.problem(&problem))
    }
}
