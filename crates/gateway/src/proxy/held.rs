//! The holds of a request on limits of what is in flight at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tollgate_engine::Lease;
use tollgate_engine::leases::Released;

/// The holds of a request by its route's policy and its guard; mostly none. Dropping it releases them.
#[derive(Default)]
pub(crate) struct Held {
    leases: SmallVec<[Lease; 1]>,
    /// Releases that the store may not have completed yet.
    parting: SmallVec<[Released; 1]>,
}

impl Held {
    pub(super) fn add(&mut self, lease: Lease) {
        self.leases.push(lease);
    }

    /// Starts to release every hold.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        if !self.leases.is_empty() {
            self.parting.extend(self.leases.drain(..).map(Lease::release));
        }
    }

    /// Ready when every release is complete, as far as the store can be reached.
    #[inline]
    pub(crate) fn poll_free(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(released) = self.parting.last_mut() {
            ready!(Pin::new(released).poll(cx));
            self.parting.pop();
        }
        Poll::Ready(())
    }

    /// Releases every hold and waits until that is complete.
    pub(crate) async fn end(&mut self) {
        self.let_go();
        poll_fn(|cx| self.poll_free(cx)).await;
    }
}
