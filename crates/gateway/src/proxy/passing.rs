//! Forwards a request to an upstream, and its response back.

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

/// How a response was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relayed {
    /// Completely, and the upstream's connection can be reused.
    Reusable,
    /// Completely, and it cannot.
    Spent,
    /// Partly.
    Cut,
    /// The connection switches to another protocol.
    Switched,
}

impl Case<'_> {
    /// Forwards the request to an upstream, and the response back. An error is the response to send.
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
        if self.request.upgrade.is_some() && !tunnels::has_room(self.downstream, &self.local) {
            return Err(self.problem(&Problem::unavailable("there are too many upgraded connections")));
        }
        let mut borrowed = self.borrow().await?;
        loop {
            note.place = Some(borrowed.place);
            let upload = self.write_head(&mut borrowed, admitted);
            let (side, alarm) = (&mut borrowed.side, &self.downstream.alarm);
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
                // Most likely the upstream closed an idle connection.
                borrowed = self.connect(borrowed.place).await.map_err(|bad| self.unreachable(&bad))?;
                continue;
            }
            return self.failed(failure, borrowed.place, note);
        }
    }

    /// Forwards a response.
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

    /// Returns, drops or hands over the upstream's connection after a response.
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
                Passed::Tunnel(Box::new(Tunnel::new(self.downstream, borrowed.side, held)))
            }
        }
    }

    /// A connection to the next address. If that fails, others are tried.
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
        let connected = self.pool().connect(place, &self.downstream.alarm).await;
        connected.inspect_err(|bad| self.blame_connecting(bad))
    }

    /// Counts a failed connection attempt.
    pub(super) fn blame_connecting(&self, bad: &Unreachable) {
        self.meter().note(match bad {
            Unreachable::Late => UpstreamError::ConnectTimeout,
            Unreachable::Refused(_) => UpstreamError::Connect,
            Unreachable::Untrusted(_) => UpstreamError::Tls,
        });
    }

    /// How many addresses may be tried.
    pub(super) fn tries(&self) -> usize {
        if self.retries() { self.pool().size().min(MOST_PLACES) } else { 1 }
    }

    /// Whether a failed request may be retried.
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

    /// Writes the request's head to the outbox. Returns the body to upload.
    fn write_head(&self, borrowed: &mut Borrowed, admitted: &Admitted) -> Flow {
        let Borrowed { side, place, .. } = borrowed;
        side.outgoing = self.with_forwarded(*place, admitted, |forwarded| {
            forwarded.write(self.request, &mut side.outbox.small)
        });
        self.upload()
    }

    /// The body to upload.
    pub(super) fn upload(&self) -> Flow {
        if self.request.body == Decoder::Empty { Flow::none() } else { Flow::new(self.route().body_bytes) }
    }

    /// Calls `use_it` with everything that the forwarded head needs beside the client's header lines.
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
            origin: &self.downstream.origin,
            trust: self.downstream.origin.trust(&self.local.plan),
            forwarding_header: self.local.plan.forwarding_header.as_ref(),
            captcha: admitted.guarded.as_ref().map(|guarded| guarded.captcha),
            correlation: self.logged.and_then(|logged| logged.sent.as_ref()),
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

    /// Counts a failure of the upstream.
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

    /// Handles a failure: returns the response to send, unless the client is gone.
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
