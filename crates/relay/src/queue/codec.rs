//! Encodes the rows of the queue. Every row ends in a checksum, so that damage is noticed.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use tollgate_core::{Span, Timestamp};

use super::item::{Event, EventKind, Final, Item, ItemRecipient, Kept, OpenAttempt, Place, RecipientState};
use crate::lanes::Priority;
use crate::message::{Envelope, MessageId, Needs, Notify, Origin, Recipient, ReportWish};

/// The checksum of a text or a row.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// A value that is stored as a row.
pub(crate) trait Row: Sized {
    fn write(&self, out: &mut RowWriter);
    fn read(from: &mut RowReader<'_>) -> Option<Self>;

    /// The row's bytes.
    fn encode(&self) -> Vec<u8> {
        let mut writer = RowWriter(Vec::with_capacity(128));
        self.write(&mut writer);
        let sum = checksum(&writer.0);
        writer.u64(sum);
        writer.0
    }

    /// Reads a row; `None` if it is damaged.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (row, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(row) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut reader = RowReader(row);
        let value = Self::read(&mut reader)?;
        reader.0.is_empty().then_some(value)
    }
}

/// Writes the parts of a row.
pub(crate) struct RowWriter(Vec<u8>);

/// Reads the parts of a row.
pub(crate) struct RowReader<'a>(&'a [u8]);

impl RowWriter {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn count(&mut self, value: usize) {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX));
    }

    fn time(&mut self, value: Timestamp) {
        self.u64(value.as_micros());
    }

    fn text(&mut self, value: &str) {
        self.count(value.len());
        self.0.extend_from_slice(value.as_bytes());
    }

    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

impl<'a> RowReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.u64().map(Timestamp::from_micros)
    }

    fn text(&mut self) -> Option<String> {
        let count = self.u32()? as usize;
        String::from_utf8(self.take(count)?.to_vec()).ok()
    }

    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    fn many<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        // No capacity up front: a damaged count must not reserve memory.
        (0..count).map(|_| read(self)).collect()
    }
}

impl Row for Kept {
    fn write(&self, out: &mut RowWriter) {
        let envelope = &self.envelope;
        out.0.extend_from_slice(&envelope.id.0.to_le_bytes());
        out.text(&envelope.tenant);
        out.maybe(envelope.account.as_deref(), RowWriter::text);
        out.u8(match envelope.priority {
            Priority::High => 0,
            Priority::Normal => 1,
            Priority::Low => 2,
        });
        out.maybe(envelope.sender.as_deref(), RowWriter::text);
        out.count(envelope.recipients.len());
        for recipient in &envelope.recipients {
            out.text(&recipient.address);
            out.text(&recipient.domain);
            out.flag(recipient.notify.success);
            out.flag(recipient.notify.failure);
            out.flag(recipient.notify.delay);
            out.maybe(recipient.original.as_deref(), RowWriter::text);
        }
        out.time(envelope.accepted);
        out.flag(envelope.needs.eight_bit);
        out.flag(envelope.needs.utf8);
        out.flag(envelope.report.full);
        out.maybe(envelope.report.envelope_id.as_deref(), RowWriter::text);
        out.maybe(envelope.message_id.as_deref(), RowWriter::text);
        let Origin { client, user, api_key } = &envelope.origin;
        out.maybe(client.map(|client| client.to_string()).as_deref(), RowWriter::text);
        out.maybe(user.as_deref(), RowWriter::text);
        out.maybe(api_key.as_deref(), RowWriter::text);
        out.u8(match self.place {
            Place::Table => 0,
            Place::File => 1,
            Place::Gone => 2,
        });
        out.u64(self.size);
        out.u64(self.checksum);
        out.u32(self.open_items);
        out.maybe(self.finished, RowWriter::time);
    }

    fn read(from: &mut RowReader<'_>) -> Option<Self> {
        let id = MessageId(u128::from_le_bytes(from.take(16)?.try_into().ok()?));
        let tenant = from.text()?;
        let account = from.maybe(RowReader::text)?;
        let priority = match from.u8()? {
            0 => Priority::High,
            1 => Priority::Normal,
            2 => Priority::Low,
            _ => return None,
        };
        let sender = from.maybe(RowReader::text)?;
        let recipients = from.many(|from| {
            let (address, domain) = (from.text()?, from.text()?);
            let notify = Notify { success: from.flag()?, failure: from.flag()?, delay: from.flag()? };
            Some(Recipient { address, domain, notify, original: from.maybe(RowReader::text)? })
        })?;
        let accepted = from.time()?;
        let needs = Needs { eight_bit: from.flag()?, utf8: from.flag()? };
        let report = ReportWish { full: from.flag()?, envelope_id: from.maybe(RowReader::text)? };
        let message_id = from.maybe(RowReader::text)?;
        let client = from.maybe(|from| from.text()?.parse().ok())?;
        let (user, api_key) = (from.maybe(RowReader::text)?, from.maybe(RowReader::text)?);
        let origin = Origin { client, user, api_key };
        let place = match from.u8()? {
            0 => Place::Table,
            1 => Place::File,
            2 => Place::Gone,
            _ => return None,
        };
        // The idempotency key has a table of its own.
        let idempotency = None;
        let envelope = Envelope {
            id,
            tenant,
            account,
            priority,
            sender,
            recipients,
            accepted,
            needs,
            report,
            message_id,
            origin,
            idempotency,
        };
        Some(Self {
            envelope,
            place,
            size: from.u64()?,
            checksum: from.u64()?,
            open_items: from.u32()?,
            finished: from.maybe(RowReader::time)?,
        })
    }
}

impl Row for Item {
    fn write(&self, out: &mut RowWriter) {
        out.text(&self.domain);
        out.count(self.recipients.len());
        for recipient in &self.recipients {
            out.u32(recipient.index);
            match &recipient.state {
                RecipientState::Waiting => out.u8(0),
                RecipientState::Sent(last) => {
                    out.u8(1);
                    last.write(out);
                }
                RecipientState::Failed(last) => {
                    out.u8(2);
                    last.write(out);
                }
                RecipientState::Cancelled(at) => {
                    out.u8(3);
                    out.time(*at);
                }
            }
        }
        out.u32(self.attempts);
        out.u32(self.failures);
        out.time(self.due);
        out.u64(self.spent.as_micros());
        out.flag(self.possible_duplicate);
    }

    fn read(from: &mut RowReader<'_>) -> Option<Self> {
        let domain = from.text()?;
        let recipients = from.many(|from| {
            let index = from.u32()?;
            let state = match from.u8()? {
                0 => RecipientState::Waiting,
                1 => RecipientState::Sent(Final::read(from)?),
                2 => RecipientState::Failed(Final::read(from)?),
                3 => RecipientState::Cancelled(from.time()?),
                _ => return None,
            };
            Some(ItemRecipient { index, state })
        })?;
        Some(Self {
            domain,
            recipients,
            attempts: from.u32()?,
            failures: from.u32()?,
            due: from.time()?,
            spent: Span::from_micros(from.u64()?),
            possible_duplicate: from.flag()?,
        })
    }
}

impl Row for Final {
    fn write(&self, out: &mut RowWriter) {
        out.time(self.at);
        out.text(&self.status);
        out.text(&self.reply);
        out.maybe(self.remote.as_deref(), RowWriter::text);
        out.flag(self.reports);
    }

    fn read(from: &mut RowReader<'_>) -> Option<Self> {
        Some(Self {
            at: from.time()?,
            status: from.text()?,
            reply: from.text()?,
            remote: from.maybe(RowReader::text)?,
            reports: from.flag()?,
        })
    }
}

impl Row for OpenAttempt {
    fn write(&self, out: &mut RowWriter) {
        out.time(self.at);
        out.maybe(self.account.as_deref(), RowWriter::text);
        out.count(self.recipients.len());
        self.recipients.iter().for_each(|index| out.u32(*index));
    }

    fn read(from: &mut RowReader<'_>) -> Option<Self> {
        Some(Self {
            at: from.time()?,
            account: from.maybe(RowReader::text)?,
            recipients: from.many(RowReader::u32)?,
        })
    }
}

const KINDS: [EventKind; 9] = [
    EventKind::Accepted,
    EventKind::Deferred,
    EventKind::Failed,
    EventKind::Unknown,
    EventKind::Sent,
    EventKind::Bounced,
    EventKind::Reported,
    EventKind::Retried,
    EventKind::Cancelled,
];

impl Row for Event {
    fn write(&self, out: &mut RowWriter) {
        out.time(self.at);
        let number = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        out.u8(u8::try_from(number).unwrap_or(0));
        out.text(&self.domain);
        out.maybe(self.account.as_deref(), RowWriter::text);
        out.maybe(self.remote.as_deref(), RowWriter::text);
        out.text(&self.text);
        out.maybe(self.until, RowWriter::time);
        out.u32(self.recipients);
        if let Some(recipient) = self.recipient {
            out.u32(recipient);
        }
    }

    fn read(from: &mut RowReader<'_>) -> Option<Self> {
        Some(Self {
            at: from.time()?,
            kind: *KINDS.get(usize::from(from.u8()?))?,
            domain: from.text()?,
            account: from.maybe(RowReader::text)?,
            remote: from.maybe(RowReader::text)?,
            text: from.text()?,
            until: from.maybe(RowReader::time)?,
            recipients: from.u32()?,
            recipient: if from.0.is_empty() { None } else { Some(from.u32()?) },
        })
    }
}

/// The use of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) digest: [u8; 32],
    pub(crate) message: MessageId,
    pub(crate) until: Timestamp,
}

impl Row for Used {
    fn write(&self, out: &mut RowWriter) {
        out.0.extend_from_slice(&self.digest);
        out.0.extend_from_slice(&self.message.0.to_le_bytes());
        out.time(self.until);
    }

    fn read(from: &mut RowReader<'_>) -> Option<Self> {
        Some(Self {
            digest: from.take(32)?.try_into().ok()?,
            message: MessageId(u128::from_le_bytes(from.take(16)?.try_into().ok()?)),
            until: from.time()?,
        })
    }
}

#[cfg(test)]
mod tests;
