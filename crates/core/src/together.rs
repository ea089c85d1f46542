//! Waits for several futures concurrently.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::task::Poll;

/// Runs all futures concurrently, and returns their results in their order. They are also started in their
/// order: each runs until it first has to wait before the next one starts.
pub async fn join_all<F: Future + Send>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut ready = true;
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(done) => *output = Some(done),
                Poll::Pending => ready = false,
            }
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}
