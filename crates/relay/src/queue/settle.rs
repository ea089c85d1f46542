//! Applies the result of an attempt, a cancellation or a retry to the queue.

use std::io::Read;

use redb::ReadableTable;
use tollgate_core::{Span, Timestamp};

use super::codec::Row;
use super::disk::Disk;
use super::item::{
    AttemptResult, Event, EventKind, Item, ItemKey, ItemRecipient, Kept, OpenAttempt, Place, RecipientState,
};
use super::tables::{Stored, Tables, Waiting, bound, file_name, waiting};
use crate::dsn::{self, Action, Original, ReportedRecipient};
use crate::message::{Envelope, MessageId};

/// The most bytes of the original text in a report.
const MOST_RETURNED: u64 = 64 << 10;

/// The data for making reports.
pub(super) struct Reporting<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) hostname: &'a str,
}

/// A report, and its text.
pub(super) type Report = (Envelope, Vec<u8>);

impl Tables<'_> {
    /// Records the result of an attempt. Returns the item if recipients still wait.
    pub(super) fn finish(
        &mut self,
        key: ItemKey,
        result: AttemptResult,
        reporting: &Reporting<'_>,
    ) -> Result<Option<Waiting>, redb::Error> {
        self.attempts.remove((key.message.0, key.number))?;
        let (Some(mut kept), Some(mut item)) = (self.message(key.message)?, self.item(key)?) else {
            return Ok(None);
        };
        // An operator may have cancelled it during the attempt: it is settled once. But what the server said is known.
        let recipients = kept.envelope.recipients.len();
        if item.waiting().is_empty() {
            for (index, mut state) in result.settled {
                bound_reply(&mut state);
                let cancelled = |one: &&mut ItemRecipient| matches!(one.state, RecipientState::Cancelled(_));
                let mut recipients = item.recipients.iter_mut().filter(cancelled);
                if let Some(recipient) = recipients.find(|one| one.index == index) {
                    recipient.state = state;
                }
            }
            item.possible_duplicate |= result.uncertain;
            self.put_item(key, &item)?;
            self.tell_all(key.message, result.events, recipients)?;
            return Ok(None);
        }
        let now = result.at;
        for (index, mut state) in result.settled {
            bound_reply(&mut state);
            let mut waiting = item.recipients.iter_mut().filter(|one| one.state == RecipientState::Waiting);
            if let Some(recipient) = waiting.find(|one| one.index == index) {
                recipient.state = state;
            }
        }
        item.attempts += u32::from(result.counts);
        // One part of the item may have failed while another was sent. It counts as a failure if recipients
        // wait again.
        item.failures += u32::from(result.counts && result.spent > Span::ZERO);
        item.due = result.due;
        item.spent = Span::from_micros(item.spent.as_micros() + result.spent.as_micros());
        item.possible_duplicate |= result.uncertain;
        self.put_item(key, &item)?;
        self.tell_all(key.message, result.events, recipients)?;
        if !item.waiting().is_empty() {
            return Ok(Some(waiting(key, &kept.envelope, &item)));
        }
        self.close_item(&mut kept, now, reporting)?;
        Ok(None)
    }

    /// Cancels all waiting recipients. Returns whether the message was still waiting.
    pub(super) fn cancel(
        &mut self,
        id: MessageId,
        now: Timestamp,
        reporting: &Reporting<'_>,
    ) -> Result<bool, redb::Error> {
        let Some(mut kept) = self.message(id)?.filter(|kept| kept.finished.is_none()) else {
            return Ok(false);
        };
        let in_flight = self.in_flight(id)?;
        let text = match in_flight {
            0 => String::new(),
            count => {
                format!("{count} recipients are being sent to now: what the next hop says of them follows")
            }
        };
        self.tell(id, Event { text, recipients: in_flight, ..Event::new(now, EventKind::Cancelled) })?;
        for (key, mut item) in self.items_of(id)?.into_iter().filter(|(_, item)| !item.waiting().is_empty()) {
            for recipient in &mut item.recipients {
                if recipient.state == RecipientState::Waiting {
                    recipient.state = RecipientState::Cancelled(now);
                }
            }
            self.put_item(key, &item)?;
            self.close_item(&mut kept, now, reporting)?;
        }
        Ok(true)
    }

    /// The number of recipients of a message in attempts without a known result.
    fn in_flight(&self, id: MessageId) -> Result<u32, redb::Error> {
        let mut count = 0_u32;
        for row in self.attempts.range((id.0, 0)..=(id.0, u32::MAX))? {
            let attempt = OpenAttempt::decode(row?.1.value());
            let recipients = attempt.map_or(0, |attempt| attempt.recipients.len());
            count = count.saturating_add(u32::try_from(recipients).unwrap_or(u32::MAX));
        }
        Ok(count)
    }

    /// Makes all items that wait due now. Returns them.
    pub(super) fn retry(&mut self, id: MessageId, now: Timestamp) -> Result<Vec<Waiting>, redb::Error> {
        let Some(kept) = self.message(id)?.filter(|kept| kept.finished.is_none()) else {
            return Ok(Vec::new());
        };
        self.tell(id, Event::new(now, EventKind::Retried))?;
        let mut due = Vec::new();
        for (key, mut item) in self.items_of(id)?.into_iter().filter(|(_, item)| !item.waiting().is_empty()) {
            // An item that is already due keeps its place.
            item.due = item.due.min(now);
            self.put_item(key, &item)?;
            due.push(waiting(key, &kept.envelope, &item));
        }
        Ok(due)
    }

    /// Forgets a finished message. Returns whether there was one.
    pub(super) fn delete(&mut self, id: MessageId) -> Result<bool, redb::Error> {
        let finished = self.message(id)?.and_then(|kept| kept.finished);
        let Some(at) = finished else { return Ok(false) };
        self.finished.remove((at.as_micros(), id.0))?;
        self.forget(id.0)?;
        Ok(true)
    }

    /// Records that an item is settled. With the last one the message is finished: its text is removed, and one
    /// report gives the sender the requested outcomes of all recipients. So a recipient that a limit defers
    /// delays the report about the others.
    pub(super) fn close_item(
        &mut self,
        kept: &mut Kept,
        now: Timestamp,
        reporting: &Reporting<'_>,
    ) -> Result<(), redb::Error> {
        kept.open_items = kept.open_items.saturating_sub(1);
        self.open_items = self.open_items.saturating_sub(1);
        if kept.open_items > 0 {
            return self.put_message(kept);
        }
        let id = kept.envelope.id;
        if let Some(report) = self.report(kept, now, reporting)? {
            self.add_report(id, report, now)?;
        }
        self.expect_no_delay(&kept.envelope)?;
        match kept.place {
            Place::Table => drop(self.texts.remove(id.0)?),
            Place::File => self.remove.push(file_name(id)),
            Place::Gone => {}
        }
        kept.place = Place::Gone;
        kept.finished = Some(now);
        self.live = self.live.saturating_sub(1);
        self.finished.insert((now.as_micros(), id.0), ())?;
        self.put_message(kept)
    }

    /// Adds a report on a message, and an event to the message's timeline.
    pub(super) fn add_report(
        &mut self,
        on: MessageId,
        (report, text): Report,
        now: Timestamp,
    ) -> Result<(), redb::Error> {
        let id = format!("{:032x}", report.id.0);
        self.add(report, Stored::Held(text))?;
        if let Some(arrived) = self.arrived.last_mut() {
            arrived.reports_on = Some(Box::new(on));
        }
        self.tell(on, Event { text: id, ..Event::new(now, EventKind::Reported) })
    }

    /// The report about a finished message, if one is needed.
    fn report(
        &self,
        kept: &Kept,
        now: Timestamp,
        reporting: &Reporting<'_>,
    ) -> Result<Option<Report>, redb::Error> {
        let items = self.items_of(kept.envelope.id)?;
        let reported: Vec<ReportedRecipient<'_>> =
            items.iter().flat_map(|(_, item)| reported_of(item, &kept.envelope)).collect();
        if reported.is_empty() || kept.envelope.sender.is_none() {
            return Ok(None);
        }
        let original = self.original(kept, reporting.disk)?;
        Ok(dsn::compose(&kept.envelope, &reported, &original, reporting.hostname, now))
    }

    /// The beginning of a message's text.
    pub(super) fn original(&self, kept: &Kept, disk: &dyn Disk) -> Result<Original, redb::Error> {
        let id = kept.envelope.id;
        let mut original = Vec::new();
        match kept.place {
            Place::Table => {
                if let Some(text) = self.texts.get(id.0)? {
                    original.extend(text.value().iter().take(MOST_RETURNED as usize));
                }
            }
            Place::File => {
                // A report without the original text is better than none.
                if let Ok(file) = disk.open(&file_name(id)) {
                    let _ = file.take(MOST_RETURNED).read_to_end(&mut original);
                }
            }
            Place::Gone => {}
        }
        Ok(Original { text: original, size: kept.size })
    }
}

/// Bounds what a server said of a recipient.
fn bound_reply(state: &mut RecipientState) {
    if let RecipientState::Sent(last) | RecipientState::Failed(last) = state {
        bound(&mut last.reply);
    }
}

/// The recipients of an item that the sender is to be told of: those that failed, and, if it asked for that, those that
/// went to a server which does not report itself (RFC 3461, 5.2.2).
fn reported_of<'a>(item: &'a Item, envelope: &'a Envelope) -> impl Iterator<Item = ReportedRecipient<'a>> {
    item.recipients.iter().filter_map(|one| {
        let recipient = envelope.recipients.get(one.index as usize)?;
        let notify = recipient.notify;
        match &one.state {
            RecipientState::Failed(last) if notify.failure => {
                Some(ReportedRecipient { recipient, last, action: Action::Failed })
            }
            RecipientState::Sent(last) if notify.success && !last.reports => {
                Some(ReportedRecipient { recipient, last, action: Action::Relayed })
            }
            RecipientState::Failed(_)
            | RecipientState::Sent(_)
            | RecipientState::Waiting
            | RecipientState::Cancelled(_) => None,
        }
    })
}
