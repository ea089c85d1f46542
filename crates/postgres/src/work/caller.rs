//! A caller that waits for an answer of one type. It is answered at most once: by the transaction that does its
//! work, or with an error by whichever part finds that this will not happen in time.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tollgate_core::StoreError;

use super::Reply;

/// A caller that waits for a `T`.
pub(crate) struct Caller<T>(Arc<Mutex<Option<Sender<T>>>>);

type Sender<T> = oneshot::Sender<Result<T, StoreError>>;

/// A caller that can only be given errors.
pub(crate) trait Failing: Send + Sync {
    /// Gives the caller this error, unless it has an answer.
    fn fail(&self, error: StoreError);
}

impl<T: Send + 'static> Caller<T> {
    /// A caller, and where its answer arrives.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// Answers it later.
    pub(crate) fn reply(&self, answer: T) -> Reply {
        let caller = self.clone();
        Box::new(move || caller.answer(Ok(answer)))
    }

    fn answer(&self, answer: Result<T, StoreError>) {
        if let Some(sender) = self.0.lock().take() {
            // A caller that is gone needs no answer.
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
