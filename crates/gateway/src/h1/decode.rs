//! Decodes the body of an incoming message and finds its end.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::lines::{Kind, kind_of};

/// The longest line with the size of a chunk, extensions included.
const MOST_CHUNK_LINE: usize = 256;
/// The most bytes of trailers, and the most lines.
const MOST_TRAILER_BYTES: usize = 8 * 1024;
const MOST_TRAILERS: usize = 64;

/// The rest of an incoming message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decoder {
    /// Nothing.
    #[default]
    Empty,
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunk),
    /// All bytes until the connection closes.
    UntilClose,
    /// The body is malformed, and so its end is unknown.
    Broken(WrongBody),
}

/// The position within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Before the line with its size.
    Size,
    /// In its data, with this many bytes left.
    Data(u64),
    /// Before the line end that closes it.
    End,
    /// After the last chunk.
    Trailers,
}

/// What a decoder returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// Nothing yet: more must be read.
    More,
}

/// What is wrong with a body, as text.
pub(crate) type WrongBody = &'static str;

impl Decoder {
    pub(crate) const CHUNKED: Self = Self::Chunked(Chunk::Size);

    /// Whether the message has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Empty | Self::Length(0))
    }

    /// Takes the next piece from the inbox. A malformed body stays malformed.
    pub(crate) fn decode(&mut self, inbox: &mut BytesMut) -> Result<Decoded, WrongBody> {
        let decoded = self.advance(inbox);
        if let Err(wrong) = decoded {
            *self = Self::Broken(wrong);
        }
        decoded
    }

    fn advance(&mut self, inbox: &mut BytesMut) -> Result<Decoded, WrongBody> {
        match self {
            Self::Broken(wrong) => Err(wrong),
            Self::Empty | Self::Length(0) => {
                *self = Self::Empty;
                Ok(Decoded::End)
            }
            _ if inbox.is_empty() => Ok(Decoded::More),
            Self::Length(left) => Ok(Decoded::Data(take(left, inbox))),
            Self::UntilClose => Ok(Decoded::Data(inbox.split().freeze())),
            Self::Chunked(_) => self.decode_chunks(inbox),
        }
    }

    /// Handles the end of the connection: an error if the message was not complete.
    pub(crate) fn end(&mut self) -> Result<(), WrongBody> {
        if *self == Self::UntilClose {
            *self = Self::Empty;
        }
        if self.is_over() { Ok(()) } else { Err("the body was cut short") }
    }

    fn decode_chunks(&mut self, inbox: &mut BytesMut) -> Result<Decoded, WrongBody> {
        let Self::Chunked(chunk) = self else { return Ok(Decoded::End) };
        loop {
            match chunk {
                Chunk::Size => match chunk_size(inbox)? {
                    None => return Ok(Decoded::More),
                    Some(0) => *chunk = Chunk::Trailers,
                    Some(size) => *chunk = Chunk::Data(size),
                },
                Chunk::Data(0) => *chunk = Chunk::End,
                Chunk::Data(_) if inbox.is_empty() => return Ok(Decoded::More),
                Chunk::Data(left) => return Ok(Decoded::Data(take(left, inbox))),
                Chunk::End => match inbox.first_chunk() {
                    Some(b"\r\n") => {
                        inbox.advance(2);
                        *chunk = Chunk::Size;
                    }
                    Some(_) => return Err("a chunk is longer than it says"),
                    None => return Ok(Decoded::More),
                },
                Chunk::Trailers => {
                    let Some(trailers) = take_trailers(inbox)? else { return Ok(Decoded::More) };
                    *self = Self::Empty;
                    return Ok(if trailers.is_empty() { Decoded::End } else { Decoded::Trailers(trailers) });
                }
            }
        }
    }
}

fn take(left: &mut u64, inbox: &mut BytesMut) -> Bytes {
    let size = usize::try_from(*left).unwrap_or(usize::MAX).min(inbox.len());
    *left -= size as u64;
    inbox.split_to(size).freeze()
}

/// Takes the line with the size of a chunk; `None` if it is incomplete.
fn chunk_size(inbox: &mut BytesMut) -> Result<Option<u64>, WrongBody> {
    let Some(end) = memchr::memchr(b'\n', inbox) else {
        return if inbox.len() > MOST_CHUNK_LINE { Err("the size of a chunk is too long") } else { Ok(None) };
    };
    let line = inbox[..end].strip_suffix(b"\r").ok_or("a line of a chunk ends without CR")?;
    if line.len() > MOST_CHUNK_LINE {
        return Err("the size of a chunk is too long");
    }
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // No client needs more than fifteen digits, and fifteen cannot overflow.
    if digits == 0 || digits > 15 {
        return Err("the size of a chunk is not a number");
    }
    let spaces = line[digits..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let extension = &line[digits + spaces..];
    let printable = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    if !(extension.is_empty() && line.len() == digits || extension.first() == Some(&b';'))
        || !extension.iter().all(printable)
    {
        return Err("the size of a chunk is not a number");
    }
    let value = |digit: u8| u64::from(char::from(digit).to_digit(16).expect("these are digits"));
    let size = line[..digits].iter().fold(0, |size, digit| size * 16 + value(*digit));
    inbox.advance(end + 1);
    Ok(Some(size))
}

/// Takes the trailers and the empty line after them; `None` if they are incomplete.
fn take_trailers(inbox: &mut BytesMut) -> Result<Option<HeaderMap>, WrongBody> {
    if inbox.starts_with(b"\r\n") {
        inbox.advance(2);
        return Ok(Some(HeaderMap::new()));
    }
    let Some(end) = memchr::memmem::find(inbox, b"\r\n\r\n") else {
        if inbox.len() > MOST_TRAILER_BYTES {
            return Err("the trailers are too long");
        }
        return Ok(None);
    };
    if end > MOST_TRAILER_BYTES {
        return Err("the trailers are too long");
    }
    let bytes = inbox.split_to(end + 4).freeze();
    let bare = memchr::memchr_iter(b'\n', &bytes).any(|at| at == 0 || bytes[at - 1] != b'\r');
    let mut room = [httparse::EMPTY_HEADER; MOST_TRAILERS];
    let parsed = match httparse::parse_headers(&bytes, &mut room) {
        Ok(httparse::Status::Complete((_, parsed))) if !bare => parsed,
        _ => return Err("a trailer is malformed"),
    };
    let mut trailers = HeaderMap::new();
    for header in parsed.iter().filter(|header| may_trail(header.name.as_bytes())) {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| "a trailer is malformed")?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| "a trailer is malformed")?;
        trailers.append(name, value);
    }
    Ok(Some(trailers))
}

/// Whether a header may be a trailer. One that says how to read the message may not.
fn may_trail(name: &[u8]) -> bool {
    matches!(kind_of(name), Kind::Plain)
}
