//! An announced message: its sender and its recipients.

use super::address::Address;
use super::command::{Mail, Rcpt};
use crate::message::{Recipient, ReportWish};

/// A message between MAIL and the end of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    sender: Option<Address>,
    recipients: Vec<Recipient>,
    most_recipients: usize,
    size: Option<u64>,
    utf8: bool,
    report: ReportWish,
}

/// The result of adding a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The recipient was added.
    Now,
    /// The recipient is named twice, and gets one copy.
    Before,
    /// The transaction has its most recipients already.
    TooMany(usize),
}

impl Transaction {
    pub(super) fn new(mail: Mail, most_recipients: usize) -> Self {
        let Mail { sender, size, utf8, return_full, envelope_id } = mail;
        let report = ReportWish { full: return_full.unwrap_or(false), envelope_id };
        Self { sender, recipients: Vec::new(), most_recipients, size, utf8, report }
    }

    /// The sender; `None` is the null sender.
    pub fn sender(&self) -> Option<&Address> {
        self.sender.as_ref()
    }

    pub fn recipients(&self) -> &[Recipient] {
        &self.recipients
    }

    /// The size that the client announced.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether the client asked for SMTPUTF8.
    pub fn utf8(&self) -> bool {
        self.utf8
    }

    /// The delivery reports that the sender wishes.
    pub fn report(&self) -> &ReportWish {
        &self.report
    }

    /// Allows fewer recipients than the server does in general.
    pub(super) fn bound_recipients(&mut self, most: usize) {
        self.most_recipients = self.most_recipients.min(most);
    }

    /// Adds a recipient.
    pub(super) fn add(&mut self, rcpt: Rcpt) -> Added {
        let Rcpt { address, notify, original } = rcpt;
        if self.recipients.iter().any(|known| known.address == address.text) {
            return Added::Before;
        }
        if self.recipients.len() >= self.most_recipients {
            return Added::TooMany(self.most_recipients);
        }
        let notify = notify.unwrap_or_default();
        self.recipients.push(Recipient { address: address.text, domain: address.domain, notify, original });
        Added::Now
    }
}
