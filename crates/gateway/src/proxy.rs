//! From a request to its response: the route, the limits, the upstream.

pub(crate) mod limits;
mod note;
mod tunnels;

use std::borrow::Cow;
use std::rc::Rc;

use http::header::ALLOW;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tollgate_web::{Correlation, Problem, host, path};

use crate::connection::Visit;
use crate::exchange::{Client, Exchange, Failure, Patience};
use crate::flow::Flow;
use crate::forward::{Forwarded, split_target};
use crate::h1::decode::Decoder;
use crate::h1::request::RequestHead;
use crate::h1::response::ResponseHead;
use crate::h1::write::Answer;
use crate::meter::{UpstreamError, UpstreamMeter};
use crate::plan::Route;
use crate::route::{Found, Headers};
use crate::settings::HostHeader;
use crate::upstream::{Borrowed, Pool, Unreachable};
use crate::worker::Local;
use limits::{Admitted, Limited};
use note::Note;
pub(crate) use note::note_refused;
pub(crate) use tunnels::Tunnel;

/// What became of a request.
pub(crate) enum Passed {
    /// The response has left, all of it.
    Whole,
    /// Nothing has left; this is the answer.
    Answer(Box<Answer>),
    /// As with an answer, and the client is not listened to any more.
    Refused(Box<Answer>),
    /// Something has left, and the rest never will; or there is nobody to send it to.
    Cut,
    /// The connection goes over to another protocol, and the client was told so.
    Tunnel(Box<Tunnel>),
}

/// A request that has found its route.
struct Case<'c> {
    visit: &'c Visit,
    request: &'c RequestHead,
    local: Rc<Local>,
    route: usize,
    path: &'c str,
    query: Option<&'c [u8]>,
    host: &'c str,
}

/// Passes a request on, within its limits.
pub(crate) async fn pass<C: Client>(visit: &Visit, client: &mut C, request: &RequestHead) -> Passed {
    let local = visit.worker.local();
    let mut note = Note::new(visit, request);
    let (path, query) = split_target(&request.target);
    let found = read(path, request.host.as_deref()).map(|(path, host)| {
        let found = local.plan.table.find(&host, &path, &request.method, request);
        (path, host, found)
    });
    let (path, host, route) = match found {
        Ok((path, host, Found::Route(route))) => (path, host, route),
        Ok((path, _, found)) => {
            let answer = lost(found, correlation(request));
            note.path = &path;
            note.end(&local, answer.status.as_u16());
            return Passed::Answer(Box::new(answer));
        }
        Err(problem) => {
            note.end(&local, problem.status.as_u16());
            return Passed::Refused(Box::new(problem.answer(&correlation(request)).into()));
        }
    };
    note.path = &path;
    note.route = Some(route);
    let case = Case { visit, request, local, route, path: &path, query, host: &host };
    let passed = match case.weigh(client, &mut note).await {
        None => {
            note.status = CLIENT_GONE;
            Ok(Passed::Cut)
        }
        Some(Limited::Refused(answer)) => Err(*answer),
        Some(Limited::Admitted(mut admitted)) => {
            let passed = case.forward(client, &mut admitted, &mut note).await;
            if let Err(answer) = &passed {
                admitted.answered(visit, answer.status.as_u16());
            }
            passed
        }
    };
    match passed {
        Ok(passed) => {
            note.end(&case.local, note.status);
            passed
        }
        Err(answer) => {
            note.end(&case.local, answer.status.as_u16());
            Passed::Answer(Box::new(answer))
        }
    }
}

/// Path and host in the one form by which they are routed, limited and passed on.
fn read<'r>(path: &'r [u8], host: Option<&'r [u8]>) -> Result<(Cow<'r, str>, Cow<'r, str>), Problem> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Problem::bad_request("the head is not ASCII"));
    let host = match host {
        Some(authority) => host::normal(text(authority)?)?,
        None => Cow::Borrowed(""),
    };
    Ok((path::normal(text(path)?)?, host))
}

/// The answer to a request that no route takes.
fn lost(found: Found, correlation: Correlation) -> Answer {
    let Found::OtherMethods(methods) = found else {
        return Problem::not_found("no route takes this host and path").answer(&correlation).into();
    };
    let mut answer = Problem::method_not_allowed("no route takes this method here").answer(&correlation);
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
        answer.headers_mut().insert(ALLOW, names);
    }
    answer.into()
}

/// The id that the client wants to see again.
fn correlation(request: &RequestHead) -> Correlation {
    const NAME: &str = "x-correlation-id";
    let Some(value) = request.value(NAME).and_then(|value| HeaderValue::from_bytes(value).ok()) else {
        return Correlation::default();
    };
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(HeaderName::from_static(NAME), value);
    Correlation::of(&headers)
}

impl Headers for RequestHead {
    fn has(&self, name: &HeaderName, value: Option<&HeaderValue>) -> bool {
        let name = name.as_str().as_bytes();
        let mut lines = self.lines.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
        lines.any(|line| value.is_none_or(|value| line.value == value.as_bytes()))
    }
}

impl Case<'_> {
    fn route(&self) -> &Route {
        &self.local.plan.routes[self.route]
    }

    fn pool(&self) -> &Pool {
        &self.local.pools[self.route().upstream]
    }

    fn problem(&self, problem: &Problem) -> Answer {
        problem.answer(&correlation(self.request)).into()
    }

    /// Asks what the request is allowed to do, before anything of it is passed on. `None` if the client
    /// went away meanwhile.
    async fn weigh<C: Client>(&self, client: &mut C, note: &mut Note<'_>) -> Option<Limited> {
        // A body that is too long is nobody's to count: it is not served.
        if matches!(self.request.body, Decoder::Length(length) if length > self.route().body_bytes) {
            let problem = Problem::too_large(self.most_bytes());
            return Some(Limited::Refused(Box::new(self.problem(&problem))));
        }
        self.limit(client, note).await
    }

    /// Passes the request on to an upstream, and its response back. An error is the answer.
    async fn forward<C: Client>(
        &self,
        client: &mut C,
        admitted: &mut Admitted,
        note: &mut Note<'_>,
    ) -> Result<Passed, Answer> {
        if self.request.upgrade.is_some() && !tunnels::has_room(self.visit, &self.local) {
            return Err(self.problem(&Problem::unavailable("there are too many upgraded connections")));
        }
        let mut borrowed = self.borrow().await?;
        loop {
            note.place = Some(borrowed.place);
            let upload = self.write_head(&mut borrowed);
            let (side, alarm) = (&mut borrowed.side, &self.visit.alarm);
            let mut exchange = Exchange::new(client, side, alarm, self.patience(), upload);
            let failure = match exchange.head(self.request).await {
                Ok(head) if head.status == 101 && self.request.upgrade.is_none() => {
                    Failure::UpstreamMalformed("the upstream changes the protocol unasked")
                }
                Ok(head) => {
                    let relayed = self.relay(&mut exchange, &head, admitted, note).await;
                    return Ok(self.put_away(relayed, borrowed));
                }
                Err(failure) => failure,
            };
            let lost = failure == Failure::UpstreamGone { heard: false };
            if lost && borrowed.reused && exchange.is_replayable(self.request) {
                // Nobody's fault: it was closed while nobody used it.
                borrowed = self.connect(borrowed.place).await.map_err(|bad| self.unreachable(&bad))?;
                continue;
            }
            return self.failed(failure, borrowed.place, note);
        }
    }

    /// Passes a response on.
    async fn relay<C: Client>(
        &self,
        exchange: &mut Exchange<'_, C>,
        head: &ResponseHead,
        admitted: &mut Admitted,
        note: &mut Note<'_>,
    ) -> Relayed {
        note.status = head.status;
        self.pool().succeeded(note.place.unwrap_or_default());
        admitted.answered(self.visit, head.status);
        if head.status == 101 {
            exchange.client.begin(head, &admitted.lines);
            return Relayed::Switched;
        }
        match exchange.body(head, &admitted.lines).await {
            Ok(()) if exchange.leaves_reusable(head) => Relayed::Reusable,
            Ok(()) => Relayed::Spent,
            Err(failure) => {
                self.blame(failure);
                Relayed::Cut
            }
        }
    }

    /// Puts the upstream's connection where it belongs after a response.
    fn put_away(&self, relayed: Relayed, borrowed: Borrowed) -> Passed {
        match relayed {
            Relayed::Reusable => {
                self.pool().give_back(borrowed);
                Passed::Whole
            }
            Relayed::Spent => Passed::Whole,
            Relayed::Cut => Passed::Cut,
            Relayed::Switched => Passed::Tunnel(Box::new(Tunnel::new(self.visit, borrowed.side))),
        }
    }

    /// A connection to the upstream whose turn it is. If there is none to be had, others are tried.
    async fn borrow(&self) -> Result<Borrowed, Answer> {
        let pool = self.pool();
        let mut left = if pool.upstream.settings.retry { pool.size().min(MOST_PLACES) } else { 1 };
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
        if let Err(bad) = &connected {
            self.meter().note(match bad {
                Unreachable::Late => UpstreamError::ConnectTimeout,
                Unreachable::Refused(_) => UpstreamError::Connect,
                Unreachable::Untrusted(_) => UpstreamError::Tls,
            });
        }
        connected
    }

    fn unreachable(&self, bad: &Unreachable) -> Answer {
        self.problem(&match bad {
            Unreachable::Late => Problem::gateway_timeout("the service could not be reached in time"),
            Unreachable::Refused(_) => Problem::bad_gateway("the service cannot be reached"),
            Unreachable::Untrusted(_) => Problem::bad_gateway("the service cannot be trusted"),
        })
    }

    /// Puts the request's head before what is sent to the upstream. Answers what there is to upload.
    fn write_head(&self, borrowed: &mut Borrowed) -> Flow {
        let (route, pool) = (self.route(), self.pool());
        let address = pool.address(borrowed.place);
        let by_address;
        let host = match &pool.upstream.settings.host {
            HostHeader::Client => None,
            HostHeader::Fixed(host) => Some(host),
            HostHeader::Address => {
                by_address = HeaderValue::try_from(address.to_string()).ok();
                by_address.as_ref()
            }
        };
        let forwarded = Forwarded {
            path: self.path,
            query: self.query,
            rewrite: route.rewrite.as_ref(),
            host,
            address,
            origin: &self.visit.origin,
        };
        borrowed.side.outgoing = forwarded.write(self.request, &mut borrowed.side.outbox.small);
        if self.request.body == Decoder::Empty { Flow::none() } else { Flow::new(route.body_bytes) }
    }

    fn patience(&self) -> Patience {
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
            Failure::UpstreamGone { .. } => UpstreamError::Closed,
            Failure::UpstreamLate => UpstreamError::Timeout,
            Failure::UpstreamStalled => UpstreamError::Stalled,
            Failure::UpstreamMalformed(_) => UpstreamError::Malformed,
            _ => return,
        };
        self.meter().note(error);
    }

    /// There is no response: an error is the answer, if there is anybody to answer to.
    fn failed(&self, failure: Failure, place: usize, note: &mut Note<'_>) -> Result<Passed, Answer> {
        self.blame(failure);
        let reason = match failure {
            Failure::UpstreamGone { .. } => Some("it closed the connection"),
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
            Failure::UpstreamMalformed(_) => Problem::bad_gateway("the service did not answer with HTTP"),
            Failure::UpstreamLate => Problem::gateway_timeout("the service did not answer in time"),
            Failure::UpstreamStalled => {
                Problem::gateway_timeout("the service did not take the request in time")
            }
        };
        Err(self.problem(&problem))
    }

    fn most_bytes(&self) -> usize {
        usize::try_from(self.route().body_bytes).unwrap_or(usize::MAX)
    }
}

/// How many addresses are tried for one request.
const MOST_PLACES: usize = 3;
/// Stands for the status of a response that nobody was there to read.
const CLIENT_GONE: u16 = 499;

/// How a response was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relayed {
    /// Whole, and the upstream's connection can be used again.
    Reusable,
    /// Whole, and it cannot.
    Spent,
    /// In part.
    Cut,
    /// The connection goes over to another protocol.
    Switched,
}
