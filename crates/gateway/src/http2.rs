//! Clients and upstreams that speak HTTP/2: many requests at once over one connection.

mod client;
mod prefixed;
mod request;
pub(crate) mod shared_connection;
mod stream;
pub(crate) mod upstream;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, Connection};
use tollgate_web::{Correlation, Problem};

use crate::alarm::Alarm;
use crate::connection::Downstream;
use crate::h1::request::Refused;
use crate::proxy::{self, Passed};
use crate::settings::Bounds;
use crate::stream::Stream;
use client::H2Client;
use prefixed::{Frames, Prefixed};

/// Flow-control windows of a connection and of each stream.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 1 << 18;
/// How many bytes of a response are buffered until the client accepts them.
const SEND_BUFFER: usize = 64 * 1024;

/// Counts one request of a connection as in flight.
struct Busy(Rc<Cell<usize>>);

impl Busy {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Serves an HTTP/2 connection. `read` holds the bytes that were already read from it.
pub(crate) async fn serve(downstream: Downstream, stream: Stream, read: BytesMut) {
    let local = downstream.worker.local();
    let bounds = local.plan.settings.bounds.clone();
    drop(local);
    let frames = Frames::new(&downstream.worker.alarms);
    let prefixed = Prefixed::new(stream, read, Rc::clone(&frames));
    let handshake = builder(&bounds).handshake::<_, Bytes>(prefixed);
    // A client that disconnects, is too slow or sends garbage is not worth logging.
    let Ok(Ok(mut connection)) = downstream.alarm.within(bounds.head_timeout, handshake).await else {
        return;
    };
    let busy = Rc::new(Cell::new(0));
    let mut heads = Heads { frames, alarm: downstream.worker.alarms.alarm(), watched: None };
    while let Some((request, respond)) = next(&downstream, &mut connection, &busy, &mut heads, &bounds).await
    {
        let stream = Downstream::new(&downstream.worker, Rc::clone(&downstream.origin));
        let guard = Busy::new(&busy);
        tokio::task::spawn_local(async move {
            answer(&stream, request, respond).await;
            drop(guard);
        });
    }
}

/// The head that a client is sending, and its time-out.
struct Heads {
    frames: Rc<Frames>,
    alarm: Alarm,
    /// The number of the head for which the alarm is set.
    watched: Option<u64>,
}

impl Heads {
    /// Ready when a head took longer than `timeout`.
    fn poll_late(&mut self, timeout: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let unfinished = self.frames.unfinished();
        if self.watched != unfinished {
            self.watched = unfinished;
            match unfinished {
                Some(_) => self.alarm.set(timeout),
                None => self.alarm.unset(),
            }
        }
        self.alarm.poll(cx)
    }
}

fn builder(bounds: &Bounds) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(bounds.streams)
        .max_header_list_size(u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX))
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_window_size(STREAM_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

type Asked = (http::Request<h2::RecvStream>, h2::server::SendResponse<Bytes>);

/// The next request; `None` if no more will come. Requests in flight make progress meanwhile.
async fn next(
    downstream: &Downstream,
    connection: &mut Connection<Prefixed, Bytes>,
    busy: &Cell<usize>,
    heads: &mut Heads,
    bounds: &Bounds,
) -> Option<Asked> {
    let mut was_busy = None;
    let mut leaving = false;
    poll_fn(|cx| {
        if downstream.worker.is_ending() && !leaving {
            leaving = true;
            connection.graceful_shutdown();
        }
        if let Poll::Ready(next) = connection.poll_accept(cx) {
            // A connection error is the client's fault.
            return Poll::Ready(next.and_then(Result::ok));
        }
        if heads.poll_late(bounds.head_timeout, cx).is_ready() {
            return Poll::Ready(None);
        }
        let is_busy = busy.get() > 0;
        if was_busy != Some(is_busy) {
            was_busy = Some(is_busy);
            downstream.alarm.set(if is_busy { bounds.tunnel_timeout } else { bounds.idle_timeout });
        }
        match downstream.alarm.poll(cx) {
            Poll::Ready(()) if is_busy => {
                was_busy = None;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Serves one request.
async fn answer(
    downstream: &Downstream,
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    let (parts, body) = request.into_parts();
    let most_lines = downstream.worker.local().plan.settings.bounds.head_lines;
    let request = match request::read(parts, &body, most_lines) {
        Ok(request) => request,
        Err(refused) => {
            let problem = problem_of(refused);
            proxy::note_refused(downstream, problem.status.as_u16());
            let answer = problem.answer(&Correlation::default()).into();
            client::send(&mut respond, &answer, downstream.worker.date().value());
            return;
        }
    };
    let mut client = H2Client::new(body, respond, request.method.clone());
    match proxy::pass(downstream, &mut client, &request).await {
        Passed::Answer(answer) | Passed::Refused(answer) => {
            client.answer(&answer, downstream.worker.date().value())
        }
        Passed::Whole => {}
        Passed::Cut | Passed::Tunnel(_) => client.cut(),
    }
}

fn problem_of(refused: Refused) -> Problem {
    match refused {
        Refused::Malformed(reason) => Problem::bad_request(reason),
        Refused::TooLarge => Problem::headers_too_large("the head of the request is too long"),
        Refused::NotForUs => Problem::method_not_allowed("this is not a forward proxy"),
    }
}
