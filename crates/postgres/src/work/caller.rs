//! A caller that waits for an answer of one type. It gets at most one answer: from the transaction that does
//! its work, or an error from the part that finds that this will not happen in time.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tollgate_core::StoreError;

use super::Reply;

pub(crate) struct Caller<T>(Arc<Mutex<Option<Sender<T>>>>);

type Sender<T> = oneshot::Sender<Result<T, StoreError>>;

/// A caller that this code can only send errors to.
pub(crate) trait Failing: Send + Sync {
    /// Sends the caller this error, unless it already has an answer.
    fn fail(&self, error: StoreError);
}

impl<T: Send + 'static> Caller<T> {
    /// A caller, and the receiver of its answer.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// A function that sends this answer when it is called.
    pub(crate) fn reply(&self, answer: T) -> Reply {
        let caller = self.clone();
        Box::new(move || caller.answer(Ok(answer)))
    }

    fn answer(&self, answer: Result<T, StoreError>) {
        if let Some(sender) = self.0.lock().take() {
            // If the caller stopped waiting, nobody needs the answer.
            let _ = sender.send(answer);
        }
    }
}

impl<T: Send + 'static> Failing for Caller<T> {
    fn fail(&self, error: StoreError) {
        self.answer(Err(error));
    }
}

impl<T> Clone for Caller<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
