//! Converts lines of logs to values: pure functions that accept any bytes.
//!
//! A format splits a line into columns. [`crate::layout`] decides which columns are the time, the client's
//! address and the fields of a policy.

pub mod format;
pub mod json;
pub mod pattern;
pub mod postfix;
pub mod stamp;

use std::fmt;

use format::Format;
use pattern::Spans;
use postfix::{Joined, Said};

/// Splits the lines of one log into columns.
pub struct Splitter {
    form: SplitForm,
    row: Row,
    spans: Spans,
}

enum SplitForm {
    Pattern(pattern::Pattern),
    Json(json::Places),
    Postfix(Box<Joined>),
}

/// The values of one line, by the positions of their columns.
#[derive(Clone, Debug, Default)]
pub struct Row {
    text: Vec<u8>,
    values: Vec<Option<(u32, u32)>>,
}

/// The columns of one line.
#[derive(Clone, Copy)]
pub enum Columns<'l> {
    /// Parts of the line itself.
    Line(&'l [u8], &'l Spans),
    /// Parts of a text that was made from the line, for JSON and mail logs.
    Row(&'l Row),
}

/// Why a line cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unreadable {
    /// The line does not match the format.
    Format,
    /// The line has no time that can be parsed.
    Time,
    /// Its time is more than a day in the future.
    Future,
    /// It is longer than [`MOST_LINE`].
    TooLong,
    /// A value that a rule needs is not UTF-8.
    NotUtf8,
    /// The gateway would refuse its path or its host.
    NoNormalForm,
}

/// The longest line, in bytes.
pub const MOST_LINE: usize = 1 << 20;

impl Splitter {
    /// Makes a splitter for lines of this format. Of JSON, it reads only these columns.
    pub fn new(format: &Format, columns: &[Box<str>]) -> Self {
        let form = match format {
            Format::Pattern { pattern, .. } => SplitForm::Pattern(pattern.clone()),
            Format::Json { .. } => SplitForm::Json(json::Places::new(columns)),
            Format::Postfix => SplitForm::Postfix(Box::default()),
        };
        Self { form, row: Row::default(), spans: Spans::new() }
    }

    /// Splits a line. `None` if the line is a part of a message and not an attempt of its own.
    #[inline]
    pub fn split<'l>(&'l mut self, line: &'l [u8]) -> Result<Option<Columns<'l>>, Unreadable> {
        match &mut self.form {
            SplitForm::Pattern(pattern) => {
                let fits = pattern.split(line, &mut self.spans);
                if fits { Ok(Some(Columns::Line(line, &self.spans))) } else { Err(Unreadable::Format) }
            }
            SplitForm::Json(places) => {
                if places.read(line, &mut self.row) {
                    Ok(Some(Columns::Row(&self.row)))
                } else {
                    Err(Unreadable::Format)
                }
            }
            SplitForm::Postfix(joined) => match joined.read(line, &mut self.row) {
                Said::Attempt => Ok(Some(Columns::Row(&self.row))),
                Said::Nothing => Ok(None),
                Said::Unreadable => Err(Unreadable::Format),
            },
        }
    }
}

impl<'l> Columns<'l> {
    /// The value of a column; `None` if the line lacks it. An empty value and `-` count as absent.
    #[inline]
    pub fn value(self, place: usize) -> Option<&'l [u8]> {
        let value = match self {
            Self::Line(line, spans) => {
                let (from, to) = *spans.get(place)?;
                &line[from as usize..to as usize]
            }
            Self::Row(row) => {
                let (from, to) = (*row.values.get(place)?)?;
                &row.text[from as usize..to as usize]
            }
        };
        (!matches!(value, b"" | b"-")).then_some(value)
    }
}

impl Row {
    fn clear(&mut self, columns: usize) {
        self.text.clear();
        self.values.clear();
        self.values.resize(columns, None);
    }

    /// Sets a value. If a column has several values, the last one counts.
    fn put(&mut self, place: usize, value: &[u8]) {
        let from = self.text.len() as u32;
        self.text.extend_from_slice(value);
        self.values[place] = Some((from, self.text.len() as u32));
    }

    fn put_known(&mut self, place: usize, value: &[u8]) {
        if !value.is_empty() && value != b"unknown" {
            self.put(place, value);
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "it does not have the format",
            Self::Time => "it has no time that can be read",
            Self::Future => "its time is in the future",
            Self::TooLong => "it is longer than 1 MiB",
            Self::NotUtf8 => "a value is not UTF-8",
            Self::NoNormalForm => "the gateway would refuse its path or host",
        })
    }
}
