//! One log: closed until the feed needs its lines, then read block by block.

use std::io::{self, Read};

use super::extracting::{Extractor, Recognised};
use super::input::{Input, OpenLog, Pass};
use super::{Account, FeedError, Reading, Refused};
use crate::layout::{BadLayout, Wish};
use crate::lines::{Lines, Piece};
use crate::log::Unreadable;
use crate::log::format::Taken;
use crate::order::{Head, Order};

pub(super) struct Source {
    pub(super) name: String,
    pub(super) state: SourceState,
    /// The latest time that was read, in microseconds.
    pub(super) reached: u64,
    /// A time beyond `reached` by more than the bound. Another line must confirm it.
    leap: Option<u64>,
    /// The offset of the last readable line, in bytes. `None` for a file, which ends.
    readable: Option<u64>,
}

/// The most bytes of a stream without a readable line: a device may yield bytes for ever.
const MOST_UNREADABLE: u64 = 64 << 20;

pub(super) enum SourceState {
    Closed(OpenLog, Recognised),
    Open(LogLines, Box<Extractor>),
    /// Contains an error for each mapped column that none of the log's lines had.
    Ended(Vec<BadLayout>),
}

type LogLines = Lines<Box<dyn Read>>;

impl Source {
    /// Recognises the format of a log. `None` if the log has no lines.
    pub(super) fn new(
        name: String,
        input: Input,
        reading: &Reading,
        wishes: &[Wish],
        account: &mut Account,
    ) -> Result<Option<Self>, FeedError> {
        let failed = |error| FeedError::Io { log: name.clone(), error };
        let (state, reached, readable) = match input {
            Input::Stream(reader) => {
                let mut lines = Lines::new(reader);
                let mut skip = |number, piece: Piece<'_>| account.skip(&name, number, piece);
                let found = recognise(&name, &mut lines, reading, wishes, MOST_UNREADABLE, &mut skip)?;
                let Some((found, first)) = found else { return Ok(None) };
                let extractor = Extractor::new(found, reading.now, reading.zone.clone());
                let readable = lines.bytes();
                (SourceState::Open(lines, Box::new(extractor)), first, Some(readable))
            }
            Input::File(open) => {
                let mut lines = Lines::new(open(Pass::Recognise).map_err(failed)?);
                // These lines are read again later, so none is handed out now.
                let mut skip = |_, _: Piece<'_>| {};
                let found = recognise(&name, &mut lines, reading, wishes, u64::MAX, &mut skip)?;
                let Some((found, first)) = found else { return Ok(None) };
                (SourceState::Closed(open, found), first, None)
            }
        };
        Ok(Some(Self { name, state, reached, leap: None, readable }))
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, SourceState::Ended(_))
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, SourceState::Open(..))
    }

    /// Opens the log, if it is closed.
    pub(super) fn open(&mut self, reading: &Reading) -> Result<(), FeedError> {
        let state = std::mem::replace(&mut self.state, SourceState::Ended(Vec::new()));
        self.state = match state {
            SourceState::Closed(open, found) => {
                let reader = open(Pass::Read).map_err(|error| self.failed(error))?;
                let extractor = Extractor::new(found, reading.now, reading.zone.clone());
                SourceState::Open(Lines::new(reader), Box::new(extractor))
            }
            state => state,
        };
        Ok(())
    }

    /// Reads a block of an open log.
    pub(super) fn read_block(
        &mut self,
        order: &mut Order,
        account: &mut Account,
        refused: Refused,
        bound: u64,
    ) -> Result<(), FeedError> {
        let Self { name, state, reached, leap, readable } = self;
        let SourceState::Open(lines, extractor) = state else { return Ok(()) };
        let mut unreadable = true;
        let more = lines.next_block(&mut |number, piece| {
            let (read, text) = match piece {
                Piece::Line(text) => (extractor.read(text), text),
                Piece::TooLong(_) => return account.skip(name, number, piece),
            };
            account.lines += 1;
            unreadable &= read.is_err();
            match read {
                Ok(Some(head)) => {
                    advance(reached, leap, head.at, bound);
                    account.whole_seconds |= head.whole;
                    if refused == Refused::Skipped && matches!(head.status, 429 | 503) {
                        account.skipped += 1;
                        return;
                    }
                    // If lines are ordered by their ends, a line with a start time gets its end as time.
                    let ahead = order.shifts() && extractor.layout.taken == Taken::AtStart;
                    let at = if ahead { head.at + head.duration } else { head.at };
                    order.push(Head { at, ..head }, &extractor.values);
                }
                Ok(None) => account.other += 1,
                Err(reason) => account.note(name, number, reason, text),
            }
        });
        let more = more.map_err(|error| FeedError::Io { log: name.clone(), error })?;
        if let Some(at) = readable {
            *at = if unreadable { *at } else { lines.bytes() };
            if lines.bytes() - *at > MOST_UNREADABLE {
                return Err(FeedError::Endless { log: name.clone(), bytes: MOST_UNREADABLE });
            }
        }
        if !more {
            let unsampled = extractor.layout.unsampled.drain(..);
            self.state = SourceState::Ended(unsampled.map(|(_, missing)| missing).collect());
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> FeedError {
        FeedError::Io { log: self.name.clone(), error }
    }
}

/// Reads a log until its format is recognised, or `most` bytes are read, and hands the lines before that to `skip`. Returns
/// the format and the time at which the log begins; `None` if it has no lines.
fn recognise(
    log: &str,
    lines: &mut LogLines,
    reading: &Reading,
    wishes: &[Wish],
    most: u64,
    skip: &mut dyn FnMut(u64, Piece<'_>),
) -> Result<Option<(Recognised, u64)>, FeedError> {
    let failed = |error| FeedError::Io { log: log.to_owned(), error };
    let mut skipped = 0_u64;
    loop {
        let sample = lines.sample().map_err(failed)?;
        let error = match Recognised::format(sample, reading) {
            Ok(format) => {
                let found = Recognised::new(format, reading, wishes)
                    .map_err(|error| FeedError::Layout { log: log.to_owned(), error })?;
                let first = found.first_time(sample, reading);
                return Ok(Some((found, first)));
            }
            Err(error) => error,
        };
        let is_final = error.is_final();
        let more = lines.next_block(&mut |number, piece| {
            skipped += 1;
            skip(number, piece);
        });
        let more = more.map_err(failed)?;
        if !is_final && lines.bytes() > most {
            return Err(FeedError::Endless { log: log.to_owned(), bytes: most });
        }
        if is_final || !more {
            let error = FeedError::Format { log: log.to_owned(), error };
            return if is_final || skipped > 0 { Err(error) } else { Ok(None) };
        }
    }
}

/// Updates the latest time of a log. A single time far ahead of all others is an error of that line, and must
/// not make the lines after it late.
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

impl Account {
    /// Counts a line that was read before the format was recognised, or that is too long.
    fn skip(&mut self, log: &str, number: u64, piece: Piece<'_>) {
        self.lines += 1;
        match piece {
            Piece::Line(text) => self.note(log, number, Unreadable::Format, text),
            Piece::TooLong(text) => self.note(log, number, Unreadable::TooLong, text),
        }
    }
}
