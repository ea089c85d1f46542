//! A message as JSON, and as the text that is sent.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use mail_builder::MessageBuilder;
use mail_builder::headers::HeaderType;
use mail_builder::headers::address::{Address, EmailAddress};
use mail_builder::headers::date::Date;
use mail_builder::mime::MimePart;
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_core::Timestamp;
use tollgate_relay::lanes::Priority;
use tollgate_relay::session::address::Address as Mailbox;

use super::envelope::Envelope;
use super::values;
use crate::http::body::{AtMost, OneOrMore, Text};
use crate::http::problem::Problem;

/// The most recipients that are read; the relay's own bound is lower.
const MOST_RECIPIENTS: usize = 10_000;
const MOST_ATTACHMENTS: usize = 100;
const MOST_HEADERS: usize = 100;
/// Header fields that are made of other members, or by the relay.
const RESERVED: [&str; 8] = ["from", "to", "cc", "bcc", "subject", "mime-version", "received", "return-path"];

/// Header fields that have addresses. Only the names in them may be encoded.
const ADDRESSED: [&str; 4] = ["reply-to", "sender", "disposition-notification-to", "errors-to"];

/// One or several addresses: `ada@example.com` or `Ada <ada@example.com>`.
type Addresses<'b> = OneOrMore<MOST_RECIPIENTS, Text<'b>>;

/// A message to send.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MessageRequest")]
pub(super) struct SubmitBody<'b> {
    /// The tenant to send for; a key with a tenant sends for that one only.
    #[serde(borrow, default)]
    pub(super) tenant: Option<Text<'b>>,
    /// The account to send through; by default the tenant's accounts are tried by priority.
    #[serde(borrow, default)]
    pub(super) account: Option<Text<'b>>,
    /// The sender: `ada@example.com` or `Ada <ada@example.com>`.
    #[serde(borrow)]
    from: Text<'b>,
    /// The recipients.
    #[serde(borrow, default)]
    to: Option<Addresses<'b>>,
    /// Recipients of a copy.
    #[serde(borrow, default)]
    cc: Option<Addresses<'b>>,
    /// Recipients that the other recipients do not see.
    #[serde(borrow, default)]
    bcc: Option<Addresses<'b>>,
    #[serde(borrow, default)]
    subject: Option<Text<'b>>,
    /// The message as plain text.
    #[serde(borrow, default)]
    text: Option<Text<'b>>,
    /// The message as HTML.
    #[serde(borrow, default)]
    html: Option<Text<'b>>,
    /// Further header fields, by name, as in `{"Reply-To": "support@example.com"}`.
    #[serde(borrow, default)]
    headers: BTreeMap<Text<'b>, Text<'b>>,
    #[serde(borrow, default)]
    attachments: Option<AtMost<MOST_ATTACHMENTS, Attachment<'b>>>,
    /// `high`, `normal` (the default) or `low`: which of the tenant's messages go first.
    #[serde(borrow, default)]
    priority: Option<Text<'b>>,
}

/// A file that goes with a message.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MessageAttachment")]
struct Attachment<'b> {
    filename: Text<'b>,
    /// Its media type; `application/octet-stream` by default.
    #[serde(borrow, default)]
    content_type: Option<Text<'b>>,
    /// Its content in base64.
    content: Text<'b>,
    /// The name by which HTML refers to it, as in `cid:logo`; such a file is shown inline.
    #[serde(borrow, default)]
    content_id: Option<Text<'b>>,
}

impl SubmitBody<'_> {
    pub(super) fn priority(&self) -> Result<Priority, Problem> {
        match self.priority.as_ref().map(Text::as_str) {
            None | Some("normal") => Ok(Priority::Normal),
            Some("high") => Ok(Priority::High),
            Some("low") => Ok(Priority::Low),
            Some(_) => Err(Problem::bad_request("`priority` is `high`, `normal` or `low`")),
        }
    }

    /// Sender and recipients.
    pub(super) fn envelope(&self) -> Result<Envelope, Problem> {
        let lists = [("to", &self.to), ("cc", &self.cc), ("bcc", &self.bcc)];
        let all = lists.into_iter().flat_map(|(member, list)| {
            let each = list.iter().flat_map(|list| list.0.iter());
            each.map(move |one| (member, parts(one.as_str()).1))
        });
        let from = parts(self.from.as_str()).1;
        if from.is_empty() {
            return Err(Problem::bad_request("`from` is empty: name the sender's address"));
        }
        Envelope::read(from, all)
    }

    /// The message as it is sent.
    pub(super) fn compose(&self, message_id: &str, now: Timestamp) -> Result<Vec<u8>, Problem> {
        let mut message = MessageBuilder::new().from(named("from", self.from.as_str())?);
        for (field, member, list) in [("To", "to", &self.to), ("Cc", "cc", &self.cc)] {
            if let Some(list) = list {
                let each: Result<Vec<Address<'_>>, Problem> =
                    list.0.iter().map(|one| named(member, one.as_str())).collect();
                message = message.header(field, Address::new_list(each?));
            }
        }
        let subject = one_line("subject", self.subject.as_ref().map_or("", Text::as_str))?;
        message = message.header("Subject", values::text(subject));
        if self.headers.len() > MOST_HEADERS {
            return Err(Problem::bad_request(format!("`headers` has more than {MOST_HEADERS} fields")));
        }
        let mut has_id = false;
        let mut has_date = false;
        for (name, value) in &self.headers {
            let (name, value) = (field_name(name.as_str())?, one_line("headers", value.as_str())?);
            has_id |= name == "Message-ID";
            has_date |= name == "Date";
            let value = match name {
                "Message-ID" => values::message_id(value)?,
                "References" | "In-Reply-To" => values::message_ids(name, value)?,
                "Date" => values::date(value)?,
                _ if ADDRESSED.iter().any(|own| name.eq_ignore_ascii_case(own)) => addressed(value)?,
                _ => values::text(value),
            };
            message = message.header(name, value);
        }
        if !has_id {
            message = message.message_id(message_id);
        }
        if !has_date {
            let secs = i64::try_from(now.as_micros() / 1_000_000).unwrap_or(i64::MAX);
            message = message.date(Date::new(secs));
        }
        let message = self.attach(self.fill(message))?;
        message
            .write_to_vec()
            .map_err(|error| Problem::bad_request(format!("the message cannot be written: {error}")))
    }

    fn fill<'m>(&'m self, mut message: MessageBuilder<'m>) -> MessageBuilder<'m> {
        if let Some(text) = &self.text {
            message = message.text_body(text.as_str());
        }
        if let Some(html) = &self.html {
            message = message.html_body(html.as_str());
        }
        message
    }

    fn attach<'m>(&'m self, mut message: MessageBuilder<'m>) -> Result<MessageBuilder<'m>, Problem> {
        let attachments = self.attachments.iter().flat_map(|list| &list.0).enumerate();
        for (index, file) in attachments {
            let wrong = |what: &str| Problem::bad_request(format!("attachments[{index}]: {what}"));
            let content = BASE64.decode(file.content.as_str().trim().as_bytes());
            let content = content.map_err(|_| wrong("`content` is not base64"))?;
            let media = file.content_type.as_ref().map_or("application/octet-stream", Text::as_str);
            if !is_media(media) {
                return Err(wrong("`content_type` is a media type, as in `application/pdf`"));
            }
            let name = values::name("filename", one_line("filename", file.filename.as_str())?)?;
            let part = MimePart::new(media, content);
            message = match &file.content_id {
                Some(cid) if !is_token(cid.as_str()) => return Err(wrong("`content_id` is one word")),
                Some(cid) => message.inline(media, cid.as_str(), part.contents),
                None => message.attachment(media, name, part.contents),
            };
        }
        Ok(message)
    }
}

/// Name and address: of `Ada <ada@example.com>`, or no name.
fn parts(text: &str) -> (Option<&str>, &str) {
    let text = text.trim();
    match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((name, address)) => {
            let name = name.trim().trim_matches('"');
            ((!name.is_empty()).then_some(name), address)
        }
        None => (None, text),
    }
}

fn named<'t>(member: &str, text: &'t str) -> Result<Address<'t>, Problem> {
    let (name, email) = parts(one_line(member, text)?);
    let name = name.map(|name| values::name(member, name)).transpose()?;
    Ok(Address::Address(EmailAddress { name: name.map(Into::into), email: email.into() }))
}

/// Addresses in one header field, with commas between them.
fn addressed(value: &str) -> Result<HeaderType<'_>, Problem> {
    // A quoted name may contain a comma.
    let each = if value.contains('"') { vec![value] } else { value.split(',').collect() };
    let read = |one| match named("headers", one)? {
        Address::Address(one) if Mailbox::read(&one.email).is_none() => {
            let detail =
                "`headers`: a field with addresses has a value that is none, as in `Ada <ada@example.com>`";
            Err(Problem::bad_request(detail))
        }
        one => Ok(one),
    };
    let all: Vec<Address<'_>> = each.into_iter().map(read).collect::<Result<_, Problem>>()?;
    Ok(Address::new_list(all).into())
}

/// A text without line breaks, which would begin another header field.
fn one_line<'t>(member: &str, text: &'t str) -> Result<&'t str, Problem> {
    match text.chars().any(char::is_control) {
        true => Err(Problem::bad_request(format!(
            "`{member}` contains a line break or another control character"
        ))),
        false => Ok(text),
    }
}

/// The name of a header field that may be set.
fn field_name(name: &str) -> Result<&str, Problem> {
    let is_reserved = RESERVED.iter().any(|own| name.eq_ignore_ascii_case(own))
        || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"));
    if is_reserved {
        return Err(Problem::bad_request(format!("`headers` may not set `{name}`: use the member for it")));
    }
    let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    if name.is_empty() || name.len() > 76 || !name.bytes().all(is_name) {
        let name: String = name.chars().take(64).collect();
        return Err(Problem::bad_request(format!(
            "`{}` is not the name of a header field",
            name.escape_debug()
        )));
    }
    Ok(["Message-ID", "Date", "References", "In-Reply-To"]
        .into_iter()
        .find(|own| name.eq_ignore_ascii_case(own))
        .unwrap_or(name))
}

fn is_media(text: &str) -> bool {
    text.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+@".contains(&byte);
    (1..=127).contains(&text.len()) && text.bytes().all(is_part)
}
