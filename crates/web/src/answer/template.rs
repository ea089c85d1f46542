//! Templates: text with placeholders, parsed once and filled for each refusal.
//!
//! `{name}` is a placeholder and `{{` is a brace. A brace without a name after it is a plain brace, so that
//! JSON can be written as it is.

use std::fmt;

use tollgate_core::policy::nearest;

use crate::json::Json;

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

/// A text with placeholders.
#[derive(Clone, Debug)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    /// Constant text, escaped for JSON if necessary.
    Fixed(Box<[u8]>),
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
    /// Which setting it is.
    pub setting: &'static str,
    /// The character at which the error is, from 1, if known.
    pub character: Option<usize>,
    /// What is wrong there, and what to write instead.
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
                pieces.extend([Piece::fixed(&std::mem::take(&mut fixed), form), Piece::Blank(blank)]);
                rest = &rest[name.len() + 1..];
            }
        }
        fixed.push_str(rest);
        pieces.push(Piece::fixed(&fixed, form));
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

    /// Writes the template, and calls `fill` for each placeholder. A sentence of a body that lacks a value
    /// becomes the detail.
    pub(super) fn write(
        &self,
        json: &mut Json,
        known: &impl Fn(Blank) -> bool,
        fill: &mut impl FnMut(Blank, &mut Json),
    ) {
        for piece in &self.0 {
            match piece {
                Piece::Fixed(bytes) => json.bytes().extend_from_slice(bytes),
                Piece::Blank(blank) => fill(*blank, json),
                Piece::Sentence(sentence) => {
                    if sentence.blanks().filter(|blank| blank.is_measure()).all(known) {
                        sentence.write(json, known, fill);
                    } else {
                        fill(Blank::Detail, json);
                    }
                }
            }
        }
    }
}

/// Groups the pieces inside quotes into sentences.
fn sentences(pieces: Vec<Piece>) -> Vec<Piece> {
    let (mut found, mut text, mut inside) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        let Piece::Fixed(bytes) = piece else {
            if inside { &mut text } else { &mut found }.push(piece);
            continue;
        };
        let (mut start, mut escaped) = (0, false);
        for (at, byte) in bytes.iter().enumerate() {
            let quotes = *byte == b'"' && !escaped;
            escaped = inside && *byte == b'\\' && !escaped;
            if quotes && inside {
                text.push(Piece::Fixed(bytes[start..at].into()));
                found.extend(as_sentence(std::mem::take(&mut text)));
                start = at;
            } else if quotes {
                found.push(Piece::Fixed(bytes[start..=at].into()));
                start = at + 1;
            }
            inside ^= quotes;
        }
        if inside { &mut text } else { &mut found }.push(Piece::Fixed(bytes[start..].into()));
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
        matches!(self, Self::Fixed(bytes) if bytes.is_empty())
    }

    fn fixed(text: &str, form: Form) -> Self {
        let mut json = Json::with_capacity(text.len());
        match form {
            Form::Json => json.bytes().extend_from_slice(text.as_bytes()),
            Form::Sentence => json.add(text),
        }
        Self::Fixed(json.into_bytes().into())
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
