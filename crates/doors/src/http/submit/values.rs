//! Values of header fields, as JSON has them: text, which becomes a field that every mail program reads as that text.
//!
//! A text that looks like an encoded word is encoded, so that no mail program decodes it. Names of people and files that
//! look so are refused, because mail programs do not agree on where they decode those. Ids and dates have a form of their
//! own, and anything else is refused.

use data_encoding::BASE64;
use mail_builder::headers::HeaderType;
use mail_builder::headers::message_id::MessageId;
use mail_builder::headers::raw::Raw;
use mail_builder::headers::text::Text as Encoded;
use mail_parser::DateTime;

use crate::http::problem::Problem;

/// The longest word of a value that is written as it is. A line has at most 998 bytes (RFC 5322, 2.1.1), with the name
/// of the field.
const MOST_WORD: usize = 900;
/// The longest date.
const MOST_DATE: usize = 100;
/// How much text an encoded word has: with base64 and its frame it stays below 75 characters (RFC 2047, 2).
const MOST_ENCODED: usize = 42;

/// A text for people.
pub(super) fn text(value: &str) -> HeaderType<'_> {
    let fits = value.split(' ').all(|word| word.len() <= MOST_WORD);
    match (value.is_ascii(), is_like_encoded_word(value)) {
        (true, false) if fits => Raw::new(value.trim_end()).into(),
        (false, false) => Encoded::new(value).into(),
        _ => Raw::new(encoded_words(value)).into(),
    }
}

/// The value of `Message-ID`.
pub(super) fn message_id(value: &str) -> Result<HeaderType<'_>, Problem> {
    let id = bare_id(value.trim()).ok_or_else(|| wrong_id("Message-ID"))?;
    Ok(MessageId::new(id).into())
}

/// The value of `References` or `In-Reply-To`.
pub(super) fn message_ids<'v>(field: &str, value: &'v str) -> Result<HeaderType<'v>, Problem> {
    let ids: Option<Vec<&str>> = value.split_whitespace().map(bare_id).collect();
    let ids = ids.filter(|ids| !ids.is_empty()).ok_or_else(|| wrong_id(field))?;
    Ok(MessageId::from(ids).into())
}

/// The value of `Date`.
pub(super) fn date(value: &str) -> Result<HeaderType<'static>, Problem> {
    let date = (value.len() <= MOST_DATE).then(|| DateTime::parse_rfc822(value)).flatten();
    let date = date.filter(DateTime::is_valid).ok_or_else(|| {
        Problem::bad_request(
            "`headers`: `Date` is a date as in `Wed, 18 Nov 2026 19:04:05 +0100`; leave it out for now",
        )
    })?;
    Ok(Raw::new(date.to_rfc822()).into())
}

/// The name of a person or a file.
pub(super) fn name<'t>(member: &str, text: &'t str) -> Result<&'t str, Problem> {
    match is_like_encoded_word(text) {
        true => Err(Problem::bad_request(format!(
            "`{member}` contains an encoded word, as in `=?utf-8?Q?...?=`: write the name itself, and the relay encodes it"
        ))),
        false => Ok(text),
    }
}

/// Whether a mail program could decode a part of a text. Some are lenient, so this is, too.
fn is_like_encoded_word(text: &str) -> bool {
    text.match_indices("=?").any(|(at, _)| {
        let mut parts = text[at + 2..].splitn(3, '?');
        let (charset, encoding, rest) = (parts.next(), parts.next(), parts.next());
        charset.is_some_and(|charset| !charset.is_empty())
            && encoding.is_some_and(|encoding| matches!(encoding, "q" | "Q" | "b" | "B"))
            && rest.is_some_and(|rest| rest.contains("?="))
    })
}

fn encoded_words(text: &str) -> String {
    let (mut words, mut word) = (Vec::new(), String::new());
    for c in text.chars() {
        if word.len() + c.len_utf8() > MOST_ENCODED {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.push(word);
    let encode = |word: &String| format!("=?utf-8?B?{}?=", BASE64.encode(word.as_bytes()));
    words.iter().map(encode).collect::<Vec<_>>().join(" ")
}

/// An id without its angle brackets, which may be missing.
fn bare_id(text: &str) -> Option<&str> {
    let id = match text.strip_prefix('<') {
        Some(rest) => rest.strip_suffix('>')?,
        None => text,
    };
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"<>".contains(&byte);
    let (left, right) = id.split_once('@')?;
    let is_id = !left.is_empty() && !right.is_empty() && id.len() <= MOST_WORD && id.bytes().all(is_part);
    is_id.then_some(id)
}

fn wrong_id(field: &str) -> Problem {
    Problem::bad_request(format!(
        "`headers`: `{field}` is an id as in `<8d2f@example.com>`, of at most {MOST_WORD} characters"
    ))
}

#[cfg(test)]
mod tests {
    use mail_builder::MessageBuilder;
    use mail_parser::MessageParser;

    use super::*;

    fn read(value: &str) -> (String, String) {
        let message = MessageBuilder::new().header("Subject", text(value)).text_body("x");
        let written = message.write_to_string().unwrap();
        let parsed =
            MessageParser::default().parse(&*written).unwrap().subject().unwrap_or_default().to_owned();
        (written, parsed)
    }

    #[test]
    fn every_text_is_read_as_it_was_written_and_no_line_is_too_long() {
        let long = "word ".repeat(400);
        let (endless, letters) = ("x".repeat(5_000), "ä".repeat(5_000));
        for value in [
            "hello",
            "=?utf-8?Q?hello?=",
            "=?UTF-8?b?aGVsbG8=?= and more",
            "=?utf-8?q?a b c?=",
            "grüße =?utf-8?Q?hello?=",
            "1 =? 2 ?= 3",
            "a =?x?=",
            long.trim_end(),
            &endless,
            &letters,
        ] {
            let (written, parsed) = read(value);
            assert_eq!(parsed, value, "{written}");
            assert!(written.lines().all(|line| line.len() <= 998), "{written}");
        }
        assert!(read("x=?y").0.contains("x=?y"), "what no program decodes is left as it is");
        let unsubscribe = format!("<https://example.com/u?{}>, <mailto:u@example.com>", "a".repeat(100));
        assert!(read(&unsubscribe).0.contains(&"a".repeat(100)), "an address stays an address");
    }

    #[test]
    fn ids_and_dates_have_their_form() {
        assert!(message_id("<a@b.example>").is_ok() && message_id("a@b.example").is_ok());
        let long = format!("<{}@b.example>", "x".repeat(5_000));
        for wrong in ["", "<>", "a b@c", "<a@b", "<a@b> <c@d>", "ä@b", "word", &long] {
            assert!(message_id(wrong).is_err(), "{wrong}");
        }
        let many = "<a@b.example> ".repeat(200);
        assert!(message_ids("References", &many).is_ok());
        assert!(message_ids("References", " ").is_err());
        assert!(date("Wed, 18 Nov 2026 19:04:05 +0100").is_ok());
        let long = " ".repeat(5_000);
        for wrong in ["yesterday", "", "2026-11-18T19:04:05Z", "Wed, 45 Nov 2026 19:04:05 +0100", &long] {
            assert!(date(wrong).is_err(), "{wrong}");
        }
    }
}
