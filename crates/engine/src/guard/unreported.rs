//! Ends of logins that a shared store does not know yet: the engine reports them again, until the store answers.

use super::{Ending, FinishFault, Guards};
use crate::counters::Counters;
use crate::receipt::Home;
use crate::retry::Retry;
use crate::shared_store::SharedStore;
use tollgate_core::StoreError;

/// The end of a login, to be reported to the store again.
#[derive(Debug)]
pub(crate) struct UnreportedEnd {
    ticket: Box<str>,
    ending: Ending,
}

/// An end that is being reported to the store. Unless it is settled, it is reported again, even if its caller is gone.
pub(super) struct Reporting<'t> {
    /// The store; `None` if it is in this process, or has answered.
    shared: Option<&'t SharedStore>,
    ticket: &'t str,
    ending: Ending,
}

impl<'t> Reporting<'t> {
    pub(super) fn new(counters: &'t Counters, home: Home, ticket: &'t str, ending: Ending) -> Self {
        Self { shared: counters.shared.as_ref().filter(|_| home == Home::Store), ticket, ending }
    }

    /// The store knows the end, or will never accept it.
    pub(super) fn settled(mut self) {
        self.shared = None;
    }
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            let end = UnreportedEnd { ticket: self.ticket.into(), ending: self.ending };
            shared.retries.push(Retry::End(end), shared.gate.now());
        }
    }
}

impl Guards {
    /// Reports the end of a login to the store again. If that fails, it is due again.
    pub(crate) async fn report_again(&self, end: UnreportedEnd) -> Result<(), StoreError> {
        let pinned = self.counters.pin();
        match self.finish(&pinned, &end.ticket, end.ending).await {
            Err(FinishFault::Store(error)) => Err(error),
            Ok(_) | Err(FinishFault::Forged | FinishFault::Receipt) => Ok(()),
        }
    }
}
