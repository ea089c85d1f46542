//! Delivery reports (RFC 3464): they inform a sender about recipients that get no message, and, if it asked for that,
//! about those that have waited for long, and those whose message went to a server that reports nothing itself.

mod letters;
mod returned;

use std::fmt::Write;

use jiff::tz::TimeZone;
use tollgate_core::Timestamp;

use crate::message::{Envelope, MessageId, Needs, Notify, Origin, Recipient, ReportWish};
use crate::queue::Final;
use crate::session::address::normal_domain;
use letters::Letters;
pub use returned::Original;
use returned::Returned;

/// A recipient that a report is about.
#[derive(Clone, Copy, Debug)]
pub struct ReportedRecipient<'a> {
    pub recipient: &'a Recipient,
    /// The final outcome, or the latest reply.
    pub last: &'a Final,
    /// The outcome to report.
    pub action: Action,
}

/// The outcome of a recipient, in the words of RFC 3464.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The recipient does not get the message.
    Failed,
    /// The recipient has waited for long, and delivery is still tried.
    Delayed,
    /// The message went to a server that does not report whether it is delivered.
    Relayed,
}

/// The statuses of a server that lacks 8BITMIME or SMTPUTF8.
const NEEDS_EXTENSION: [&str; 2] = ["5.6.3", "5.6.7"];

/// Writes the report about a message. There is no report about a message from the null sender, nor to an
/// address without a domain. `original` has the available part of the message's text.
pub fn compose(
    envelope: &Envelope,
    reported: &[ReportedRecipient<'_>],
    original: &Original,
    hostname: &str,
    now: Timestamp,
) -> Option<(Envelope, Vec<u8>)> {
    let sender = envelope.sender.as_deref()?;
    let (_, domain) = sender.rsplit_once('@').filter(|(_, domain)| !domain.is_empty())?;
    if reported.is_empty() {
        return None;
    }
    let id = MessageId(u128::from(now.as_micros()) << 64 | u128::from(fastrand::u64(..)));
    let letters = if sender.is_ascii() { Letters::Ascii } else { Letters::Utf8 };
    let is = |action: Action| reported.iter().any(|one| one.action == action);
    let subject = if is(Action::Failed) {
        "Undelivered mail returned to sender"
    } else if is(Action::Delayed) {
        "Delayed mail (still being sent)"
    } else {
        "Mail relayed"
    };
    // Only the report of a failed message returns the whole message (RFC 3461, 4.3). A server that cannot
    // accept the message's text would not accept the report either.
    let takes_text = !reported.iter().any(|one| NEEDS_EXTENSION.contains(&&*one.last.status));
    let full = envelope.report.full && is(Action::Failed) && (takes_text || original.text.is_ascii());
    let returned = Returned::of(original, full, envelope.needs.utf8);
    let report = ReportText { envelope, reported, hostname, letters, boundary: format!("=_{:032x}", id.0) };
    let mut text = report.head(sender, id, now, subject, returned.is_eight_bit());
    report.write_explanation(&mut text);
    report.write_status(&mut text);
    let mut bytes = text.into_bytes();
    returned.write(&report.boundary, &mut bytes);
    bytes.extend_from_slice(format!("--{}--\r\n", report.boundary).as_bytes());
    let recipient = Recipient {
        address: sender.to_owned(),
        domain: normal_domain(domain).unwrap_or_else(|| domain.to_ascii_lowercase()),
        notify: Notify { success: false, failure: false, delay: false },
        original: None,
    };
    let report = Envelope {
        id,
        tenant: envelope.tenant.clone(),
        // Any account may carry a report: the one that the sender named may have refused the message.
        account: None,
        priority: envelope.priority,
        sender: None,
        recipients: vec![recipient],
        accepted: now,
        needs: Needs { eight_bit: !bytes.is_ascii(), utf8: letters == Letters::Utf8 },
        report: ReportWish::default(),
        message_id: None,
        origin: Origin::default(),
        idempotency: None,
    };
    Some((report, bytes))
}

/// A report that is being written.
struct ReportText<'a> {
    envelope: &'a Envelope,
    reported: &'a [ReportedRecipient<'a>],
    hostname: &'a str,
    letters: Letters,
    boundary: String,
}

impl ReportText<'_> {
    fn head(&self, sender: &str, id: MessageId, now: Timestamp, subject: &str, is_eight_bit: bool) -> String {
        let Self { envelope, hostname, boundary, .. } = self;
        let encoding = if is_eight_bit || self.letters == Letters::Utf8 { "8bit" } else { "7bit" };
        let mut head = String::with_capacity(4_096);
        let _ = write!(
            head,
            "From: Mail Delivery System <MAILER-DAEMON@{hostname}>\r\n\
             To: <{}>\r\n\
             Subject: {subject}\r\n\
             Date: {}\r\n\
             Message-ID: <{:032x}@{hostname}>\r\n\
             Auto-Submitted: auto-replied\r\n\
             MIME-Version: 1.0\r\n\
             Content-Type: multipart/report; report-type=delivery-status; boundary=\"{boundary}\"\r\n\
             Content-Transfer-Encoding: {encoding}\r\n\
             X-Tollgate-Message: {:032x}\r\n\
             \r\n",
            self.letters.line(sender),
            date(now),
            id.0,
            envelope.id.0,
        );
        head
    }

    fn write_explanation(&self, text: &mut String) {
        let Self { hostname, boundary, .. } = self;
        let (charset, encoding) = match self.letters {
            Letters::Ascii => ("us-ascii", "7bit"),
            Letters::Utf8 => ("utf-8", "8bit"),
        };
        let _ = write!(
            text,
            "--{boundary}\r\nContent-Type: text/plain; charset={charset}\r\n\
             Content-Transfer-Encoding: {encoding}\r\n\r\n\
             This is the mail relay at {hostname}.\r\n\r\n"
        );
        for (action, words) in [
            (Action::Failed, "Your message could not be delivered to the following recipients:"),
            (
                Action::Delayed,
                "Your message has not been delivered yet to the following recipients. It is still being sent:",
            ),
            (
                Action::Relayed,
                "Your message went on to a server that sends no reports, for these recipients:",
            ),
        ] {
            let about: Vec<_> = self.reported.iter().filter(|one| one.action == action).collect();
            if !about.is_empty() {
                let _ = write!(text, "{words}\r\n\r\n");
                self.write_recipients(text, &about);
            }
        }
    }

    fn write_recipients(&self, text: &mut String, reported: &[&ReportedRecipient<'_>]) {
        let value = |text: &str| self.letters.line(text);
        for one in reported {
            let by = one.last.remote.as_deref().map(|remote| format!(" {} said:", value(remote)));
            let (address, reply) = (value(&one.recipient.address), value(&one.last.reply));
            let _ = write!(text, "<{address}>:{}\r\n    {reply}\r\n\r\n", by.unwrap_or_default());
        }
    }

    fn write_status(&self, text: &mut String) {
        let Self { envelope, hostname, letters, boundary, .. } = self;
        let value = |text: &str| letters.line(text);
        let kind = match letters {
            Letters::Ascii => "message/delivery-status",
            Letters::Utf8 => "message/global-delivery-status",
        };
        let _ =
            write!(text, "--{boundary}\r\nContent-Type: {kind}\r\n\r\nReporting-MTA: dns; {hostname}\r\n");
        if let Some(envelope_id) = &envelope.report.envelope_id {
            let _ = write!(text, "Original-Envelope-Id: {}\r\n", value(envelope_id));
        }
        let _ = write!(text, "Arrival-Date: {}\r\n\r\n", date(envelope.accepted));
        for ReportedRecipient { recipient, last, action } in self.reported {
            if let Some(original) = &recipient.original {
                let _ = write!(text, "Original-Recipient: {}\r\n", value(original));
            }
            let address = letters.typed_address(&recipient.address);
            let action = match action {
                Action::Failed => "failed",
                Action::Delayed => "delayed",
                Action::Relayed => "relayed",
            };
            let _ = write!(text, "Final-Recipient: {address}\r\nAction: {action}\r\n");
            let _ = write!(text, "Status: {}\r\n", value(&last.status));
            match &last.remote {
                Some(remote) => {
                    let (remote, reply) = (value(remote), value(&last.reply));
                    let _ = write!(text, "Remote-MTA: dns; {remote}\r\nDiagnostic-Code: smtp; {reply}\r\n");
                }
                None => {
                    let _ = write!(text, "Diagnostic-Code: x-tollgate; {}\r\n", value(&last.reply));
                }
            }
            let _ = write!(text, "Last-Attempt-Date: {}\r\n\r\n", date(last.at));
        }
    }
}

fn date(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let moment = moment.to_zoned(TimeZone::UTC);
    jiff::fmt::rfc2822::to_string(&moment).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Priority;

    fn envelope(sender: Option<&str>) -> Envelope {
        let recipient = |address: &str| Recipient {
            address: address.to_owned(),
            domain: "there.example".to_owned(),
            notify: Notify::default(),
            original: Some("rfc822;Old@there.example".to_owned()),
        };
        Envelope {
            id: MessageId(7),
            tenant: "acme".to_owned(),
            account: None,
            priority: Priority::Normal,
            sender: sender.map(str::to_owned),
            recipients: vec![recipient("gone@there.example"), recipient("full@there.example")],
            accepted: Timestamp::from_micros(1_800_000_000_000_000),
            needs: Needs::default(),
            report: ReportWish { full: false, envelope_id: Some("QQ314159".to_owned()) },
            message_id: None,
            origin: Origin::default(),
            idempotency: None,
        }
    }

    fn last(reply: &str) -> Final {
        Final {
            at: Timestamp::from_micros(1_800_000_060_000_000),
            status: "5.1.1".to_owned(),
            reply: reply.to_owned(),
            remote: Some("mx.there.example".to_owned()),
            reports: false,
        }
    }

    const ORIGINAL: &[u8] = b"Subject: hi\r\nX: y\r\n\r\nsecret body\r\n";
    const NOW: Timestamp = Timestamp::from_micros(1_800_000_120_000_000);

    fn whole() -> Original {
        Original { text: ORIGINAL.to_vec(), size: ORIGINAL.len() as u64 }
    }

    #[test]
    fn a_report_names_every_recipient_and_returns_headers() {
        let envelope = envelope(Some("App@Here.Example"));
        let (one, two) = (last("550 5.1.1 no such user"), last("552 5.2.2 mailbox full"));
        let failed = [
            ReportedRecipient { recipient: &envelope.recipients[0], last: &one, action: Action::Failed },
            ReportedRecipient { recipient: &envelope.recipients[1], last: &two, action: Action::Failed },
        ];
        let (report, text) = compose(&envelope, &failed, &whole(), "relay.example", NOW).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(report.sender, None, "reports come from the null sender");
        assert_eq!(report.recipients[0].address, "App@Here.Example");
        assert_eq!(report.recipients[0].domain, "here.example");
        for part in [
            "report-type=delivery-status",
            "Reporting-MTA: dns; relay.example\r\n",
            "Original-Envelope-Id: QQ314159\r\n",
            "Original-Recipient: rfc822;Old@there.example\r\n",
            "Final-Recipient: rfc822; gone@there.example\r\nAction: failed\r\nStatus: 5.1.1\r\n",
            "Diagnostic-Code: smtp; 550 5.1.1 no such user\r\n",
            "Final-Recipient: rfc822; full@there.example\r\n",
            "Date: Fri, 15 Jan 2027 08:02:00 +0000\r\n",
            "text/rfc822-headers\r\nContent-Transfer-Encoding: 7bit\r\n\r\nSubject: hi\r\nX: y\r\n--",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        assert!(!text.contains("secret body"));
        assert!(text.lines().all(|line| line.len() < 998));
    }

    #[test]
    fn a_report_returns_the_whole_message_if_the_sender_asks() {
        let mut envelope = envelope(Some("app@here.example"));
        envelope.report.full = true;
        let one = last("550 no");
        let failed =
            [ReportedRecipient { recipient: &envelope.recipients[0], last: &one, action: Action::Failed }];
        let (_, text) = compose(&envelope, &failed, &whole(), "relay.example", NOW).unwrap();
        let text = String::from_utf8(text).unwrap();
        let whole = "message/rfc822\r\nContent-Transfer-Encoding: 7bit\r\n\r\nSubject: hi\r\nX: y\r\n\r\nsecret body\r\n--";
        assert!(text.contains(whole), "{text}");
        // A text that was cut may end with a line, too.
        for cut in [3, 0] {
            let text = ORIGINAL[..ORIGINAL.len() - cut].to_vec();
            let part = Original { text, size: ORIGINAL.len() as u64 + 1 };
            let (_, text) = compose(&envelope, &failed, &part, "relay.example", NOW).unwrap();
            assert!(!String::from_utf8(text).unwrap().contains("secret"), "a part is not the whole message");
        }
    }

    #[test]
    fn nothing_is_reported_to_the_null_sender_or_about_nothing() {
        let one = last("550 no");
        let from_null = envelope(None);
        let failed =
            [ReportedRecipient { recipient: &from_null.recipients[0], last: &one, action: Action::Failed }];
        assert!(compose(&from_null, &failed, &whole(), "relay.example", NOW).is_none());
        assert!(compose(&envelope(Some("postmaster")), &failed, &whole(), "relay.example", NOW).is_none());
        assert!(compose(&envelope(Some("a@b")), &[], &whole(), "relay.example", NOW).is_none());
    }

    #[test]
    fn a_reply_cannot_add_headers() {
        let envelope = envelope(Some("app@here.example"));
        let one = last("550 no\r\nBcc: victim@there.example");
        let failed =
            [ReportedRecipient { recipient: &envelope.recipients[0], last: &one, action: Action::Failed }];
        let (_, text) = compose(&envelope, &failed, &whole(), "relay.example", NOW).unwrap();
        assert!(!String::from_utf8(text).unwrap().contains("\nBcc:"));
    }

    #[test]
    fn relayed_recipients_are_told_apart_from_failed_ones() {
        let envelope = envelope(Some("app@here.example"));
        let (one, two) = (last("250 2.0.0 ok"), last("550 5.1.1 no"));
        let relayed =
            ReportedRecipient { recipient: &envelope.recipients[0], last: &one, action: Action::Relayed };
        let failed =
            ReportedRecipient { recipient: &envelope.recipients[1], last: &two, action: Action::Failed };
        let text = |reported: &[ReportedRecipient<'_>]| {
            let (_, text) = compose(&envelope, reported, &whole(), "relay.example", NOW).unwrap();
            String::from_utf8(text).unwrap()
        };
        let both = text(&[relayed, failed]);
        assert!(both.contains("Subject: Undelivered mail returned to sender\r\n"));
        assert!(both.contains("Final-Recipient: rfc822; gone@there.example\r\nAction: relayed\r\n"));
        assert!(both.contains("Final-Recipient: rfc822; full@there.example\r\nAction: failed\r\n"));
        let alone = text(&[relayed]);
        assert!(alone.contains("Subject: Mail relayed\r\n") && !alone.contains("could not be delivered"));
    }
}
