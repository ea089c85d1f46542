//! The sentence that explains a refusal.

use std::fmt::{self, Display, Formatter};

use serde::{Serialize, Serializer};
use tollgate_core::{Line, Origin, When};

use super::Values;
use super::headers::whole_secs;
use super::refusal::Refusal;
use super::template::Template;
use crate::words;

/// The `detail` of a refusal. It is written straight into the body.
#[derive(Clone, Copy)]
pub(super) enum Detail<'r> {
    /// The default text: the key that exceeded a limit, the limit, and the time to retry.
    Default(&'r Refusal<'r>),
    /// The configured text.
    Configured(&'r Template, Values<'r>),
}

impl Display for Detail<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default(refusal) if refusal.blocked.is_some() => write_ban(refusal, f),
            Self::Default(refusal) => write_excess(refusal, f),
            Self::Configured(template, values) => template.write_sentence(|blank| values.find(blank), f),
        }
    }
}

impl Serialize for Detail<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn write_excess(refusal: &Refusal<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let Some((line, key)) = &refusal.named else { return f.write_str("rate limit exceeded") };
    write_place(line, key, f)?;
    if let Origin::Outage(reason) = refusal.origin {
        write!(f, " cannot be counted: {}", words::excuse(reason))?;
    }
    match refusal.binding() {
        Some((_, limit, _)) if line.rule.rows.is_some() => write!(f, " exceeded {} rows", limit.number())?,
        Some((limit, ..)) => write!(f, " exceeded {limit}")?,
        None => {}
    }
    match (refusal.wait(), refusal.retry) {
        (Some(wait), _) => write!(f, "; retry after {} s", whole_secs(wait))?,
        (None, When::OnRelease) if line.rule.rows.is_some() => f.write_str("; retry when there are fewer")?,
        (None, When::OnRelease) => f.write_str("; retry when a hold has ended")?,
        (None, _) => f.write_str("; it can never pass")?,
    }
    let Some((line, key)) = &refusal.retry_by else { return Ok(()) };
    f.write_str(", because of ")?;
    write_place(line, key, f)?;
    line.binding_written().map_or(Ok(()), |(limit, ..)| write!(f, " ({limit})"))
}

/// Writes that the client is blocked, the reason if it is public, and when to retry.
fn write_ban(refusal: &Refusal<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("banned")?;
    if let Some(reason) = refusal.public_reason() {
        write!(f, ": {reason}")?;
    }
    refusal.wait().map_or(Ok(()), |wait| write!(f, "; retry after {} s", whole_secs(wait)))
}

/// Writes a rule and its key.
fn write_place(line: &Line<'_>, key: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(&line.rule.name)?;
    if line.rule.by.is_empty() { Ok(()) } else { write!(f, " {key}") }
}
