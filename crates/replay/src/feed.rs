//! Reads several logs together, and hands over their lines in order of time.
//!
//! It always reads the log whose lines are furthest behind. So logs of the same time are merged, and rotated
//! logs follow one another, in whatever order the caller names them. A file is open only while its lines are
//! read.

mod extracting;
mod input;
mod source;

use std::io;

pub use input::{Input, OpenLog, Pass};
use tollgate_core::{Span, Timestamp};

use crate::layout::{BadLayout, Mapping, Wish};
use crate::log::Unreadable;
use crate::log::format::{NoFormat, Taken};
use crate::order::{Entry, Order, Room, Shift};
use source::{Source, SourceState};

/// The settings for reading logs.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The name of their format, or a pattern; `None` to recognise it.
    pub format: Option<String>,
    /// The mappings of `--map`.
    pub mappings: Vec<Mapping>,
    /// Whether times are those of the start or the end of requests, if the columns' names do not tell.
    pub taken: Option<Taken>,
    /// The time zone of times without one.
    pub zone: Option<jiff::tz::TimeZone>,
    /// The most by which lines may be out of order.
    pub reorder: Span,
    /// The current time, by which times in the future are recognised.
    pub now: Timestamp,
    /// Whether requests that were refused when they were logged are replayed.
    pub refused: Refused,
}

/// Whether lines with the status 429 or 503 are replayed.
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
    reading: Reading,
    /// The counts of lines so far.
    pub account: Account,
}

/// The counts of the lines that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The number of lines, without empty ones.
    pub lines: u64,
    /// Lines that cannot be replayed.
    pub unreadable: u64,
    /// Lines about a message that are not attempts.
    pub other: u64,
    /// Lines of requests that were refused when they were logged, and are skipped.
    pub skipped: u64,
    /// Lines that were further out of order than the bound.
    pub late: u64,
    /// The first lines that cannot be replayed.
    pub samples: Vec<UnreadableLine>,
    /// The formats of the logs.
    pub formats: Vec<&'static str>,
    /// Whether some times have only whole seconds.
    pub whole_seconds: bool,
    /// Whether the logs have durations.
    pub durations: bool,
}

/// A line that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableLine {
    pub log: String,
    /// The number of the line in it.
    pub line: u64,
    pub reason: Unreadable,
    /// Its first characters.
    pub text: String,
}

/// Why logs cannot be read.
#[derive(Debug)]
pub enum FeedError {
    /// A log cannot be read. The operator's fault, or a failure of the machine.
    Io { log: String, error: io::Error },
    /// The format is not known. The operator's fault.
    Format { log: String, error: NoFormat },
    /// A field is not in the log. The operator's fault.
    Layout { log: String, error: BadLayout },
    /// A stream has no line that can be read, for so many bytes. The operator's fault: it is another file or device.
    Endless {
        /// The log.
        log: String,
        /// The number of bytes read.
        bytes: u64,
    },
    /// Too many logs have lines of the same time. The operator's fault.
    TooMany {
        /// The most logs that may be open at once.
        most: usize,
    },
}

/// The most lines, and bytes of lines, that may wait for earlier ones.
const ROOM: Room = Room { lines: 1_000_000, bytes: 256 << 20 };
/// The number of unreadable lines to show.
const SHOWN: usize = 5;
/// The most logs that are open at once. A process may usually open 1,024 files.
const MOST_OPEN: usize = 500;

impl Feed {
    /// Opens logs and recognises their formats. Lines become attempts with these fields.
    pub fn open(
        logs: Vec<(String, impl Into<Input>)>,
        reading: &Reading,
        wishes: &[Wish],
    ) -> Result<Self, FeedError> {
        let mut account = Account::default();
        let mut sources = Vec::new();
        let mut shift = Shift::None;
        for (log, input) in logs {
            let source = Source::new(log, input.into(), reading, wishes, &mut account)?;
            let Some(source) = source else { continue };
            let (format, layout) = match &source.state {
                SourceState::Closed(_, found) => (found.format.name(), &found.layout),
                SourceState::Open(_, extractor) => (extractor.format, &extractor.layout),
                SourceState::Ended(_) => continue,
            };
            if !account.formats.contains(&format) {
                account.formats.push(format);
            }
            account.durations |= layout.has_durations();
            if layout.taken == Taken::AtEnd && layout.has_durations() {
                shift = Shift::ByDuration;
            }
            sources.push(source);
        }
        let order = Order::new(reading.reorder, ROOM, shift);
        Ok(Self { sources, order, reading: reading.clone(), account })
    }

    /// Reads all logs, and hands over each line.
    pub fn run(&mut self, each: &mut dyn FnMut(&Entry<'_>)) -> Result<(), FeedError> {
        while self.step(each)? {}
        self.check_columns()
    }

    /// Reads one block of lines. Returns whether there may be more.
    fn step(&mut self, each: &mut dyn FnMut(&Entry<'_>)) -> Result<bool, FeedError> {
        let open = self.sources.iter().filter(|source| source.is_open()).count();
        let unread = self.sources.iter_mut().filter(|source| !source.is_ended());
        let Some(source) = unread.min_by_key(|source| source.reached) else {
            self.order.finish(each);
            self.account.late = self.order.late;
            return Ok(false);
        };
        if !source.is_open() {
            if open >= MOST_OPEN {
                return Err(FeedError::TooMany { most: MOST_OPEN });
            }
            source.open(&self.reading)?;
        }
        let Reading { refused, reorder, .. } = self.reading;
        source.read_block(&mut self.order, &mut self.account, refused, reorder.as_micros())?;
        let unread = self.sources.iter().filter(|source| !source.is_ended());
        if let Some(reached) = unread.map(|source| source.reached).min() {
            self.order.release(reached, each);
        }
        Ok(true)
    }

    /// Fails if `--map` names a column of JSON that no line of any log had.
    fn check_columns(&self) -> Result<(), FeedError> {
        let missing = |source: &Source| match &source.state {
            SourceState::Ended(missing) => missing.clone(),
            SourceState::Closed(..) | SourceState::Open(..) => Vec::new(),
        };
        let Some(first) = self.sources.first() else { return Ok(()) };
        let same = |a: &BadLayout, b: &BadLayout| a.column().is_some() && a.column() == b.column();
        let everywhere = |error: &BadLayout| {
            self.sources.iter().all(|source| missing(source).iter().any(|other| same(error, other)))
        };
        match missing(first).into_iter().find(everywhere) {
            Some(error) => Err(FeedError::Layout { log: first.name.clone(), error }),
            None => Ok(()),
        }
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
            Self::Format { log, error } => write!(f, "{log}: {error}"),
            Self::Layout { log, error } => write!(f, "{log}: {error}"),
            Self::Endless { log, bytes } => {
                write!(f, "{log}: {} MiB of it have no line that can be read", bytes >> 20)
            }
            Self::TooMany { most } => {
                write!(f, "more than {most} logs have lines of the same time: replay fewer of them at once")
            }
        }
    }
}

impl std::error::Error for FeedError {}
