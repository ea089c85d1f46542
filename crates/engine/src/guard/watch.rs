//! What is kept in mind of attempts that have begun and not ended, where that matters: those that lock or
//! notify somebody if they fail. Only so many; the others are locked all the same, and nobody is told.

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tollgate_core::{Policies, Ticket, Timestamp};

use super::Notice;
use crate::meter::GuardMeters;

/// The attempts that are waited for, and what is told of those that failed.
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

/// The most attempts that are waited for.
const MOST: usize = 10_000;

impl Watch {
    pub(crate) fn new(policies: &Policies) -> Self {
        let meters = GuardMeters::default();
        meters.know(policies);
        Self { open: Mutex::default(), taker: Mutex::default(), meters }
    }

    /// Waits for an attempt to end, up to a moment.
    pub(super) fn keep(&self, ticket: Ticket, due: Timestamp, text: &str) {
        let mut open = self.open.lock();
        if open.len() < MOST {
            open.insert(ticket, Open { due, ticket: text.into() });
        } else {
            self.meters.missed.inc();
        }
    }

    /// An attempt has ended.
    pub(super) fn forget(&self, ticket: Ticket) {
        self.open.lock().remove(&ticket);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }

    /// Takes out the attempts whose time is over.
    pub(super) fn take_due(&self, now: Timestamp) -> Vec<(Ticket, Timestamp, Box<str>)> {
        let mut open = self.open.lock();
        let due = open.extract_if(|_, attempt| attempt.due <= now);
        due.map(|(ticket, attempt)| (ticket, attempt.due, attempt.ticket)).collect()
    }
}
