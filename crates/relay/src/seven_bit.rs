//! Texts with 8-bit bodies for servers that take 7 bits alone (RFC 6152): bodies become quoted-printable or base64.
//!
//! A text may be large, so that it is read piece by piece, and more than once: first to learn which of its parts need another
//! encoding, then to write it. Header fields stay as they are.

mod encoding;
mod walk;

use std::collections::VecDeque;
use std::hash::Hasher;
use std::io::{self, BufRead, BufReader, Read};

use siphasher::sip::SipHasher13;

use crate::queue::Text;
use walk::{Need, Walk};

/// The treatment of an 8-bit text if its next hop does not accept one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EightBit {
    /// Its bodies are encoded anew. Signatures over them break.
    #[default]
    Convert,
    /// It is sent as it is. Most servers take it all the same.
    Send,
}

/// The most bytes of a line that are examined together.
const PIECE: u64 = 8 << 10;

/// Converts a text. `open` opens it anew each time.
pub(crate) fn convert(open: impl Fn() -> io::Result<Text>) -> io::Result<Text> {
    let original = open()?;
    let (size, checksum) = (original.size, original.checksum);
    let (mut walk, mut hasher, mut read) = (Walk::survey(), SipHasher13::new(), 0);
    let mut lines = BufReader::new(original.bytes);
    let (mut line, mut ignored) = (Vec::new(), Vec::new());
    while next_piece(&mut lines, &mut line)? {
        hasher.write(&line);
        read += line.len() as u64;
        walk.feed(&line, &mut ignored);
    }
    if read != size || hasher.finish() != checksum {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the text is damaged"));
    }
    let needs = walk.needs();
    // Its size and its checksum are needed before it is sent.
    let mut converted = Converted::new(open()?, needs.clone());
    let (mut hasher, mut size, mut piece) = (SipHasher13::new(), 0_u64, vec![0; PIECE as usize]);
    loop {
        let read = converted.read(&mut piece)?;
        if read == 0 {
            break;
        }
        hasher.write(&piece[..read]);
        size += read as u64;
    }
    let bytes = Box::new(Converted::new(open()?, needs));
    Ok(Text { bytes, size, checksum: hasher.finish() })
}

/// The next line, or a piece of a long one. Returns whether there is one.
fn next_piece(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(lines.take(PIECE).read_until(b'\n', line)? > 0)
}

/// A text that is converted while it is read.
struct Converted {
    lines: BufReader<Box<dyn Read + Send>>,
    walk: Walk,
    line: Vec<u8>,
    out: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl Converted {
    fn new(text: Text, needs: VecDeque<Need>) -> Self {
        Self {
            lines: BufReader::new(text.bytes),
            walk: Walk::converting(needs),
            line: Vec::new(),
            out: Vec::new(),
            taken: 0,
            ended: false,
        }
    }
}

impl Read for Converted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.out.len() && !self.ended {
            self.out.clear();
            self.taken = 0;
            if next_piece(&mut self.lines, &mut self.line)? {
                self.walk.feed(&self.line, &mut self.out);
            } else {
                self.walk.end(&mut self.out);
                self.ended = true;
            }
        }
        let rest = &self.out[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
