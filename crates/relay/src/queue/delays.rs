//! Reports on messages that have waited for long, for senders that asked for them: `NOTIFY=DELAY` (RFC 3461).
//!
//! There is one report for each message. The reason of the delay makes no difference: a limit, a server, or an
//! account.

use redb::ReadableTable;
use tollgate_core::Timestamp;

use super::codec::Row;
use super::item::{Event, EventKind, Final, Item, Kept, RecipientState};
use super::settle::Reporting;
use super::tables::{DELAYS, Tables};
use super::{Queue, QueueError};
use crate::dsn::{self, Action, ReportedRecipient};
use crate::message::{Envelope, MessageId};

/// The most messages that one transaction reports on.
const MOST_REPORTED: usize = 64;
/// The status if the server gave none: a temporary failure for an unknown reason.
const UNDEFINED: &str = "4.0.0";

impl Queue {
    /// Reports on messages that have waited for [`super::QueueOptions::delay_report`] and whose senders asked
    /// for that.
    pub async fn report_delays(&self) -> Result<(), QueueError> {
        let now = self.shared.clock.now();
        let before = now - self.shared.options.delay_report;
        while self.is_delayed(before)? {
            self.write(move |tables, shared| tables.report_delays(before, now, &shared.reporting())).await?;
        }
        Ok(())
    }

    /// Whether there is a message to report on.
    fn is_delayed(&self, before: Timestamp) -> Result<bool, QueueError> {
        let delays = self.read()?.open_table(DELAYS)?;
        Ok(delays.first()?.is_some_and(|(key, _)| key.value().0 <= before.as_micros()))
    }
}

impl Tables<'_> {
    /// Remembers a message whose sender asked for a report of a delay.
    pub(super) fn expect_delay(&mut self, envelope: &Envelope) -> Result<(), redb::Error> {
        if is_wanted(envelope) {
            self.delays.insert((envelope.accepted.as_micros(), envelope.id.0), ())?;
        }
        Ok(())
    }

    /// Forgets a message that [`Self::expect_delay`] remembered.
    pub(super) fn expect_no_delay(&mut self, envelope: &Envelope) -> Result<(), redb::Error> {
        if is_wanted(envelope) {
            self.delays.remove((envelope.accepted.as_micros(), envelope.id.0))?;
        }
        Ok(())
    }

    /// Reports on messages that were accepted before this time, each once.
    fn report_delays(
        &mut self,
        before: Timestamp,
        now: Timestamp,
        reporting: &Reporting<'_>,
    ) -> Result<(), redb::Error> {
        for _ in 0..MOST_REPORTED {
            let Some((key, _)) = self.delays.first()? else { break };
            let (accepted, id) = key.value();
            drop(key);
            if accepted > before.as_micros() {
                break;
            }
            self.delays.remove((accepted, id))?;
            if let Some(kept) = self.message(MessageId(id))?.filter(|kept| kept.finished.is_none()) {
                self.report_delay(&kept, now, reporting)?;
            }
        }
        Ok(())
    }

    fn report_delay(
        &mut self,
        kept: &Kept,
        now: Timestamp,
        reporting: &Reporting<'_>,
    ) -> Result<(), redb::Error> {
        let (id, envelope) = (kept.envelope.id, &kept.envelope);
        let events = self.events_of(id)?;
        let items = self.items_of(id)?;
        let waiting: Vec<(u32, Final)> = items
            .iter()
            .flat_map(|(_, item)| {
                let last = last_word(item, &events, now);
                let waits = item.recipients.iter().filter(|one| one.state == RecipientState::Waiting);
                waits.map(move |one| (one.index, last.clone()))
            })
            .collect();
        let reported: Vec<ReportedRecipient<'_>> = waiting
            .iter()
            .filter_map(|(index, last)| {
                let recipient = envelope.recipients.get(*index as usize).filter(|one| one.notify.delay)?;
                Some(ReportedRecipient { recipient, last, action: Action::Delayed })
            })
            .collect();
        let original = self.original(kept, reporting.disk)?;
        match dsn::compose(envelope, &reported, &original, reporting.hostname, now) {
            Some(report) => self.add_report(id, report, now),
            None => Ok(()),
        }
    }

    fn events_of(&self, id: MessageId) -> Result<Vec<Event>, redb::Error> {
        let mut events = Vec::new();
        for row in self.events.range((id.0, 0)..=(id.0, u32::MAX))? {
            events.extend(Event::decode(row?.1.value()));
        }
        Ok(events)
    }
}

/// Whether the sender of a message asked for a report of a delay.
fn is_wanted(envelope: &Envelope) -> bool {
    envelope.sender.is_some() && envelope.recipients.iter().any(|recipient| recipient.notify.delay)
}

/// The latest state of the recipients that wait: the server's last reply, or the reason why they wait.
fn last_word(item: &Item, events: &[Event], now: Timestamp) -> Final {
    let about = |event: &&Event| {
        event.domain == item.domain
            && matches!(event.kind, EventKind::Failed | EventKind::Unknown | EventKind::Deferred)
    };
    let Some(event) = events.iter().rev().find(about) else {
        let reply = "the message waits for its first attempt".to_owned();
        return Final { at: now, status: UNDEFINED.to_owned(), reply, remote: None, reports: false };
    };
    let mut words = event.text.split(' ');
    let is_reply = words.next().is_some_and(|code| code.len() == 3 && code.starts_with('4'));
    let status = words.next().filter(|status| is_reply && status.starts_with("4."));
    Final {
        at: event.at,
        status: status.unwrap_or(UNDEFINED).to_owned(),
        reply: match event.kind {
            EventKind::Deferred => format!("deferred by a limit: {}", event.text),
            _ => event.text.clone(),
        },
        remote: event.remote.clone().filter(|_| is_reply),
        reports: false,
    }
}
