//! Bodies that are read before they are forwarded, because a guard looks for an account in them.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use tollgate_web::Problem;
use tollgate_web::facts::{Body, BodyKind, Unreadable};

use super::Case;
use crate::exchange::Client;
use crate::flow::{Fault, Piece, Sink, Source};
use crate::forward::Origin;
use crate::h1::decode::Decoder;
use crate::h1::response::ResponseHead;
use crate::worker::Worker;

/// How many body bytes are buffered for one connection. HTTP/2 may send many bodies at once.
const MOST_KEPT: usize = 4 * Body::MOST_BYTES;
/// How many bytes of bodies are kept for all connections of a worker.
const MOST_KEPT_IN_ALL: usize = 256 * Body::MOST_BYTES;

/// A body that was read to its end and is still to be forwarded, unchanged.
#[derive(Default)]
pub(super) struct Ahead {
    bytes: Bytes,
    trailers: Option<HeaderMap>,
    _kept: Option<Kept>,
}

/// Counts the bytes that are kept, for as long as they are.
struct Kept {
    worker: Rc<Worker>,
    origin: Rc<Origin>,
    bytes: usize,
}

impl Kept {
    fn nothing(worker: &Rc<Worker>, origin: &Rc<Origin>) -> Self {
        Self { worker: Rc::clone(worker), origin: Rc::clone(origin), bytes: 0 }
    }

    /// Counts more bytes. An error says in words which bound has no room for them.
    fn add(&mut self, bytes: usize) -> Result<(), &'static str> {
        let here = self.origin.kept.get() + bytes;
        let in_all = self.worker.kept.get() + bytes;
        if here > MOST_KEPT {
            return Err("too many logins are sent at once over this connection");
        }
        if in_all > MOST_KEPT_IN_ALL {
            return Err("too many logins are sent at once");
        }
        self.origin.kept.set(here);
        self.worker.kept.set(in_all);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.origin.kept.set(self.origin.kept.get() - self.bytes);
        self.worker.kept.set(self.worker.kept.get() - self.bytes);
    }
}

/// A client whose body was already read.
pub(super) struct Replaying<'c, C> {
    client: &'c mut C,
    ahead: Ahead,
}

/// Why a body was not read.
pub(super) enum Unread {
    /// The client is gone.
    Gone,
    Problem(Problem),
}

impl Ahead {
    pub(super) fn replay<C: Client>(self, client: &mut C) -> Replaying<'_, C> {
        Replaying { client, ahead: self }
    }
}

impl Case<'_> {
    /// Reads the body of the request, if it is short enough and of a readable kind.
    pub(super) async fn read_ahead<C: Client>(&self, client: &mut C) -> Result<(Body, Ahead), Unread> {
        if self.request.body == Decoder::Empty {
            return Ok(Default::default());
        }
        let kind = BodyKind::of(self.request.headers())
            .map_err(|unreadable| Unread::Problem(refusal(unreadable)))?;
        let most = self.most_bytes().min(Body::MOST_BYTES);
        let too_large = || Unread::Problem(Problem::too_large(most));
        if matches!(self.request.body, Decoder::Length(length) if length > most as u64) {
            return Err(too_large());
        }
        if self.request.expects {
            client.send_continue();
        }
        let mut bytes = BytesMut::new();
        let mut trailers = None;
        let mut kept = Kept::nothing(&self.downstream.worker, &self.downstream.origin);
        let reading = poll_fn(|cx| {
            loop {
                match ready!(client.poll_piece(cx)) {
                    Ok(Some(Piece::Data(piece))) => {
                        if bytes.len() + piece.len() > most {
                            return Poll::Ready(Err(too_large()));
                        }
                        if let Err(full) = kept.add(piece.len()) {
                            return Poll::Ready(Err(Unread::Problem(Problem::unavailable(full))));
                        }
                        bytes.extend_from_slice(&piece);
                    }
                    Err(Fault::TooLong) => return Poll::Ready(Err(too_large())),
                    Ok(Some(Piece::Trailers(last))) => {
                        trailers = Some(last);
                        return Poll::Ready(Ok(()));
                    }
                    Ok(None) => return Poll::Ready(Ok(())),
                    Err(Fault::Gone) => return Poll::Ready(Err(Unread::Gone)),
                    Err(Fault::Malformed(wrong)) => {
                        return Poll::Ready(Err(Unread::Problem(Problem::bad_request(wrong))));
                    }
                }
            }
        });
        // A body this short must arrive completely within the time-out that is otherwise for a single piece.
        let patience = self.local.plan.settings.bounds.stall_timeout;
        match self.downstream.alarm.within(patience, reading).await {
            Ok(read) => read?,
            Err(_) => {
                let detail = "the body of the request did not come in time";
                return Err(Unread::Problem(Problem::too_late(detail)));
            }
        }
        let bytes = bytes.freeze();
        Ok((Body::new(kind, bytes.clone()), Ahead { bytes, trailers, _kept: Some(kept) }))
    }
}

fn refusal(unreadable: Unreadable) -> Problem {
    match unreadable {
        Unreadable::Media => Problem::unsupported_media(
            "logins are sent here as a form or as JSON, in UTF-8 and not compressed",
        ),
        Unreadable::ContentType => Problem::bad_request(
            "the content type of a login has no parameter but `charset=utf-8`: parsers read others differently",
        ),
    }
}

impl<C: Client> Source for Replaying<'_, C> {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
        let Ahead { bytes, trailers, .. } = &mut self.ahead;
        let piece = match bytes.is_empty() {
            false => Some(Piece::Data(std::mem::take(bytes))),
            true => trailers.take().map(Piece::Trailers),
        };
        Poll::Ready(Ok(piece))
    }
}

impl<C: Client> Sink for Replaying<'_, C> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.client.poll_room(cx)
    }

    fn put(&mut self, piece: Piece) {
        self.client.put(piece);
    }

    fn end(&mut self) {
        self.client.end();
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.client.poll_flush(cx)
    }
}

impl<C: Client> Client for Replaying<'_, C> {
    fn begin(&mut self, head: &ResponseHead, added: &[u8]) {
        self.client.begin(head, added);
    }

    /// The client got its `100 Continue` when the body was read.
    fn send_continue(&mut self) {}

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }
}
