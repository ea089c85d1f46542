//! Reads logs side by side, and hands over their lines in order of time.
//!
//! The log that is furthest behind is read next. So several logs of the same time are merged, and rotated logs follow
//! one another, in whatever order they are named.

use std::io::{self, Read};

use tollgate_core::{Span, Timestamp};

use crate::hash;
use crate::layout::{BadLayout, Layout, Mapping, Wish};
use crate::lines::{Lines, Piece};
use crate::log::format::{Format, NoFormat, Taken};
use crate::log::stamp::Stamps;
use crate::log::{Splitter, Unreadable};
use crate::order::{ABSENT, Entry, Head, Order, Shift, Values};

/// How logs are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The name of their format, or a pattern; `None` to recognise it.
    pub format: Option<String>,
    /// `--map`.
    pub mappings: Vec<Mapping>,
    /// When times were taken, if the columns' names do not tell.
    pub taken: Option<Taken>,
    /// The zone of times without one.
    pub zone: Option<jiff::tz::TimeZone>,
    /// How far lines may be out of order.
    pub reorder: Span,
    /// The present, by which times in the future are recognised.
    pub now: Timestamp,
    /// What happens to requests that were refused when they were logged.
    pub refused: Refused,
}

/// What happens to lines with the status 429 or 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// They are replayed like all others.
    Replayed,
    /// They are left out.
    Skipped,
}

/// Logs that are read side by side.
pub struct Feed {
    sources: Vec<Source>,
    order: Order,
    refused: Refused,
    bound: u64,
    /// What was read so far.
    pub account: Account,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Lines, without empty ones.
    pub lines: u64,
    /// Lines that cannot be replayed.
    pub unreadable: u64,
    /// Lines that say something of a message, without being an attempt.
    pub other: u64,
    /// Lines of requests that were refused when they were logged, and are skipped.
    pub skipped: u64,
    /// Lines that were further out of order than the bound.
    pub late: u64,
    /// The first lines that cannot be replayed.
    pub samples: Vec<UnreadableLine>,
    /// The formats of the logs.
    pub formats: Vec<&'static str>,
    /// Whether some times are whole seconds.
    pub whole_seconds: bool,
    /// Whether durations are known.
    pub durations: bool,
}

/// A line that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableLine {
    /// The log.
    pub log: String,
    /// The number of the line in it.
    pub line: u64,
    /// Why.
    pub reason: Unreadable,
    /// Its first characters.
    pub text: String,
}

/// Why logs cannot be read.
#[derive(Debug)]
pub enum FeedError {
    /// A log cannot be read. Nobody's fault, or the operator's.
    Io {
        /// The log.
        log: String,
        /// Why.
        error: io::Error,
    },
    /// The format is not known. The operator's fault.
    Format {
        /// The log.
        log: String,
        /// Why.
        error: NoFormat,
    },
    /// A field is not in the log. The operator's fault.
    Layout {
        /// The log.
        log: String,
        /// Why.
        error: BadLayout,
    },
}

struct Source {
    name: String,
    lines: Lines<Box<dyn Read>>,
    parsed: Extractor,
    /// How far it was read, in microseconds.
    reached: u64,
    /// A time beyond the bound after `reached`, which one more line has to confirm.
    leap: Option<u64>,
    line: u64,
    ended: bool,
}

/// Turns lines into heads and values.
struct Extractor {
    splitter: Splitter,
    layout: Layout,
    stamps: Stamps,
    values: Values,
}

/// How many lines may wait for earlier ones: together with their texts some hundred megabytes.
const MOST_HELD: usize = 1_000_000;
/// How many unreadable lines are shown.
const SHOWN: usize = 5;

impl Feed {
    /// Opens logs, whose lines become attempts with these fields.
    pub fn open(
        logs: Vec<(String, Box<dyn Read>)>,
        reading: &Reading,
        wishes: &[Wish],
    ) -> Result<Self, FeedError> {
        let mut account = Account::default();
        let mut sources = Vec::new();
        for (log, reader) in logs {
            let mut lines = Lines::new(reader);
            let fail = |error| FeedError::Io { log: log.clone(), error };
            let sample = lines.sample().map_err(fail)?;
            if sample.is_empty() {
                continue;
            }
            let format = match &reading.format {
                Some(name) => Format::named(name, sample),
                None => Format::detect(sample),
            };
            let format = format.map_err(|error| FeedError::Format { log: log.clone(), error })?;
            let layout = Layout::new(&format, &reading.mappings, wishes, reading.taken)
                .map_err(|error| FeedError::Layout { log: log.clone(), error })?;
            if !account.formats.contains(&format.name()) {
                account.formats.push(format.name());
            }
            account.durations |= layout.has_durations();
            let splitter = Splitter::new(&format, &layout.columns);
            let stamps = Stamps::new(reading.now, reading.zone.clone());
            let parsed = Extractor { splitter, layout, stamps, values: Values::default() };
            let (reached, leap, line, ended) = (0, None, 0, false);
            sources.push(Source { name: log, lines, parsed, reached, leap, line, ended });
        }
        let shifts = |source: &Source| {
            source.parsed.layout.taken == Taken::AtEnd && source.parsed.layout.has_durations()
        };
        let shift = if sources.iter().any(shifts) { Shift::ByDuration } else { Shift::None };
        let order = Order::new(reading.reorder, MOST_HELD, shift);
        let (refused, bound) = (reading.refused, reading.reorder.as_micros());
        Ok(Self { sources, order, refused, bound, account })
    }

    /// Reads everything, and hands over each line.
    pub fn run(&mut self, each: &mut dyn FnMut(&Entry<'_>)) -> Result<(), FeedError> {
        while self.step(each)? {}
        Ok(())
    }

    /// Reads some lines. Returns whether there may be more.
    fn step(&mut self, each: &mut dyn FnMut(&Entry<'_>)) -> Result<bool, FeedError> {
        let open = self.sources.iter_mut().filter(|source| !source.ended);
        let Some(source) = open.min_by_key(|source| source.reached) else {
            self.order.finish(each);
            self.account.late = self.order.late;
            return Ok(false);
        };
        source.read_block(&mut self.order, &mut self.account, self.refused, self.bound)?;
        let open = self.sources.iter().filter(|source| !source.ended);
        if let Some(reached) = open.map(|source| source.reached).min() {
            self.order.release(reached, each);
        }
        Ok(true)
    }
}

impl Source {
    fn read_block(
        &mut self,
        order: &mut Order,
        account: &mut Account,
        refused: Refused,
        bound: u64,
    ) -> Result<(), FeedError> {
        let Self { name, lines, parsed, reached, leap, line, .. } = self;
        let more = lines.next_block(&mut |piece| {
            *line += 1;
            account.lines += 1;
            let (read, text) = match piece {
                Piece::Line(text) => (parsed.read(text), text),
                Piece::TooLong(text) => (Err(Unreadable::TooLong), text),
            };
            match read {
                Ok(Some(head)) => {
                    advance(reached, leap, head.at, bound);
                    account.whole_seconds |= head.whole;
                    if refused == Refused::Skipped && matches!(head.status, 429 | 503) {
                        account.skipped += 1;
                        return;
                    }
                    // In an order by ends, a time at the start becomes one at the end.
                    let ahead = order.shifts() && parsed.layout.taken == Taken::AtStart;
                    let at = if ahead { head.at + head.duration } else { head.at };
                    order.push(Head { at, ..head }, &parsed.values);
                }
                Ok(None) => account.other += 1,
                Err(reason) => account.note(name, *line, reason, text),
            }
        });
        let more = more.map_err(|error| FeedError::Io { log: name.clone(), error })?;
        self.ended = !more;
        Ok(())
    }
}

/// Notes how far a log was read. A single time far ahead of all others is an error of that line, and must not make the
/// lines after it late.
#[inline]
fn advance(reached: &mut u64, leap: &mut Option<u64>, at: u64, bound: u64) {
    if at <= *reached {
        *leap = None;
    } else if at - *reached <= bound {
        *reached = at;
        *leap = None;
    } else if let Some(other) = leap.take() {
        *reached = other.min(at);
        *leap = (other.max(at) - *reached > bound).then_some(other.max(at));
    } else {
        *leap = Some(at);
    }
}

impl Extractor {
    /// Reads a line; its values are in `self.values` then.
    #[inline]
    fn read(&mut self, line: &[u8]) -> Result<Option<Head>, Unreadable> {
        let Self { splitter, layout, stamps, values } = self;
        let Some(columns) = splitter.split(line)? else { return Ok(None) };
        let stamp = columns.value(layout.time).and_then(|text| stamps.read(text)).ok_or(Unreadable::Time)?;
        if stamps.is_future(stamp) {
            return Err(Unreadable::Future);
        }
        values.text.clear();
        values.lengths.clear();
        for slot in &layout.slots {
            let from = values.text.len();
            let present = slot.write(columns, &mut values.text)?;
            let length = u16::try_from(values.text.len() - from).expect("fields are bounded");
            values.lengths.push(if present { length } else { ABSENT });
        }
        let status = layout.status.and_then(|place| columns.value(place)).map_or(0, status);
        let agent = layout.agent.and_then(|place| columns.value(place)).map_or(0, hash);
        let duration = layout.duration_of(columns).as_micros();
        Ok(Some(Head { at: stamp.micros, whole: stamp.whole, duration, status, agent }))
    }
}

#[inline]
fn status(text: &[u8]) -> u16 {
    match text {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => 0,
    }
}

impl Account {
    #[cold]
    fn note(&mut self, log: &str, line: u64, reason: Unreadable, text: &[u8]) {
        self.unreadable += 1;
        if self.samples.len() < SHOWN {
            let text = String::from_utf8_lossy(&text[..text.len().min(400)]).chars().take(100).collect();
            self.samples.push(UnreadableLine { log: log.to_owned(), line, reason, text });
        }
    }
}

impl std::fmt::Display for FeedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io { log, error } => write!(f, "{log}: cannot be read: {error}"),
            Self::Format { log, error } => write!(f, "{log}: the format is not known: {error}"),
            Self::Layout { log, error } => write!(f, "{log}: {error}"),
        }
    }
}

impl std::error::Error for FeedError {}
