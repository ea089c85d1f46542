//! Templates: text with placeholders, parsed once and filled for each refusal.
//!
//! `{name}` is a placeholder and `{{` is a brace. A brace without a name after it is a plain brace, so that
//! JSON can be written as it is.

use std::fmt::{self, Display};

use tollgate_core::policy::nearest;

use super::detail::Detail;
use crate::json;
use crate::words::Period;

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blank {
    RetryAfter,
    Limit,
    Number,
    Period,
    Burst,
    Remaining,
    Rule,
    Code,
    Key,
    Policy,
    CorrelationId,
    Decision,
    Status,
    Title,
    Type,
    Detail,
}

/// All placeholders by name.
const BLANKS: [(&str, Blank); 16] = [
    ("retry_after", Blank::RetryAfter),
    ("limit", Blank::Limit),
    ("number", Blank::Number),
    ("period", Blank::Period),
    ("burst", Blank::Burst),
    ("remaining", Blank::Remaining),
    ("rule", Blank::Rule),
    ("code", Blank::Code),
    ("key", Blank::Key),
    ("policy", Blank::Policy),
    ("correlation_id", Blank::CorrelationId),
    ("decision", Blank::Decision),
    ("status", Blank::Status),
    ("title", Blank::Title),
    ("type", Blank::Type),
    ("detail", Blank::Detail),
];

impl Blank {
    /// Whether the value is a number or `null`; otherwise it is text.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::RetryAfter | Self::Number | Self::Burst | Self::Remaining | Self::Status)
    }

    /// Whether a sentence makes no sense without its value.
    fn is_measure(self) -> bool {
        self.is_number() || self == Self::Period
    }
}

/// The value of a placeholder.
pub(super) enum BlankValue<'r> {
    Number(u64),
    Text(&'r str),
    Period(Period),
    Detail(Detail<'r>),
}

impl Display for BlankValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Period(period) => period.fmt(f),
            Self::Detail(detail) => detail.fmt(f),
        }
    }
}

/// A text with placeholders.
#[derive(Clone, Debug)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    /// Constant text, as written.
    Fixed(Box<str>),
    Blank(Blank),
    /// The inside of a JSON text that contains more than a placeholder whose value may be missing.
    Sentence(Template),
}

/// The form of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A whole body, written as JSON.
    Json,
    /// A sentence, which becomes a JSON text.
    Sentence,
}

/// A template that cannot be filled. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTemplate {
    /// The setting that has the template.
    pub setting: &'static str,
    /// The character at which the error is, from 1, if known.
    pub character: Option<usize>,
    /// The error, and the text to write instead.
    pub problem: String,
}

impl Template {
    /// Parses a template.
    pub(super) fn parse(setting: &'static str, text: &str, form: Form) -> Result<Self, BadTemplate> {
        let mut pieces = Vec::new();
        let mut fixed = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            fixed.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let name =
                &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())];
            let character = || Some(text[..text.len() - rest.len()].chars().count());
            let wrong = |problem| BadTemplate { setting, character: character(), problem };
            if let Some(after) = rest.strip_prefix('{') {
                fixed.push('{');
                rest = after;
            } else if name.is_empty() {
                fixed.push('{');
            } else if !rest[name.len()..].starts_with('}') {
                return Err(wrong(format!("`{{{name}` lacks its `}}`; a literal brace is written `{{{{`")));
            } else {
                let blank = blank(name, form).map_err(wrong)?;
                pieces.extend([Piece::Fixed(std::mem::take(&mut fixed).into()), Piece::Blank(blank)]);
                rest = &rest[name.len() + 1..];
            }
        }
        fixed.push_str(rest);
        pieces.push(Piece::Fixed(fixed.into()));
        pieces.retain(|piece| !piece.is_empty());
        Ok(Self(if form == Form::Json { sentences(pieces) } else { pieces }))
    }

    /// The placeholders, without those inside the sentences of a body.
    pub(super) fn blanks(&self) -> impl Iterator<Item = Blank> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Blank(blank) => Some(*blank),
            Piece::Fixed(_) | Piece::Sentence(_) => None,
        })
    }

    /// Writes a sentence. A placeholder without a value stays empty.
    pub(super) fn write_sentence<'r>(
        &self,
        value: impl Fn(Blank) -> Option<BlankValue<'r>>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Fixed(text) => f.write_str(text),
            Piece::Blank(blank) => value(*blank).map_or(Ok(()), |value| value.fmt(f)),
            Piece::Sentence(_) => Ok(()),
        })
    }

    /// Writes a body. A number without a value is `null`, and a text is empty. A sentence that lacks a value
    /// becomes the detail.
    pub(super) fn write_body<'r>(&self, value: &impl Fn(Blank) -> Option<BlankValue<'r>>, out: &mut Vec<u8>) {
        let known = |blank: Blank| !blank.is_measure() || value(blank).is_some();
        for piece in &self.0 {
            match piece {
                Piece::Fixed(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Blank(blank) => write_value(*blank, value(*blank), out),
                Piece::Sentence(sentence) if sentence.blanks().all(known) => sentence.write_body(value, out),
                Piece::Sentence(_) => write_value(Blank::Detail, value(Blank::Detail), out),
            }
        }
    }
}

fn write_value(blank: Blank, value: Option<BlankValue<'_>>, out: &mut Vec<u8>) {
    match value {
        Some(value) => json::escape(&value, out),
        None if blank.is_number() => out.extend_from_slice(b"null"),
        None => {}
    }
}

/// Groups the pieces inside quotes into sentences.
fn sentences(pieces: Vec<Piece>) -> Vec<Piece> {
    let (mut found, mut text, mut inside) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        let Piece::Fixed(fixed) = piece else {
            if inside { &mut text } else { &mut found }.push(piece);
            continue;
        };
        let (mut start, mut escaped) = (0, false);
        for (at, byte) in fixed.bytes().enumerate() {
            let quotes = byte == b'"' && !escaped;
            escaped = inside && byte == b'\\' && !escaped;
            if quotes && inside {
                text.push(Piece::Fixed(fixed[start..at].into()));
                found.extend(as_sentence(std::mem::take(&mut text)));
                start = at;
            } else if quotes {
                found.push(Piece::Fixed(fixed[start..=at].into()));
                start = at + 1;
            }
            inside ^= quotes;
        }
        if inside { &mut text } else { &mut found }.push(Piece::Fixed(fixed[start..].into()));
    }
    found.extend(text);
    joined(found)
}

/// The inside of a JSON text, as a sentence if it may lack a value.
fn as_sentence(mut text: Vec<Piece>) -> Vec<Piece> {
    text.retain(|piece| !piece.is_empty());
    let may_lack = text.iter().any(|piece| matches!(piece, Piece::Blank(blank) if blank.is_measure()));
    if may_lack && text.len() > 1 { vec![Piece::Sentence(Template(text))] } else { text }
}

/// Joins adjacent constant pieces.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Fixed(before)), Piece::Fixed(after)) => {
                *before = [&**before, &after].concat().into()
            }
            (_, piece) => joined.push(piece),
        }
    }
    joined.retain(|piece| !piece.is_empty());
    joined
}

impl Piece {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Fixed(text) if text.is_empty())
    }
}

fn blank(name: &str, form: Form) -> Result<Blank, String> {
    // A sentence is the detail itself, so it cannot contain it.
    let known = || BLANKS.into_iter().filter(|(_, blank)| form == Form::Json || *blank != Blank::Detail);
    if let Some((_, blank)) = known().find(|(known, _)| *known == name) {
        return Ok(blank);
    }
    let near = nearest(name, known().map(|(name, _)| name));
    let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{{{near}}}`?)"));
    let all: Vec<String> = known().map(|(name, _)| format!("{{{name}}}")).collect();
    Err(format!("there is no `{{{name}}}`{hint}; there are {}", all.join(" ")))
}

impl fmt::Display for BadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.setting)?;
        if let Some(character) = self.character {
            write!(f, ", character {character}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for BadTemplate {}
