//! The open attempts whose failure locks or notifies. Their number is bounded. An attempt beyond the bound
//! still locks, but if its caller never ends it, the lock is not reported.

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tollgate_core::{Policies, Ticket, Timestamp};

use super::Notice;
use crate::meter::GuardMeters;

/// The open attempts, and the receiver of notices.
pub(crate) struct Watch {
    open: Mutex<HashMap<Ticket, Open>>,
    pub(super) taker: Mutex<Option<mpsc::Sender<Notice>>>,
    pub(crate) meters: GuardMeters,
}

/// An attempt that has not ended.
struct Open {
    due: Timestamp,
    ticket: Box<str>,
}

/// The most attempts that are watched at once.
const MOST: usize = 10_000;

impl Watch {
    pub(crate) fn new(policies: &Policies) -> Self {
        let meters = GuardMeters::default();
        meters.know(policies);
        Self { open: Mutex::default(), taker: Mutex::default(), meters }
    }

    /// Watches an attempt until it ends or is due. If too many are watched, it is only counted as missed.
    pub(super) fn keep(&self, ticket: Ticket, due: Timestamp, text: &str) {
        let mut open = self.open.lock();
        if open.len() < MOST {
            open.insert(ticket, Open { due, ticket: text.into() });
        } else {
            self.meters.missed.inc();
        }
    }

    /// Stops watching an attempt that has ended.
    pub(super) fn forget(&self, ticket: Ticket) {
        self.open.lock().remove(&ticket);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }

    /// Removes the attempts that are due, and returns them.
    pub(super) fn take_due(&self, now: Timestamp) -> Vec<(Ticket, Timestamp, Box<str>)> {
        let mut open = self.open.lock();
        let due = open.extract_if(|_, attempt| attempt.due <= now);
        due.map(|(ticket, attempt)| (ticket, attempt.due, attempt.ticket)).collect()
    }
}
