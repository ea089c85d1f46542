//! The sender and the recipients of a message.

use axum::body::Body;
use mail_parser::{Address as Parsed, MessageParser};
use tollgate_relay::message::{Notify, Recipient};
use tollgate_relay::session::address::Address;
use tollgate_relay::session::headers::HeaderRewriter;

use crate::http::endpoint::Ask;
use crate::http::incoming;
use crate::http::path;
use crate::http::problem::Problem;

/// Sender and recipients.
pub(super) struct Envelope {
    /// `None` is the null sender.
    pub(super) sender: Option<Address>,
    pub(super) recipients: Vec<Recipient>,
}

impl Envelope {
    /// Reads addresses; the member that an address stands in is named if it is wrong.
    pub(super) fn read<'t>(
        from: &str,
        to: impl IntoIterator<Item = (&'static str, &'t str)>,
    ) -> Result<Self, Problem> {
        let sender = if from.is_empty() { None } else { Some(address("from", from)?) };
        let recipients = to.into_iter().map(|(member, text)| {
            let Address { text, domain } = address(member, text)?;
            Ok(Recipient { address: text, domain, notify: Notify::default(), original: None })
        });
        Ok(Self { sender, recipients: recipients.collect::<Result<_, Problem>>()? })
    }
}

fn address(member: &str, text: &str) -> Result<Address, Problem> {
    Address::read(text).ok_or_else(|| {
        let text: String = text.chars().take(100).collect();
        Problem::bad_request(format!("`{member}`: `{}` is not a mail address", text.escape_debug()))
    })
}

/// Reads a message as far as its header goes, and the envelope from the query or else from the header.
pub(super) async fn read_head(ask: &Ask, body: &mut Body) -> Result<(Vec<u8>, Envelope), Problem> {
    let (mut head, mut scanned) = (Vec::new(), 0);
    while !ends_header(&head, scanned) {
        scanned = head.len();
        let Some(piece) = incoming::next(body).await? else { break };
        head.extend_from_slice(&piece);
        if head.len() > HeaderRewriter::MOST_BYTES && !ends_header(&head, scanned) {
            let most = HeaderRewriter::MOST_BYTES;
            return Err(Problem::bad_request(format!(
                "the header of the message is longer than {most} bytes"
            )));
        }
    }
    let from = ask.query("from").map(path::decode_query).transpose()?;
    let to = ask.query("to").map(path::decode_query).transpose()?;
    let parsed = MessageParser::default().parse_headers(&head[..]);
    let listed = |field: Option<&Parsed<'_>>| -> Vec<String> {
        let all = field.into_iter().flat_map(Parsed::iter);
        all.filter_map(|one| one.address().map(str::to_owned)).collect()
    };
    let message = parsed.as_ref();
    let from = match from {
        Some(from) => from,
        None => listed(message.and_then(|message| message.from())).into_iter().next().ok_or_else(|| {
            Problem::bad_request(
                "the message has no `From`: add it, or name the sender in the query as `from`",
            )
        })?,
    };
    let to = match to {
        Some(to) => to.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect(),
        None => message.map_or_else(Vec::new, |message| {
            [message.to(), message.cc(), message.bcc()].into_iter().flat_map(listed).collect()
        }),
    };
    let envelope = Envelope::read(&from, to.iter().map(|one| ("to", &**one)))?;
    Ok((head, envelope))
}

/// Whether the line between header and body has come. It had not within the first `scanned` bytes, which are not read
/// again: a message may come byte by byte.
fn ends_header(head: &[u8], scanned: usize) -> bool {
    let from = scanned.saturating_sub(3);
    head.starts_with(b"\r\n") || head[from..].windows(4).any(|bytes| bytes == b"\r\n\r\n")
}
