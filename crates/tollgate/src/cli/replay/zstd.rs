//! The frames of a zstd file, one after the other. Skippable frames, as pzstd writes them, are skipped.
//!
//! A frame says how much of its text must stay in memory. A few bytes can demand gigabytes, so a window has a bound.

use std::io::{self, BufReader, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Decompresses a stream of frames.
pub(super) struct Frames<R: Read> {
    /// `None` after an error.
    state: Option<State<R>>,
}

enum State<R: Read> {
    Between(Peeked<R>),
    Inside(Box<StreamingDecoder<Peeked<R>, FrameDecoder>>),
}

/// A reader whose next bytes can be looked at.
struct Peeked<R> {
    ahead: Vec<u8>,
    reader: BufReader<R>,
}

/// The magic number of a frame.
const FRAME: u32 = 0xfd2f_b528;
/// The longest head of a frame.
const HEAD: usize = 18;
/// The largest window: that of `zstd --long`, and the most that `zstd -d` allows by itself.
const MOST_WINDOW: u64 = 128 << 20;

/// Whether a file that begins like this is one of zstd.
pub(super) fn begins(magic: &[u8]) -> bool {
    let magic = magic.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    magic.is_some_and(|magic| magic == FRAME || is_skippable(magic))
}

fn is_skippable(magic: u32) -> bool {
    magic & 0xffff_fff0 == 0x184d_2a50
}

impl<R: Read> Frames<R> {
    pub(super) fn new(reader: R) -> Self {
        let source = Peeked { ahead: Vec::new(), reader: BufReader::with_capacity(1 << 16, reader) };
        Self { state: Some(State::Between(source)) }
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.state.take() {
                None => return Ok(0),
                Some(State::Between(mut source)) => {
                    let head = source.peek(HEAD)?;
                    if head.is_empty() {
                        return Ok(0);
                    }
                    if let Some(length) = skippable(head) {
                        source.skip(8 + u64::from(length))?;
                        self.state = Some(State::Between(source));
                        continue;
                    }
                    check_window(head)?;
                    let decoder = StreamingDecoder::new(source).map_err(io::Error::other)?;
                    self.state = Some(State::Inside(Box::new(decoder)));
                }
                Some(State::Inside(mut decoder)) => {
                    let read = decoder.read(into)?;
                    if read > 0 || into.is_empty() {
                        self.state = Some(State::Inside(decoder));
                        return Ok(read);
                    }
                    self.state = Some(State::Between(decoder.into_inner()));
                }
            }
        }
    }
}

impl<R: Read> Peeked<R> {
    /// The next bytes: fewer than wanted only at the end.
    fn peek(&mut self, want: usize) -> io::Result<&[u8]> {
        let missing = want.saturating_sub(self.ahead.len());
        self.reader.by_ref().take(missing as u64).read_to_end(&mut self.ahead)?;
        Ok(&self.ahead)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        if io::copy(&mut self.by_ref().take(bytes), &mut io::sink())? < bytes {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends inside of a skippable frame"));
        }
        Ok(())
    }
}

impl<R: Read> Read for Peeked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            return self.reader.read(into);
        }
        let length = self.ahead.len().min(into.len());
        into[..length].copy_from_slice(&self.ahead[..length]);
        self.ahead.drain(..length);
        Ok(length)
    }
}

/// The length of a skippable frame behind its eight bytes; `None` if it is another frame.
fn skippable(head: &[u8]) -> Option<u32> {
    let number = |from: usize| Some(u32::from_le_bytes(*head.get(from..)?.first_chunk()?));
    number(0).filter(|magic| is_skippable(*magic)).and_then(|_| number(4))
}

/// Refuses a frame whose window is too large. What else is wrong with a head, the decoder tells.
fn check_window(head: &[u8]) -> io::Result<()> {
    let Some(window) = window(head).filter(|window| *window > MOST_WINDOW) else { return Ok(()) };
    let reason = format!(
        "a frame of it needs a window of {} MiB, and at most {} MiB are allowed: decompress it first, with `zstd -d --long=31`",
        window.div_ceil(1 << 20),
        MOST_WINDOW >> 20
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, reason))
}

/// How much of a frame's text must stay in memory.
fn window(head: &[u8]) -> Option<u64> {
    let descriptor = *head.get(4)?;
    if descriptor & 0x20 == 0 {
        let window = head.get(5)?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // The whole text is one segment, whose size follows the identity of a dictionary.
    let from = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
    let (length, offset) = [(1, 0), (2, 256), (4, 0), (8, 0)][usize::from(descriptor >> 6)];
    let mut size = [0; 8];
    size[..length].copy_from_slice(head.get(from..from + length)?);
    Some(u64::from_le_bytes(size).saturating_add(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_of_a_frame_is_read_from_its_head() {
        let head = |rest: &[u8]| [&FRAME.to_le_bytes()[..], rest].concat();
        assert_eq!(window(&head(&[0x00, 0x88])), Some(128 << 20));
        assert_eq!(window(&head(&[0x00, 0x89])), Some(144 << 20));
        assert_eq!(window(&head(&[0x20, 0x07])), Some(7));
        assert_eq!(window(&head(&[0x60, 0x01, 0x00])), Some(257));
        assert_eq!(window(&head(&[0xe3, 9, 9, 9, 9, 0, 0, 0, 0, 1, 0, 0, 0])), Some(1 << 32));
        assert_eq!((window(&head(&[0x00])), window(&head(&[]))), (None, None));
        assert!(check_window(&head(&[0x00, 0x88])).is_ok() && check_window(&head(&[0x00, 0x89])).is_err());
    }
}
