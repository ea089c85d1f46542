//! A connection to an upstream that many requests share, and its abandoned requests.
//!
//! A client that disconnects must not harm other clients. Many servers take a stream that is reset right
//! after it was opened for an attack ("rapid reset"), and close the whole connection. So a request that is
//! abandoned before its response starts is kept for a moment. A connection with many abandoned requests gets
//! no new ones.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};

use super::stream::Sending;
use super::{CONNECTION_WINDOW, SEND_BUFFER, STREAM_WINDOW};
use crate::alarm::{Alarm, Alarms};
use crate::stream::Stream;

/// The longest head of a response, in bytes.
const MOST_HEAD: u32 = 60 * 1024;
/// How long a request is kept that was abandoned before its response started.
const GRACE: Duration = Duration::from_secs(1);
/// How many abandoned requests are kept at once. The oldest makes room for the next.
const MOST_FORSAKEN: usize = 64;
/// The weight of an abandoned request against a completed one.
const WEIGHT: u32 = 16;
/// A connection gets no new requests once this many more than one in [`WEIGHT`] were abandoned.
const MOST_GIVEN_UP: u32 = 4;

/// A connection that requests share.
#[derive(Clone)]
pub(crate) struct SharedConnection {
    send: SendRequest<Bytes>,
    care: Rc<Care>,
}

/// What the requests of a connection share.
pub(super) struct Care {
    /// The abandoned requests, the oldest first.
    forsaken: RefCell<VecDeque<Forsaken>>,
    /// Expires when the oldest one must be reset.
    alarm: Alarm,
    alarms: Rc<Alarms>,
    /// The weighted number of recently abandoned requests.
    strain: Cell<u32>,
}

/// An abandoned request.
struct Forsaken {
    response: ResponseFuture,
    /// Its outgoing body. Dropping it would reset the stream.
    _sending: Sending,
    until: u32,
}

impl SharedConnection {
    /// Starts HTTP/2 on a connection, and drives it in a task of its own.
    pub(crate) async fn begin(stream: Stream, alarms: &Rc<Alarms>) -> Result<Self, h2::Error> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_window_size(STREAM_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(MOST_HEAD);
        let (send, connection) = builder.handshake(stream).await?;
        let care = Rc::new(Care {
            forsaken: RefCell::default(),
            alarm: alarms.alarm(),
            alarms: Rc::clone(alarms),
            strain: Cell::new(0),
        });
        tokio::task::spawn_local(drive(connection, Rc::clone(&care)));
        Ok(Self { send, care })
    }

    /// Waits until another request can be sent.
    pub(crate) async fn ready(self) -> Result<Self, h2::Error> {
        let Self { send, care } = self;
        Ok(Self { send: send.ready().await?, care })
    }

    /// Whether so many requests were abandoned that new ones should use another connection.
    pub(crate) fn is_strained(&self) -> bool {
        self.care.strain.get() >= MOST_GIVEN_UP * WEIGHT
    }

    pub(super) fn parts(&mut self) -> (&mut SendRequest<Bytes>, Rc<Care>) {
        (&mut self.send, Rc::clone(&self.care))
    }
}

/// Drives a connection until no request uses it or the upstream closes it. Its streams report the latter.
async fn drive(mut connection: Connection<Stream, Bytes>, care: Rc<Care>) {
    let _ = poll_fn(|cx| {
        care.settle(cx);
        Pin::new(&mut connection).poll(cx)
    })
    .await;
    care.forsaken.borrow_mut().clear();
}

impl Care {
    /// Counts a completed request.
    pub(super) fn relieve(&self) {
        self.strain.set(self.strain.get().saturating_sub(1));
    }

    /// Counts an abandoned request.
    pub(super) fn burden(&self) {
        self.strain.set(self.strain.get().saturating_add(WEIGHT));
    }

    /// Keeps an abandoned request for a moment, because its response has not started.
    pub(super) fn forsake(&self, response: ResponseFuture, sending: Sending) {
        self.burden();
        let mut forsaken = self.forsaken.borrow_mut();
        if forsaken.len() == MOST_FORSAKEN {
            forsaken.pop_front();
        }
        if forsaken.is_empty() {
            self.alarm.set(GRACE);
        }
        forsaken.push_back(Forsaken { response, _sending: sending, until: self.alarms.after(GRACE) });
    }

    /// Resets the abandoned requests whose time is up, and those whose response has started: it may be long,
    /// and no client reads it.
    fn settle(&self, cx: &mut Context<'_>) {
        let mut forsaken = self.forsaken.borrow_mut();
        let now = self.alarms.now();
        forsaken.retain_mut(|one| one.until > now && Pin::new(&mut one.response).poll(cx).is_pending());
        while self.alarm.poll(cx) == Poll::Ready(()) {
            match forsaken.front() {
                Some(oldest) => self.alarm.set_at(oldest.until),
                None => self.alarm.unset(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use h2::server;
    use http::{Request, Response};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::LocalSet;

    use super::super::upstream::{H2Upstream, HasBody};
    use super::*;

    /// Both ends of a connection. The server does nothing yet.
    async fn connected(alarms: &Rc<Alarms>) -> (SharedConnection, server::Connection<TcpStream, Bytes>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (shared, server) =
            tokio::join!(SharedConnection::begin(Stream::Plain(stream), alarms), server::handshake(accepted));
        (shared.unwrap(), server.unwrap())
    }

    async fn ask(shared: &SharedConnection) -> H2Upstream {
        let mut ready = shared.clone().ready().await.unwrap();
        let request = Request::get("http://example.com/").body(()).unwrap();
        H2Upstream::new(&mut ready, request, HasBody::No).unwrap_or_else(|_| panic!("it is ready"))
    }

    #[tokio::test]
    async fn many_disconnects_at_once_do_not_break_the_shared_connection() {
        let alarms = Alarms::new();
        let ask_and_leave = async {
            let (shared, mut server) = connected(&alarms).await;
            let mut patient = ask(&shared).await;
            for _ in 0..40 {
                drop(ask(&shared).await);
            }
            // Everything arrives before the server reads any of it, as if the server were busy.
            let mut left = Vec::new();
            while left.len() < 41 {
                let (_, respond) = server.accept().await.unwrap().unwrap();
                left.push(respond);
            }
            left.remove(0).send_response(Response::new(()), true).unwrap();
            let answered = poll_fn(|cx| patient.poll_status(cx));
            let status = tokio::select! {
                status = answered => status,
                _ = server.accept() => panic!("the connection ends"),
            };
            assert_eq!(status, Some(200));
            assert!(shared.is_strained(), "new requests go elsewhere");
            // The server sees the reset once the time is up.
            for _ in 0..11 {
                alarms.tick();
            }
            for mut respond in left {
                let told = poll_fn(|cx| respond.poll_reset(cx));
                tokio::select! {
                    reason = told => assert_eq!(reason.unwrap(), h2::Reason::CANCEL),
                    _ = server.accept() => panic!("the connection ends"),
                }
            }
        };
        LocalSet::new().run_until(ask_and_leave).await;
    }

    #[tokio::test]
    async fn a_few_disconnects_among_many_requests_do_not_strain_a_connection() {
        let alarms = Alarms::new();
        let ask_and_leave = async {
            let (shared, mut server) = connected(&alarms).await;
            tokio::task::spawn_local(async move {
                while let Some(Ok((_, mut respond))) = server.accept().await {
                    respond.send_response(Response::new(()), true).unwrap();
                }
            });
            for _ in 0..10 {
                drop(ask(&shared).await);
                assert!(!shared.is_strained());
                for _ in 0..WEIGHT {
                    let mut patient = ask(&shared).await;
                    assert_eq!(poll_fn(|cx| patient.poll_status(cx)).await, Some(200));
                }
            }
            for _ in 0..MOST_GIVEN_UP {
                assert!(!shared.is_strained());
                drop(ask(&shared).await);
            }
            assert!(shared.is_strained());
        };
        LocalSet::new().run_until(ask_and_leave).await;
    }
}
