//! What a request holds of limits on what is under way at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tollgate_engine::Lease;
use tollgate_engine::leases::Released;

/// What a request holds by its route's limits and its guard's: in most cases nothing. Dropped, it is
/// released.
#[derive(Default)]
pub(crate) struct Held {
    leases: SmallVec<[Lease; 1]>,
    /// What was let go of, and may not be free yet.
    parting: SmallVec<[Released; 1]>,
}

impl Held {
    pub(super) fn add(&mut self, lease: Lease) {
        self.leases.push(lease);
    }

    /// Lets go of everything.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        if !self.leases.is_empty() {
            self.parting.extend(self.leases.drain(..).map(Lease::release));
        }
    }

    /// Ready when what was let go of is free for the next, as far as the store can be told.
    #[inline]
    pub(crate) fn poll_free(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(released) = self.parting.last_mut() {
            ready!(Pin::new(released).poll(cx));
            self.parting.pop();
        }
        Poll::Ready(())
    }

    /// Lets go of everything, and waits until it is free for the next.
    pub(crate) async fn end(&mut self) {
        self.let_go();
        poll_fn(|cx| self.poll_free(cx)).await;
    }
}
