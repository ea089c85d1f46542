//! The header fields that the relay adds to a message.

use std::net::IpAddr;

use jiff::fmt::rfc2822;
use tollgate_core::Timestamp;

use super::Submission;
use crate::message::MessageId;
use crate::session::headers::Additions;

/// `Received` for every message; `Date` and `Message-ID` for one that has none.
pub(super) fn additions(hostname: &str, submission: &Submission, id: MessageId, now: Timestamp) -> Additions {
    let date = date(now);
    let address = match submission.client {
        IpAddr::V4(address) => format!("[{address}]"),
        IpAddr::V6(address) => format!("[IPv6:{address}]"),
    };
    let name = submission.via.client_name.as_deref().unwrap_or("unknown");
    let protocol = &submission.via.protocol;
    let received = format!(
        "Received: from {name} ({address})\r\n\tby {hostname} with {protocol} id {:032x};\r\n\t{date}\r\n",
        id.0
    );
    Additions {
        received,
        date: format!("Date: {date}\r\n"),
        message_id: format!("Message-ID: <{:032x}@{hostname}>\r\n", id.0),
    }
}

/// A moment in the format of mail.
fn date(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    rfc2822::to_string(&at).unwrap_or_default()
}
