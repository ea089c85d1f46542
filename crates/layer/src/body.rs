//! The body of an answer, and what its request holds for as long as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_engine::Lease;

pin_project! {
    /// The body of a service's answer. What its request holds is released as its last frame is handed
    /// over, or when it is dropped.
    #[derive(Debug)]
    pub struct Held<R> {
        #[pin]
        body: R,
        lease: Option<Lease>,
    }
}

impl<R> Held<R> {
    pub(crate) fn new(body: R, lease: Option<Lease>) -> Self {
        Self { body, lease }
    }
}

impl<R: Body> Body for Held<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let mut own = self.project();
        let frame = ready!(own.body.as_mut().poll_frame(context));
        // Who has all of an answer may come back at once, and finds its place free.
        if !matches!(frame, Some(Ok(_))) || own.body.is_end_stream() {
            *own.lease = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
