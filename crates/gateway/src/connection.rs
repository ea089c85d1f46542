//! A client's connection, which carries one request after the other.

use std::borrow::Cow;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tollgate_web::Problem;
use tollgate_web::path::{BadHost, normal_host};

use crate::alarm::Alarm;
use crate::forward::Origin;
use crate::h1::client::H1Client;
use crate::h1::request::{self, Most, Refused, RequestHead};
use crate::h1::side::Side;
use crate::h1::write::Answer;
use crate::http2;
use crate::proxy::{self, Passed};
use crate::stream::Stream;
use crate::worker::Worker;

/// A client's connection and its origin.
pub(crate) struct Downstream {
    pub(crate) worker: Rc<Worker>,
    pub(crate) alarm: Alarm,
    pub(crate) origin: Rc<Origin>,
    /// The last requested host, as the client wrote it and in its normal form. Most connections ask for one
    /// host only.
    last_host: RefCell<(Vec<u8>, Rc<str>)>,
}

impl Downstream {
    pub(crate) fn new(worker: &Rc<Worker>, origin: Rc<Origin>) -> Self {
        let (worker, alarm) = (Rc::clone(worker), worker.alarms.alarm());
        Self { worker, alarm, origin, last_host: RefCell::new((Vec::new(), "".into())) }
    }

    /// The host in its normal form, by which requests are routed and limited.
    pub(crate) fn host(&self, authority: Option<&[u8]>) -> Result<Rc<str>, BadHost> {
        let mut last = self.last_host.borrow_mut();
        let written = authority.unwrap_or_default();
        if last.0 != written {
            let normal = normal_authority(authority)?;
            *last = (written.to_vec(), normal.into());
        } else if authority == Some(b"") {
            return Err(BadHost);
        }
        Ok(Rc::clone(&last.1))
    }
}

/// The host of an authority in its normal form; empty if a request of HTTP/1.0 has none.
pub(crate) fn normal_authority(authority: Option<&[u8]>) -> Result<Cow<'_, str>, BadHost> {
    let Some(authority) = authority else { return Ok("".into()) };
    normal_host(str::from_utf8(authority).map_err(|_| BadHost)?)
}

/// A connection without a request for this long frees its buffers.
const DOZE: Duration = Duration::from_secs(1);
/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection without TLS. An HTTP/2 client is recognised by its first bytes.
pub(crate) async fn serve(downstream: Downstream, stream: Stream, http2: bool) {
    let side = Side::new(stream);
    if let Some(side) = converse(&downstream, side, http2).await {
        let (stream, read) = side.into_stream();
        Box::pin(http2::serve(downstream, stream, read)).await;
    }
}

/// Serves a connection with TLS. The TLS handshake has chosen the protocol.
pub(crate) async fn serve_secure(downstream: Downstream, stream: Stream, http2: bool) {
    if http2 {
        Box::pin(http2::serve(downstream, stream, bytes::BytesMut::new())).await;
    } else {
        converse(&downstream, Side::new(stream), false).await;
    }
}

/// Sends a refusal to a client and closes the connection, without reading a request.
pub(crate) async fn turn_away(downstream: Downstream, stream: Stream, answer: &Answer) {
    let mut client = H1Client::new(Side::new(stream), Rc::clone(&downstream.worker));
    client.say_last(&downstream, answer).await;
}

/// What arrives next on a connection.
enum Next {
    Request,
    Refused(Refused),
    /// The head did not come in time.
    Late,
    /// The client sends nothing more.
    End,
    /// The client speaks HTTP/2.
    Http2,
}

/// Serves one request after the other. Returns the connection if the client speaks HTTP/2.
async fn converse(downstream: &Downstream, side: Side, mut http2: bool) -> Option<Side> {
    let mut client = H1Client::new(side, Rc::clone(&downstream.worker));
    let mut idle = None;
    let mut request = RequestHead::default();
    loop {
        // Cleared before the next head is read, so that its bytes reuse the same memory.
        request.clear();
        match next(downstream, &mut client.side, &mut request, idle, http2).await {
            Next::Request => {}
            Next::End => return None,
            Next::Http2 => return Some(client.side),
            Next::Late => {
                let problem = Problem::too_late("the head of the request did not come in time");
                client.refuse(downstream, &problem).await;
                return None;
            }
            Next::Refused(refused) => {
                client.refuse(downstream, &problem_of(refused)).await;
                return None;
            }
        }
        http2 = false;
        client.open(&request);
        match proxy::pass(downstream, &mut client, &request).await {
            Passed::Whole => {}
            Passed::Answer(answer) => {
                if !client.answer(downstream, &answer, &request).await {
                    return None;
                }
            }
            Passed::Refused(answer) => {
                client.manner.close = true;
                if !client.answer(downstream, &answer, &request).await {
                    return None;
                }
            }
            Passed::Cut => return None,
            Passed::Tunnel(tunnel) => {
                tunnel.run(downstream, &mut client.side).await;
                return None;
            }
        }
        if client.manner.close || !client.skip_body(downstream, &request).await {
            client.linger(&downstream.alarm).await;
            return None;
        }
        client.side.rest();
        idle = Some(downstream.worker.local().plan.settings.bounds.idle_timeout);
    }
}

/// Waits for the next request. A connection that has served a request may first be idle for `idle`.
async fn next(
    downstream: &Downstream,
    side: &mut Side,
    request: &mut RequestHead,
    idle: Option<Duration>,
    http2: bool,
) -> Next {
    let (most, head_timeout) = {
        let local = downstream.worker.local();
        let bounds = &local.plan.settings.bounds;
        (Most { bytes: bounds.head_bytes, lines: bounds.head_lines }, bounds.head_timeout)
    };
    let mut scanned = 0;
    let mut phase = match idle {
        Some(_) if side.inbox.is_empty() => ReadPhase::Idle,
        _ => ReadPhase::Head,
    };
    downstream.alarm.set(if phase == ReadPhase::Idle { DOZE } else { head_timeout });
    poll_fn(|cx| {
        loop {
            if http2 && !side.inbox.is_empty() {
                match begins_http2(&side.inbox) {
                    Some(true) => return Poll::Ready(Next::Http2),
                    Some(false) => {}
                    None => match side.poll_fill(cx) {
                        Poll::Ready(Ok(1..)) => continue,
                        Poll::Ready(_) => return Poll::Ready(Next::End),
                        Poll::Pending => return downstream.alarm.poll(cx).map(|()| Next::Late),
                    },
                }
            }
            if !side.inbox.is_empty() {
                match request::take(&mut side.inbox, &mut scanned, most, request) {
                    Ok(true) => return Poll::Ready(Next::Request),
                    Err(refused) => return Poll::Ready(Next::Refused(refused)),
                    Ok(false) => {}
                }
            }
            match side.poll_fill(cx) {
                Poll::Ready(Ok(1..)) if phase != ReadPhase::Head => {
                    phase = ReadPhase::Head;
                    downstream.alarm.set(head_timeout);
                }
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Next::End),
                Poll::Pending => match poll_idle(downstream, side, &mut phase, idle, cx) {
                    Poll::Ready(Some(next)) => return Poll::Ready(next),
                    Poll::Ready(None) => {}
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    })
    .await
}

/// The state of a connection while no request arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadPhase {
    /// It served a request a moment ago.
    Idle,
    /// It has been idle for a while.
    Dozing,
    /// A head is arriving, or is due.
    Head,
}

/// Handles a connection on which nothing has arrived yet. Ready with `None` if the caller must try again, and
/// with the end if the connection was idle for too long.
fn poll_idle(
    downstream: &Downstream,
    side: &mut Side,
    phase: &mut ReadPhase,
    idle: Option<Duration>,
    cx: &mut Context<'_>,
) -> Poll<Option<Next>> {
    if downstream.worker.is_closing() && side.inbox.is_empty() {
        return Poll::Ready(Some(Next::End));
    }
    if downstream.alarm.poll(cx).is_pending() {
        return Poll::Pending;
    }
    match phase {
        ReadPhase::Head if side.inbox.is_empty() => Poll::Ready(Some(Next::End)),
        ReadPhase::Head => Poll::Ready(Some(Next::Late)),
        ReadPhase::Dozing => Poll::Ready(Some(Next::End)),
        ReadPhase::Idle => {
            *phase = ReadPhase::Dozing;
            side.doze();
            downstream.alarm.set(idle.unwrap_or_default().saturating_sub(DOZE));
            Poll::Ready(None)
        }
    }
}

/// Whether these are the first bytes of HTTP/2; `None` if there are too few to tell.
fn begins_http2(bytes: &[u8]) -> Option<bool> {
    if bytes.len() >= PREFACE.len() {
        return Some(bytes.starts_with(PREFACE));
    }
    if PREFACE.starts_with(bytes) { None } else { Some(false) }
}

fn problem_of(refused: Refused) -> Problem {
    match refused {
        Refused::Malformed(reason) => Problem::bad_request(reason),
        Refused::TooLarge => Problem::headers_too_large("the head of the request is too long"),
        Refused::NotForUs => Problem::method_not_allowed("this is not a forward proxy"),
    }
}
