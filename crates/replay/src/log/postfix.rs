//! Postfix's mail log: the queue id joins the lines of one message.
//!
//! Each recipient of a message is one attempt, read from the first line that reports a delivery to it
//! (`to=<…>`). `delay=` is the time that the message had spent in the queue, so the attempt was made that much
//! earlier. A later delivery attempt to the same recipient is not a new attempt. A recipient that Postfix
//! refused (`NOQUEUE: reject`) is an attempt with the status 450 or 550 that the client got.
//!
//! Memory for messages is bounded: beyond [`MOST_MESSAGES`] or [`MOST_BYTES`] the oldest message is forgotten.

use std::collections::VecDeque;

use hashbrown::HashMap;
use memchr::memmem;
use tollgate_core::key::MOST_FIELD_BYTES;

use super::Row;
use crate::hash;

/// The columns of a mail log, in the order of their positions.
pub const COLUMNS: [&str; 10] =
    ["time", "ip", "user", "sender", "recipient", "size", "delay", "status", "queue_id", "client_name"];

const TIME: usize = 0;
const IP: usize = 1;
const USER: usize = 2;
const SENDER: usize = 3;
const RECIPIENT: usize = 4;
const SIZE: usize = 5;
const DELAY: usize = 6;
const STATUS: usize = 7;
const QUEUE_ID: usize = 8;
const CLIENT_NAME: usize = 9;

/// The most messages in memory.
const MOST_MESSAGES: usize = 100_000;
/// The most bytes of all messages in memory.
const MOST_BYTES: usize = 64 << 20;
/// The most recipients of one message that are distinguished.
const MOST_RECIPIENTS: usize = 1_000;

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The line reports an attempt, which is in the row.
    Attempt,
    /// The line reports something else.
    Nothing,
    /// The line does not belong to a mail log.
    Unreadable,
}

/// The messages that later lines may still refer to.
#[derive(Default)]
pub struct Joined {
    messages: HashMap<Box<[u8]>, Mail>,
    /// Queue ids, oldest first.
    order: VecDeque<Box<[u8]>>,
    /// The size of the messages in memory.
    bytes: usize,
}

#[derive(Default)]
struct Mail {
    ip: Box<[u8]>,
    name: Box<[u8]>,
    user: Box<[u8]>,
    sender: Box<[u8]>,
    size: Box<[u8]>,
    recipients: Vec<u64>,
}

impl Joined {
    /// Reads a line.
    pub fn read(&mut self, line: &[u8], row: &mut Row) -> Said {
        row.clear(COLUMNS.len());
        let Some((time, service, text)) = split(line) else { return Said::Unreadable };
        if !service.contains(&b'/') {
            return Said::Nothing;
        }
        if let Some(rejected) = text.strip_prefix(b"NOQUEUE: reject: RCPT from ") {
            return read_rejection(rejected, time, row);
        }
        let Some(end) = memchr::memchr(b':', text) else { return Said::Nothing };
        let (id, text) = (&text[..end], text[end + 1..].trim_ascii_start());
        if !is_queue_id(id) {
            return Said::Nothing;
        }
        if text.starts_with(b"client=") {
            self.arrived(id, text);
        } else if text.starts_with(b"from=<") {
            self.change(id, |mail| {
                mail.sender = kept(value(text, b"from=<", b">"));
                mail.size = kept(value(text, b"size=", b","));
            });
        } else if text.starts_with(b"to=<") {
            return self.delivered(id, text, time, row);
        } else if text == b"removed" {
            self.forget(id);
        }
        Said::Nothing
    }

    /// `client=name[address], sasl_method=…, sasl_username=…`.
    fn arrived(&mut self, id: &[u8], text: &[u8]) {
        // Postfix uses queue ids again: a new message must not have the recipients of an old one.
        self.forget(id);
        self.change(id, |mail| {
            mail.name = kept(value(text, b"client=", b"["));
            mail.ip = kept(value(text, b"[", b"]"));
            mail.user = kept(value(text, b"sasl_username=", b","));
        });
    }

    /// `to=<recipient>, relay=…, delay=1.2, …, status=sent (…)`.
    fn delivered(&mut self, id: &[u8], text: &[u8], time: &[u8], row: &mut Row) -> Said {
        let recipient = value(text, b"to=<", b">");
        let hash = hash(recipient);
        let mut known = false;
        let mail = self.change(id, |mail| {
            known = mail.recipients.contains(&hash);
            if !known && mail.recipients.len() < MOST_RECIPIENTS {
                mail.recipients.push(hash);
            }
        });
        if known {
            return Said::Nothing;
        }
        let known = [(IP, &mail.ip), (USER, &mail.user), (SENDER, &mail.sender), (SIZE, &mail.size)];
        for (place, value) in known {
            row.put_known(place, value);
        }
        row.put_known(CLIENT_NAME, &mail.name);
        row.put_known(RECIPIENT, recipient);
        row.put_known(DELAY, value(text, b", delay=", b","));
        row.put(QUEUE_ID, id);
        row.put(TIME, time);
        Said::Attempt
    }

    /// Changes a message. If others must be forgotten to make room, this one stays.
    fn change(&mut self, id: &[u8], change: impl FnOnce(&mut Mail)) -> &Mail {
        if !self.messages.contains_key(id) {
            self.make_room();
            self.order.push_back(id.into());
            self.messages.insert(id.into(), Mail::default());
            self.bytes += EMPTY_BYTES;
        }
        let mail = self.messages.get_mut(id).expect("it was inserted");
        let before = mail.bytes();
        change(mail);
        self.bytes = self.bytes + mail.bytes() - before;
        mail
    }

    fn forget(&mut self, id: &[u8]) {
        if let Some(mail) = self.messages.remove(id) {
            self.bytes -= EMPTY_BYTES + mail.bytes();
        }
    }

    fn make_room(&mut self) {
        while self.messages.len() >= MOST_MESSAGES
            || self.bytes >= MOST_BYTES
            || self.order.len() >= 2 * MOST_MESSAGES
        {
            let Some(oldest) = self.order.pop_front() else { return };
            self.forget(&oldest);
        }
    }
}

/// The approximate size of a message without values, including its id.
const EMPTY_BYTES: usize = size_of::<Mail>() + 64;

impl Mail {
    /// The size of its values in memory.
    fn bytes(&self) -> usize {
        let values = [&self.ip, &self.name, &self.user, &self.sender, &self.size];
        values.iter().map(|value| value.len()).sum::<usize>() + self.recipients.capacity() * size_of::<u64>()
    }
}

/// Copies a value. One that is too long for a field is cut, but stays too long, so that the attempt becomes
/// unreadable.
fn kept(value: &[u8]) -> Box<[u8]> {
    value[..value.len().min(MOST_FIELD_BYTES + 1)].into()
}

/// `name[address]: 450 4.7.1 <…>: …; from=<sender> to=<recipient> proto=ESMTP helo=<…>`.
fn read_rejection(text: &[u8], time: &[u8], row: &mut Row) -> Said {
    let after = memmem::find(text, b"]: ").map_or(&b""[..], |at| &text[at + 3..]);
    row.put(TIME, time);
    row.put_known(CLIENT_NAME, value(text, b"", b"["));
    row.put_known(IP, value(text, b"[", b"]"));
    row.put_known(SENDER, value(after, b"from=<", b">"));
    row.put_known(RECIPIENT, value(after, b" to=<", b">"));
    row.put_known(STATUS, after.get(..3).unwrap_or_default());
    row.put_known(USER, value(after, b"sasl_username=<", b">"));
    Said::Attempt
}

/// The time, the service and the text of a line of syslog: `Nov 17 09:08:55 mx postfix/smtpd[123]: …`, or with a time
/// as in RFC 3339.
fn split(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let time = if line.first()?.is_ascii_digit() {
        memchr::memchr(b' ', line)?
    } else {
        let day = line.get(3..)?.iter().take_while(|byte| **byte == b' ').count() + 3;
        let digits = line[day..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        day + digits + 9
    };
    let (time, rest) = line.split_at_checked(time)?;
    let rest = rest.strip_prefix(b" ")?;
    let rest = &rest[memchr::memchr(b' ', rest)? + 1..];
    let at = memmem::find(rest, b": ")?;
    Some((time, &rest[..at], &rest[at + 2..]))
}

/// Short ids are hexadecimal; long ones have letters and digits.
fn is_queue_id(id: &[u8]) -> bool {
    (6..=20).contains(&id.len()) && id.iter().all(u8::is_ascii_alphanumeric)
}

/// The text between `before` and `end`, or up to the end; empty if `before` does not occur.
fn value<'t>(text: &'t [u8], before: &[u8], end: &[u8]) -> &'t [u8] {
    let Some(at) = memmem::find(text, before) else { return b"" };
    let rest = &text[at + before.len()..];
    &rest[..memmem::find(rest, end).unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_messages_are_bounded_in_bytes() {
        let (mut joined, mut row) = (Joined::default(), Row::default());
        let sender = "x".repeat(300_000);
        let line = format!("Nov 17 09:08:51 mx postfix/qmgr[103]: ABCDEF0123: from=<{sender}>, size=1");
        assert_eq!(joined.read(line.as_bytes(), &mut row), Said::Nothing);
        assert_eq!(joined.messages[&b"ABCDEF0123"[..]].sender.len(), MOST_FIELD_BYTES + 1);
        let sender = "y".repeat(900);
        for number in 0..120_000_u32 {
            let line =
                format!("Nov 17 09:08:51 mx postfix/qmgr[103]: {number:010X}: from=<{sender}>, size=1");
            joined.read(line.as_bytes(), &mut row);
        }
        let counted: usize = joined.messages.values().map(|mail| EMPTY_BYTES + mail.bytes()).sum();
        assert_eq!(counted, joined.bytes);
        assert!(joined.bytes <= MOST_BYTES + 2_000, "{}", joined.bytes);
        assert!(joined.messages.len() > 10_000, "{}", joined.messages.len());
    }
}
