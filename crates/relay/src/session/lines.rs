//! Splits the bytes of a client into command lines.

use memchr::memchr;

/// Bytes that were received and not read yet.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// The position of the next line.
    at: usize,
    /// The number of bytes after that position that were searched for the end of the line.
    searched: usize,
    /// The number of bytes of an overlong line that were discarded.
    skipped: usize,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'l> {
    /// Without its CR LF.
    Text(&'l [u8]),
    /// It was longer than [`Lines::MOST_BYTES`].
    TooLong,
    /// It contains a NUL or a CR, or ends in a bare LF.
    Malformed,
}

impl Lines {
    /// The longest line: RFC 4954 has clients send up to this much in one step of AUTH.
    pub const MOST_BYTES: usize = 12_288;
    /// The most bytes of one overlong line that are discarded before the server closes the connection.
    pub const MOST_SKIPPED: usize = 64 * 1024;

    /// The buffer to append received bytes to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        &mut self.buffer
    }

    /// The bytes that were not read yet.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// Marks the first `count` unread bytes as read elsewhere.
    pub fn consume(&mut self, count: usize) {
        self.at = (self.at + count).min(self.buffer.len());
        self.searched = 0;
    }

    /// Discards all unread bytes.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Frees memory that a large input needed.
    pub fn shrink(&mut self, most: usize) {
        self.buffer().shrink_to(most);
    }

    /// Whether the client sends a line without an end.
    pub fn is_endless(&self) -> bool {
        self.skipped > Self::MOST_SKIPPED
    }

    /// The next line; `None` if it is not complete.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        let unread = &self.buffer[self.at..];
        let Some(end) = memchr(b'\n', &unread[self.searched..]) else {
            self.searched = unread.len();
            if self.searched > Self::MOST_BYTES || self.skipped > 0 {
                self.skipped += self.searched;
                self.consume(self.searched);
            }
            return None;
        };
        let (start, length) = (self.at, self.searched + end);
        self.at += length + 1;
        self.searched = 0;
        let skipped = std::mem::take(&mut self.skipped);
        let line = &self.buffer[start..start + length];
        if skipped > 0 || length > Self::MOST_BYTES {
            return Some(Line::TooLong);
        }
        Some(match line.strip_suffix(b"\r") {
            Some(text) if !text.iter().any(|byte| matches!(byte, b'\r' | 0)) => Line::Text(text),
            _ => Line::Malformed,
        })
    }
}
