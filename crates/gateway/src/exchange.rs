//! One request and its response, between a client and an upstream, in any version of HTTP.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Method;

use crate::alarm::Alarm;
use crate::flow::{Broken, Fault, Flow, Piece, Sink, Source, Waits};
use crate::h1::decode::Decoder;
use crate::h1::request::RequestHead;
use crate::h1::response::{Body, ResponseHead};
use crate::proxy::held::Held;

/// The client's side of an exchange.
pub(crate) trait Client: Source + Sink {
    /// Starts the response with the upstream's head and the added header lines.
    fn begin(&mut self, head: &ResponseHead, added: &[u8]);

    /// Sends `100 Continue` to a client that waits for it before it sends the body.
    fn send_continue(&mut self);

    /// Ready if the client is gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The upstream's side of an exchange.
pub(crate) trait Server: Source + Sink {
    /// Reads the head of the response into `head`. Sets `heard` once any byte has arrived.
    fn poll_response(
        &mut self,
        method: &Method,
        head: &mut ResponseHead,
        heard: &mut bool,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, Failure>;

    /// Prepares to read the body of a response.
    fn expect_body(&mut self, body: Body);

    /// Whether this upstream itself sends `100 Continue` to a client that waits for it.
    const SENDS_CONTINUE: bool;
}

/// How long each side may stay silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Time for the client to send or to accept something.
    pub(crate) client: Duration,
    /// Time for the upstream to send or to accept a piece of a body.
    pub(crate) upstream: Duration,
    /// Time for the head of the response.
    pub(crate) response: Duration,
}

/// How long the gateway waits for the upstream's `100 Continue` before it sends its own.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why there was no complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The client is gone.
    ClientGone,
    /// The client sent nothing more of its body for too long.
    ClientStalled,
    /// The client's body is malformed; the text says how.
    ClientMalformed(&'static str),
    /// The client's body is too long.
    BodyTooLong,
    /// The upstream or the network closed the connection.
    UpstreamGone {
        /// Whether part of a response had arrived.
        heard: bool,
    },
    /// The upstream says that it has not processed the request.
    UpstreamRefused,
    /// The upstream took too long.
    UpstreamLate,
    /// The upstream accepted nothing more of the body for too long.
    UpstreamStalled,
    /// The upstream's response is malformed; the text says how.
    UpstreamMalformed(&'static str),
}

/// An exchange in flight. The request's head is already in the outbox of the upstream's side.
pub(crate) struct Exchange<'e, C, S> {
    client: &'e mut C,
    server: &'e mut S,
    pub(crate) alarm: &'e Alarm,
    pub(crate) patience: Patience,
    pub(crate) upload: Flow,
    /// The head of the response, once it has arrived.
    pub(crate) response: ResponseHead,
    /// Whether the body waits for the upstream's `100 Continue`.
    awaits_continue: bool,
    /// Whether any byte of the upstream has arrived.
    heard: bool,
    /// What the exchange waited for when the alarm was last set, and how many bytes had moved by then.
    waited: Option<(For, u64)>,
}

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Continue,
    ClientBody,
    UpstreamRoom,
    Head,
    UpstreamBody,
    ClientRoom,
}

/// A client that receives a response. A client that has the whole response may send its next request at once,
/// and must find its slot free. So the request's holds are released before the last bytes of the response are
/// sent.
struct Taker<'t, C> {
    client: &'t mut C,
    held: &'t mut Held,
    last: &'t mut Option<Last>,
}

/// The end of a response: trailers, or nothing.
type Last = Option<Piece>;

impl<C: Client> Sink for Taker<'_, C> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.client.poll_room(cx)
    }

    fn put(&mut self, piece: Piece) {
        match piece {
            Piece::Data(_) => self.client.put(piece),
            Piece::Trailers(_) => self.finish(Some(piece)),
        }
    }

    fn end(&mut self) {
        self.finish(None);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        ready!(self.held.poll_free(cx));
        match self.last.take() {
            None => {}
            Some(None) => self.client.end(),
            Some(Some(trailers)) => self.client.put(trailers),
        }
        self.client.poll_flush(cx)
    }
}

impl<C> Taker<'_, C> {
    /// Keeps the end back until the holds are released.
    fn finish(&mut self, last: Last) {
        self.held.let_go();
        *self.last = Some(last);
    }
}

impl<'e, C: Client, S: Server> Exchange<'e, C, S> {
    pub(crate) fn new(
        client: &'e mut C,
        server: &'e mut S,
        alarm: &'e Alarm,
        patience: Patience,
        upload: Flow,
    ) -> Self {
        let response = ResponseHead::default();
        Self {
            client,
            server,
            alarm,
            patience,
            upload,
            response,
            awaits_continue: false,
            heard: false,
            waited: None,
        }
    }

    /// Sends the request, and waits for the head of the response.
    pub(crate) async fn head(&mut self, request: &RequestHead) -> Result<(), Failure> {
        self.awaits_continue = request.expects && !self.upload.is_done();
        if self.awaits_continue && !S::SENDS_CONTINUE {
            self.awaits_continue = false;
            self.client.send_continue();
        }
        poll_fn(|cx| self.poll_head(request, cx)).await
    }

    fn poll_head(&mut self, request: &RequestHead, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            let waits = self.poll_upload(cx)?;
            let Self { server, response, heard, .. } = self;
            if server.poll_response(&request.method, response, heard, cx)?.is_ready() {
                match self.response.status {
                    100 => {
                        if std::mem::take(&mut self.awaits_continue) {
                            self.client.send_continue();
                        }
                    }
                    102..200 => {}
                    _ => return Poll::Ready(Ok(())),
                }
                continue;
            }
            // While a body arrives, reading it shows whether the client is gone.
            if self.upload.is_over() && self.client.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Failure::ClientGone));
            }
            if self.wait(waits, self.upload.moved, cx).is_pending() {
                return Poll::Pending;
            }
            match waits {
                // The upstream stays silent, so the gateway sends `100 Continue` itself.
                For::Continue => {
                    self.awaits_continue = false;
                    self.client.send_continue();
                }
                For::ClientBody => return Poll::Ready(Err(Failure::ClientStalled)),
                For::UpstreamRoom => return Poll::Ready(Err(Failure::UpstreamStalled)),
                _ => return Poll::Ready(Err(Failure::UpstreamLate)),
            }
        }
    }

    /// Forwards the available part of the body. Returns what it waits for.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<For, Failure> {
        if self.awaits_continue || self.upload.is_over() {
            return Ok(match self.server.poll_flush(cx) {
                Poll::Ready(Ok(())) if self.awaits_continue => For::Continue,
                Poll::Pending => For::UpstreamRoom,
                // The upstream may have answered before it closed; reading shows that.
                Poll::Ready(_) => For::Head,
            });
        }
        match self.upload.drive(self.client, self.server, cx) {
            Ok(Waits::Source) => Ok(For::ClientBody),
            Ok(Waits::Sink) => Ok(For::UpstreamRoom),
            Ok(Waits::Neither) => Ok(For::Head),
            Err(Broken::Source(fault)) => Err(match fault {
                Fault::Gone => Failure::ClientGone,
                Fault::Malformed(wrong) => Failure::ClientMalformed(wrong),
                Fault::TooLong => Failure::BodyTooLong,
            }),
            Err(Broken::Sink(_)) => {
                self.upload.abandon();
                Ok(For::Head)
            }
        }
    }

    /// Forwards the response and the rest of the request. Returns once the whole response has been sent; the
    /// error says which side failed. The request's holds are released before the last bytes of the response
    /// are sent.
    pub(crate) async fn body(&mut self, added: &[u8], held: &mut Held) -> Result<(), Failure> {
        if matches!(self.response.body, Body::None | Body::Length(0)) {
            // The response has no body, so the head is the end of it.
            held.end().await;
        }
        self.begin(added);
        self.server.expect_body(self.response.body);
        if self.awaits_continue {
            // The upstream answered without asking for the body.
            self.upload.abandon();
        }
        let (mut download, mut last) = (Flow::new(u64::MAX), None);
        poll_fn(|cx| self.poll_body(&mut download, (held, &mut last), cx)).await
    }

    /// Starts the response with the upstream's head.
    pub(crate) fn begin(&mut self, added: &[u8]) {
        self.client.begin(&self.response, added);
    }

    fn poll_body(
        &mut self,
        download: &mut Flow,
        (held, last): (&mut Held, &mut Option<Last>),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        if !self.upload.is_over() && self.poll_upload(cx).is_err() {
            // The upstream has already answered, so a failed upload does not matter any more.
            self.upload.abandon();
        }
        let mut taker = Taker { client: &mut *self.client, held, last };
        let waits = match download.drive(self.server, &mut taker, cx) {
            Ok(Waits::Neither) => return Poll::Ready(Ok(())),
            Ok(Waits::Source) => For::UpstreamBody,
            Ok(Waits::Sink) => For::ClientRoom,
            Err(Broken::Source(Fault::Malformed(wrong))) => {
                return Poll::Ready(Err(Failure::UpstreamMalformed(wrong)));
            }
            Err(Broken::Source(_)) => return Poll::Ready(Err(Failure::UpstreamGone { heard: true })),
            Err(Broken::Sink(_)) => return Poll::Ready(Err(Failure::ClientGone)),
        };
        if waits == For::UpstreamBody && self.upload.is_over() && self.client.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(Failure::ClientGone));
        }
        let failure =
            if waits == For::UpstreamBody { Failure::UpstreamStalled } else { Failure::ClientStalled };
        self.wait(waits, download.moved + self.upload.moved, cx).map(|()| Err(failure))
    }

    /// Ready if the wait took too long. The alarm is set again whenever bytes have moved or the exchange
    /// waits for something else.
    fn wait(&mut self, what: For, moved: u64, cx: &mut Context<'_>) -> Poll<()> {
        if self.waited != Some((what, moved)) {
            self.waited = Some((what, moved));
            self.alarm.set(match what {
                For::Continue => CONTINUE_TIMEOUT.min(self.patience.response),
                For::ClientBody | For::ClientRoom => self.patience.client,
                For::UpstreamRoom | For::UpstreamBody => self.patience.upstream,
                For::Head => self.patience.response,
            });
        }
        self.alarm.poll(cx)
    }

    /// Whether the request can be sent again after the upstream closed a connection without an answer. The
    /// upstream may have acted on the request, so only safe methods without a body qualify.
    pub(crate) fn is_replayable(&self, request: &RequestHead) -> bool {
        !self.heard && request.method.is_safe() && request.body == Decoder::Empty
    }

    /// Whether no byte of the request's body was read from the client.
    pub(crate) fn is_untouched(&self) -> bool {
        self.upload.moved == 0
    }

    /// Whether both messages are complete and the upstream accepts another request on this connection.
    pub(crate) fn is_whole(&self) -> bool {
        self.upload.is_done() && !self.response.close && self.response.body != Body::UntilClose
    }
}
