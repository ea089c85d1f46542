//! One request and its response: between a client and an upstream, however they speak.

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

/// Who asks.
pub(crate) trait Client: Source + Sink {
    /// Begins the answer with an upstream's head, and with header lines that are added to it.
    fn begin(&mut self, head: &ResponseHead, added: &[u8]);

    /// Tells a client that waits for it to send the body.
    fn go_on(&mut self);

    /// Whether it is gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Who answers.
pub(crate) trait Server: Source + Sink {
    /// The head of the response, into one that is there. `heard` is set once anything has come.
    fn poll_response(
        &mut self,
        method: &Method,
        head: &mut ResponseHead,
        heard: &mut bool,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, Failure>;

    /// Gets ready for the body of a response.
    fn expect_body(&mut self, body: Body);

    /// Whether it tells a client that waits for it to send the body.
    const GIVES_LEAVE: bool;
}

/// How long one may wait for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the client, to send or to take something.
    pub(crate) client: Duration,
    /// For the upstream, to send or to take something of a body.
    pub(crate) upstream: Duration,
    /// For the head of the response.
    pub(crate) response: Duration,
}

/// How long an upstream may leave a client that waits to be told to go on waiting.
const LEAVE: Duration = Duration::from_secs(1);

/// Why there was no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The client is gone.
    ClientGone,
    /// The client sent nothing more of its body for too long.
    ClientStalled,
    /// The client's body is malformed; in words.
    ClientMalformed(&'static str),
    /// The client's body is too long.
    BodyTooLong,
    /// The upstream closed the connection, or the network did.
    UpstreamGone {
        /// Whether something of a response had come.
        heard: bool,
    },
    /// The upstream says that it has not looked at the request.
    UpstreamRefused,
    /// The upstream took too long.
    UpstreamLate,
    /// The upstream took nothing more of the body for too long.
    UpstreamStalled,
    /// The upstream sent what is not HTTP; in words.
    UpstreamMalformed(&'static str),
}

/// An exchange under way: the request's head was put into the outbox of the upstream's side.
pub(crate) struct Exchange<'e, C, S> {
    client: &'e mut C,
    server: &'e mut S,
    pub(crate) alarm: &'e Alarm,
    pub(crate) patience: Patience,
    pub(crate) upload: Flow,
    /// The head of the response, once it came.
    pub(crate) response: ResponseHead,
    /// Whether the body waits for the upstream's leave.
    held: bool,
    /// Whether anything was heard of the upstream.
    heard: bool,
    /// What was waited for when the alarm was set last, and how much had moved then.
    waited: Option<(For, u64)>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Leave,
    ClientBody,
    UpstreamRoom,
    Head,
    UpstreamBody,
    ClientRoom,
}

/// A client that takes a response. Who has all of it may come back at once, and finds its place free:
/// what the request holds is let go of, and the last of the response leaves once it is free.
struct Taker<'t, C> {
    client: &'t mut C,
    held: &'t mut Held,
    last: &'t mut Option<Last>,
}

/// What a response ends with: trailers, or nothing more.
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
    /// Keeps the end back until it is asked to leave.
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
        Self { client, server, alarm, patience, upload, response, held: false, heard: false, waited: None }
    }

    /// Sends the request, and waits for the head of the response.
    pub(crate) async fn head(&mut self, request: &RequestHead) -> Result<(), Failure> {
        self.held = request.expects && !self.upload.is_done();
        if self.held && !S::GIVES_LEAVE {
            self.held = false;
            self.client.go_on();
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
                        if std::mem::take(&mut self.held) {
                            self.client.go_on();
                        }
                    }
                    102..200 => {}
                    _ => return Poll::Ready(Ok(())),
                }
                continue;
            }
            // While a body comes, its end is noticed there.
            if self.upload.is_over() && self.client.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Failure::ClientGone));
            }
            if self.wait(waits, self.upload.moved, cx).is_pending() {
                return Poll::Pending;
            }
            match waits {
                // An upstream that says nothing leaves it to us.
                For::Leave => {
                    self.held = false;
                    self.client.go_on();
                }
                For::ClientBody => return Poll::Ready(Err(Failure::ClientStalled)),
                For::UpstreamRoom => return Poll::Ready(Err(Failure::UpstreamStalled)),
                _ => return Poll::Ready(Err(Failure::UpstreamLate)),
            }
        }
    }

    /// Sends on what there is of the body. Answers what is waited for.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<For, Failure> {
        if self.held || self.upload.is_over() {
            return Ok(match self.server.poll_flush(cx) {
                Poll::Ready(Ok(())) if self.held => For::Leave,
                Poll::Pending => For::UpstreamRoom,
                // It may have answered before it closed, which reading will show.
                Poll::Ready(_) => For::Head,
            });
        }
        match self.upload.drive(self.client, self.server, cx) {
            Ok(Waits::Source) => Ok(For::ClientBody),
            Ok(Waits::Sink) => Ok(For::UpstreamRoom),
            Ok(Waits::Nobody) => Ok(For::Head),
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

    /// Passes the response on, and what is left of the request. Answers whether all of the response
    /// has left; if not, this says who is to blame. What the request holds is free before the last
    /// of the response leaves.
    pub(crate) async fn body(&mut self, added: &[u8], held: &mut Held) -> Result<(), Failure> {
        if matches!(self.response.body, Body::None | Body::Length(0)) {
            // The head is the last of it.
            held.end().await;
        }
        self.begin(added);
        self.server.expect_body(self.response.body);
        if self.held {
            // It answers without wanting the body.
            self.upload.abandon();
        }
        let (mut download, mut last) = (Flow::new(u64::MAX), None);
        poll_fn(|cx| self.poll_body(&mut download, (held, &mut last), cx)).await
    }

    /// Begins to answer with the head of the response.
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
            // The response tells the upstream's view of it.
            self.upload.abandon();
        }
        let mut taker = Taker { client: &mut *self.client, held, last };
        let waits = match download.drive(self.server, &mut taker, cx) {
            Ok(Waits::Nobody) => return Poll::Ready(Ok(())),
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

    /// Whether it took too long. The alarm is set anew whenever something has moved, or something
    /// else is waited for.
    fn wait(&mut self, what: For, moved: u64, cx: &mut Context<'_>) -> Poll<()> {
        if self.waited != Some((what, moved)) {
            self.waited = Some((what, moved));
            self.alarm.set(match what {
                For::Leave => LEAVE.min(self.patience.response),
                For::ClientBody | For::ClientRoom => self.patience.client,
                For::UpstreamRoom | For::UpstreamBody => self.patience.upstream,
                For::Head => self.patience.response,
            });
        }
        self.alarm.poll(cx)
    }

    /// Whether the request can be sent again after the upstream closed a connection without a word: it
    /// may have acted on it, so only where that changes nothing.
    pub(crate) fn is_replayable(&self, request: &RequestHead) -> bool {
        !self.heard && request.method.is_safe() && request.body == Decoder::Empty
    }

    /// Whether nothing of the request's body was taken from the client.
    pub(crate) fn is_untouched(&self) -> bool {
        self.upload.moved == 0
    }

    /// Whether both messages were whole, and the upstream would take another.
    pub(crate) fn is_whole(&self) -> bool {
        self.upload.is_done() && !self.response.close && self.response.body != Body::UntilClose
    }
}
