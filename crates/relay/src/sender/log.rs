//! The log lines of the sender: one for each event of a message's life.

use std::borrow::Cow;
use std::fmt::Write;

use ring::digest;

use super::attempt::Job;
use crate::message::{Envelope, MessageId};
use crate::moment::rfc3339;
use crate::queue::{Event, EventKind};

/// The form of recipients in log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecipientLog {
    /// By their addresses.
    #[default]
    Plain,
    /// By a hash of the address: lines about the same recipient can be found, and do not name it.
    Hashed,
    /// Not at all.
    Off,
}

/// The number of bytes of a hash that are shown.
const SHOWN: usize = 8;
/// Stands for an address that is not shown.
const HIDDEN: &str = "***";

impl RecipientLog {
    /// An address as it is shown, if it is.
    pub fn show<'a>(self, address: &'a str) -> Option<Cow<'a, str>> {
        match self {
            Self::Plain => Some(address.into()),
            Self::Hashed => Some(hash(address).into()),
            Self::Off => None,
        }
    }

    /// A reply without the addresses that are not shown: servers repeat them.
    fn redact<'t>(self, text: &'t str, envelope: &Envelope, event: &Event) -> Cow<'t, str> {
        if self == Self::Plain {
            return text.into();
        }
        let mut text = text.to_owned();
        let own = event.recipient.and_then(|index| envelope.recipients.get(index as usize));
        let all = envelope.recipients.iter().filter(|one| own.is_none() && one.domain == event.domain);
        for recipient in own.into_iter().chain(all) {
            let shown = self.show(&recipient.address).unwrap_or(HIDDEN.into());
            let address = recipient.address.to_ascii_lowercase();
            while let Some(at) =
                text.to_ascii_lowercase().find(&address).filter(|_| !shown.contains(&address))
            {
                text.replace_range(at..at + address.len(), &shown);
            }
        }
        text.into()
    }
}

/// The first bytes of the SHA-256 of an address in lower case, in hexadecimal.
fn hash(address: &str) -> String {
    let mut out = String::with_capacity(2 * SHOWN);
    let sum = digest::digest(&digest::SHA256, address.to_lowercase().as_bytes());
    for byte in sum.as_ref().iter().take(SHOWN) {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// One line for an event.
pub(super) fn log(job: &Job, event: &Event, recipients: RecipientLog) {
    let text = match event.kind {
        EventKind::Accepted => "message accepted",
        EventKind::Deferred => "message deferred by a limit",
        EventKind::Failed => "delivery failed for now",
        EventKind::Unknown => "delivery ended without a known result",
        EventKind::Sent => "message sent",
        EventKind::Bounced => "message bounced",
        EventKind::Reported => "delivery report queued",
        EventKind::Retried => "message retried by an operator",
        EventKind::Cancelled => "message cancelled by an operator",
    };
    let envelope = &job.kept.envelope;
    let recipient = event.recipient.and_then(|index| envelope.recipients.get(index as usize));
    let recipient = recipient.and_then(|recipient| recipients.show(&recipient.address));
    tracing::info!(
        component = "relay",
        id = format!("{:032x}", job.turn.item.message.0),
        tenant = &*job.turn.lane.tenant,
        domain = event.domain,
        account = event.account,
        remote = event.remote,
        recipient = recipient.as_deref(),
        recipients = event.recipients,
        reason = &*recipients.redact(&event.text, envelope, event),
        until = event.until.map(rfc3339),
        "{text}"
    );
}

/// One line for what an operator did to a message.
pub(super) fn log_operator(message: MessageId, text: &str) {
    tracing::info!(component = "relay", id = format!("{:032x}", message.0), "{text}");
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;
    use crate::lanes::Priority;
    use crate::message::{Needs, Notify, Origin, Recipient, ReportWish};

    fn envelope(addresses: &[&str]) -> Envelope {
        let recipient = |address: &&str| Recipient {
            address: (*address).to_owned(),
            domain: "there.example".to_owned(),
            notify: Notify::default(),
            original: None,
        };
        Envelope {
            id: MessageId(1),
            tenant: "acme".to_owned(),
            account: None,
            priority: Priority::Normal,
            sender: None,
            recipients: addresses.iter().map(recipient).collect(),
            accepted: Timestamp::from_micros(0),
            needs: Needs::default(),
            report: ReportWish::default(),
            message_id: None,
            origin: Origin::default(),
            idempotency: None,
        }
    }

    #[test]
    fn recipients_are_shown_as_the_operator_wants_also_in_replies() {
        let envelope = envelope(&["Ada@there.example", "bob@there.example"]);
        let event = |recipient| Event {
            domain: "there.example".to_owned(),
            recipient,
            ..Event::new(Timestamp::from_micros(0), EventKind::Bounced)
        };
        let text = "550 <ada@there.example>: no such user, ADA@THERE.EXAMPLE";
        let shown =
            |how: RecipientLog, recipient| how.redact(text, &envelope, &event(recipient)).into_owned();
        // printf %s ada@there.example | sha256sum | cut -c1-16
        let hash = hash("Ada@there.example");
        assert_eq!((hash.len(), &*hash), (16, &*RecipientLog::Hashed.show("ada@there.example").unwrap()));
        assert_eq!(shown(RecipientLog::Plain, Some(0)), text);
        for recipient in [Some(0), None] {
            let hashed = format!("550 <{hash}>: no such user, {hash}");
            assert_eq!(shown(RecipientLog::Hashed, recipient), hashed);
            assert_eq!(shown(RecipientLog::Off, recipient), "550 <***>: no such user, ***");
        }
        assert_eq!(RecipientLog::Off.show("ada@there.example"), None);
    }
}
