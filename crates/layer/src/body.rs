//! The body of a response, which keeps the holds of its request until its end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_engine::Lease;
use tollgate_engine::leases::Released;

pin_project! {
    /// The body of a service's response. The holds of its request are released before its last frame is
    /// returned, or when it is dropped.
    pub struct Held<R: Body> {
        #[pin]
        body: R,
        lease: Option<Lease>,
        parting: Option<Parting<R>>,
    }
}

/// The last frame of a body, which waits until the holds of its request are released.
struct Parting<R: Body> {
    released: Released,
    last: Next<R>,
}

/// The next frame of a body.
type Next<R> = Option<Result<Frame<<R as Body>::Data>, <R as Body>::Error>>;

impl<R: Body> Held<R> {
    pub(crate) fn new(body: R, lease: Option<Lease>) -> Self {
        Self { body, lease, parting: None }
    }
}

impl<R: Body> Body for Held<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Next<R>> {
        let mut own = self.project();
        if own.parting.is_none() {
            let next = ready!(own.body.as_mut().poll_frame(context));
            let is_last = !matches!(next, Some(Ok(_))) || own.body.is_end_stream();
            // A client that has the whole response may send its next request at once, and must find its slot
            // free.
            match own.lease.take_if(|_| is_last) {
                None => return Poll::Ready(next),
                Some(lease) => *own.parting = Some(Parting { released: lease.release(), last: next }),
            }
        }
        if let Some(parting) = own.parting {
            ready!(Pin::new(&mut parting.released).poll(context));
        }
        Poll::Ready(own.parting.take().and_then(|parting| parting.last))
    }

    fn is_end_stream(&self) -> bool {
        self.parting.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.parting {
            Some(Parting { last: Some(Ok(frame)), .. }) => {
                SizeHint::with_exact(frame.data_ref().map_or(0, |data| bytes::Buf::remaining(data) as u64))
            }
            _ => self.body.size_hint(),
        }
    }
}

impl<R: Body> fmt::Debug for Held<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("lease", &self.lease).finish_non_exhaustive()
    }
}
