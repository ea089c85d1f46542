//! Reads the lines of one log in large blocks, in bounded memory.

use std::io::{self, Read};

use memchr::memchr;

use crate::log::MOST_LINE;

/// The lines of a log.
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The part of the buffer that was not handed out yet.
    from: usize,
    to: usize,
    /// The number of lines that have ended, including empty ones.
    number: u64,
    /// The number of bytes read.
    bytes: u64,
    /// Whether the rest of a line that is too long is being skipped.
    skipping: bool,
    ended: bool,
}

/// Takes the lines of a block, each with its number in the log. Empty lines have numbers, but are not handed out.
pub type TakeLine<'t> = &'t mut dyn FnMut(u64, Piece<'_>);

/// A line of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// A line without its end.
    Line(&'b [u8]),
    /// The first bytes of a line that is longer than [`MOST_LINE`].
    TooLong(&'b [u8]),
}

/// The number of bytes to read at once.
const BLOCK: usize = 256 << 10;

impl<R: Read> Lines<R> {
    /// Reads lines from a reader.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; BLOCK],
            from: 0,
            to: 0,
            number: 0,
            bytes: 0,
            skipping: false,
            ended: false,
        }
    }

    /// The number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the next bytes without taking them, to recognise the format.
    pub fn sample(&mut self) -> io::Result<&[u8]> {
        while self.to - self.from < BLOCK && !self.ended {
            self.fill()?;
        }
        let sample = &self.buffer[self.from..self.to];
        let whole = memchr::memrchr(b'\n', sample).filter(|_| !self.ended);
        Ok(&sample[..whole.unwrap_or(sample.len())])
    }

    /// Hands out the lines of the next block. Returns whether there may be more.
    pub fn next_block(&mut self, each: TakeLine<'_>) -> io::Result<bool> {
        if self.from == self.to && !self.ended {
            self.fill()?;
        }
        while let Some(length) = memchr(b'\n', &self.buffer[self.from..self.to]) {
            let line = &self.buffer[self.from..self.from + length];
            self.from += length + 1;
            self.number += 1;
            if !std::mem::take(&mut self.skipping) {
                hand_out(self.number, line, each);
            }
        }
        let rest = self.to - self.from;
        if self.ended {
            if rest > 0 && !self.skipping {
                hand_out(self.number + 1, &self.buffer[self.from..self.to], each);
            }
            self.from = self.to;
            return Ok(false);
        }
        if rest > MOST_LINE {
            if !std::mem::replace(&mut self.skipping, true) {
                each(self.number + 1, Piece::TooLong(&self.buffer[self.from..self.from + 200]));
            }
            self.from = self.to;
        }
        self.fill()?;
        Ok(true)
    }

    /// Moves the unread bytes to the front of the buffer, and reads more behind them.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.buffer.len() - self.to < BLOCK / 2 {
            self.buffer.resize(self.to + BLOCK, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.to..]) {
                Ok(0) => self.ended = true,
                Ok(read) => {
                    self.to += read;
                    self.bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

#[inline]
fn hand_out(number: u64, line: &[u8], each: TakeLine<'_>) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > MOST_LINE {
        each(number, Piece::TooLong(&line[..200]));
    } else if !line.is_empty() {
        each(number, Piece::Line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that yields one byte at a time.
    struct Slowly<'b>(&'b [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            into[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn all(reader: impl Read) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(reader);
        let mut seen = Vec::new();
        let mut note = |_: u64, piece: Piece<'_>| {
            seen.push(match piece {
                Piece::Line(line) => line.to_vec(),
                Piece::TooLong(_) => b"too long".to_vec(),
            });
        };
        while lines.next_block(&mut note).expect("reading works") {}
        seen
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"one\r\n\ntwo\nthree";
        let expected = [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()];
        assert_eq!(all(&text[..]), expected);
        assert_eq!(all(Slowly(text)), expected);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_bounded_memory() {
        let mut text = b"first\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 5 * MOST_LINE));
        text.extend_from_slice(b"\nlast\n");
        let mut lines = Lines::new(&text[..]);
        let mut seen = Vec::new();
        let mut note =
            |number: u64, piece: Piece<'_>| seen.push((number, matches!(piece, Piece::TooLong(_))));
        while lines.next_block(&mut note).expect("reading works") {
            assert!(lines.buffer.len() <= MOST_LINE + 3 * BLOCK, "{}", lines.buffer.len());
        }
        assert_eq!(seen, [(1, false), (2, true), (3, false)]);
    }

    #[test]
    fn empty_lines_have_numbers() {
        let mut numbers = Vec::new();
        let mut lines = Lines::new(&b"\n\none\n\r\ntwo"[..]);
        while lines.next_block(&mut |number, _| numbers.push(number)).expect("reading works") {}
        assert_eq!(numbers, [3, 5]);
    }

    #[test]
    fn a_sample_is_read_again_as_lines() {
        let mut lines = Lines::new(&b"one\ntwo\n"[..]);
        assert_eq!(lines.sample().expect("reading works"), b"one\ntwo\n");
        let mut seen = 0;
        while lines.next_block(&mut |_, _| seen += 1).expect("reading works") {}
        assert_eq!(seen, 2);
    }
}
