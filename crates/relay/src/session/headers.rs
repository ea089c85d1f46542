//! Rewrites the header of a message that is being received: adds missing fields, removes Bcc, checks the
//! author, and finds loops.
//!
//! Only the header is held until it is complete. The body passes through.

use std::sync::Arc;

use memchr::memmem;

use super::author;

/// The fields that say who wrote or sent a message. A message has the first two at most once; a user who
/// resends it adds the others.
const AUTHORS: [&str; 4] = ["from", "sender", "resent-from", "resent-sender"];

/// Rewrites the header of one message, which comes in pieces.
#[derive(Debug)]
pub struct HeaderRewriter {
    additions: Additions,
    /// The domains that the addresses in `From`, `Sender` and their `Resent-` forms may have; any if the list is
    /// empty.
    authors: Arc<[String]>,
    /// The header so far; empty once it was written.
    block: Vec<u8>,
    /// The position in the block of the line that is not complete yet.
    line: usize,
    written: bool,
    /// Whether the header contains bytes beyond ASCII.
    eight_bit: bool,
    message_id: Option<String>,
}

/// The header fields that the relay adds, each with the CR LF at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// `Received`, which every message gets.
    pub received: String,
    /// `Date`, for a message that has none.
    pub date: String,
    /// `Message-ID`, for a message that has none.
    pub message_id: String,
}

/// The reason why a message is refused because of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// It has more than [`HeaderRewriter::MOST_BYTES`].
    TooLarge,
    /// It came through more than [`HeaderRewriter::MOST_HOPS`] servers: it loops.
    Loop,
    /// It has more than one `From` or more than one `Sender`: readers would show different ones.
    SeveralAuthors,
    /// `From`, `Sender` or a `Resent-` form has an address that the client may not use, or one that cannot be read.
    ForeignAuthor,
}

impl HeaderRewriter {
    /// The longest header.
    pub const MOST_BYTES: usize = 256 * 1024;
    /// The most `Received` fields. RFC 5321 asks for at least 100.
    pub const MOST_HOPS: usize = 100;
    /// The longest `Message-ID` that is remembered whole.
    pub const MOST_MESSAGE_ID: usize = 256;

    /// Makes a rewriter that adds these fields.
    pub fn new(additions: Additions) -> Self {
        let (authors, block) = (Arc::default(), Vec::new());
        Self { additions, authors, block, line: 0, written: false, eight_bit: false, message_id: None }
    }

    /// Also refuses the message if `From`, `Sender` or one of their `Resent-` forms has an address of
    /// another domain.
    #[must_use]
    pub fn written_by(self, domains: Arc<[String]>) -> Self {
        Self { authors: domains, ..self }
    }

    /// Receives the next piece of the message, and appends the complete part of the rewritten message to `out`.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), HeaderFault> {
        if self.written {
            out.extend_from_slice(piece);
            return Ok(());
        }
        // Earlier bytes are not searched again, except for a CR at their end: a line may come byte by byte.
        let mut from = self.line.max(self.block.len().saturating_sub(1));
        self.block.extend_from_slice(piece);
        while let Some(end) = memmem::find(&self.block[from..], b"\r\n").map(|at| from + at) {
            let line = &self.block[self.line..end];
            if !continues(line, self.line) {
                return self.write(out);
            }
            self.line = end + 2;
            from = self.line;
            if self.line > Self::MOST_BYTES {
                return Err(HeaderFault::TooLarge);
            }
        }
        if self.block.len() > Self::MOST_BYTES { Err(HeaderFault::TooLarge) } else { Ok(()) }
    }

    /// Appends the header of a message that ended before its body began.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), HeaderFault> {
        if self.written { Ok(()) } else { self.write(out) }
    }

    /// Whether the message's own header contains bytes beyond ASCII.
    pub fn is_eight_bit(&self) -> bool {
        self.eight_bit
    }

    /// The value of the message's `Message-ID`, once the header is written: the first one if there are several, cut if
    /// it is longer than [`HeaderRewriter::MOST_MESSAGE_ID`].
    pub fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// Writes the header, which is complete, and the part of the body that came with it.
    fn write(&mut self, out: &mut Vec<u8>) -> Result<(), HeaderFault> {
        let block = std::mem::take(&mut self.block);
        let (header, rest) = block.split_at(self.line);
        self.written = true;
        self.eight_bit = !header.is_ascii();
        let (mut hops, mut dated, mut named) = (0, false, false);
        let mut authors = [0_usize; 2];
        out.extend_from_slice(self.additions.received.as_bytes());
        for field in fields(header) {
            let name = name_of(field);
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            hops += usize::from(is("received"));
            dated |= is("date");
            for (count, known) in authors.iter_mut().zip(AUTHORS) {
                *count += usize::from(is(known));
            }
            if AUTHORS.iter().any(|author| is(author))
                && !self.authors.is_empty()
                && !author::is_of(field, &self.authors)
            {
                return Err(HeaderFault::ForeignAuthor);
            }
            if is("message-id") {
                named = true;
                self.message_id.get_or_insert_with(|| value_of(field));
            }
            if !is("bcc") && !is("resent-bcc") {
                out.extend_from_slice(field);
            }
        }
        if hops > Self::MOST_HOPS {
            return Err(HeaderFault::Loop);
        }
        if authors.iter().any(|count| *count > 1) {
            return Err(HeaderFault::SeveralAuthors);
        }
        if !dated {
            out.extend_from_slice(self.additions.date.as_bytes());
        }
        if !named {
            out.extend_from_slice(self.additions.message_id.as_bytes());
            self.message_id = Some(value_of(self.additions.message_id.as_bytes()));
        }
        // A text that does not begin with a header, or has no empty line after it, gets that line.
        if !rest.starts_with(b"\r\n") {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(rest);
        Ok(())
    }
}

/// Whether a line belongs to the header: a field, or the next line of one.
fn continues(line: &[u8], at: usize) -> bool {
    match line.first() {
        None => false,
        Some(b' ' | b'\t') => at > 0,
        Some(_) => {
            let name = name_of(line);
            !name.is_empty() && line.contains(&b':') && name.iter().all(u8::is_ascii_graphic)
        }
    }
}

/// The name of a field; the whole line if there is no colon.
fn name_of(field: &[u8]) -> &[u8] {
    let name = field.split(|byte| *byte == b':').next().unwrap_or_default();
    name.trim_ascii_end()
}

/// The value of a field in one line, cut to what is remembered of a `Message-ID`.
fn value_of(field: &[u8]) -> String {
    let value = field.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    let mut value: String = value.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    value.truncate(value.floor_char_boundary(HeaderRewriter::MOST_MESSAGE_ID));
    value
}

/// The fields of a header, each with its continuation lines.
fn fields(header: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = header;
    std::iter::from_fn(move || {
        let mut end = 0;
        loop {
            let length = memmem::find(rest.get(end..)?, b"\r\n");
            let Some(length) = length else { break };
            end += length + 2;
            if !matches!(rest.get(end), Some(b' ' | b'\t')) {
                break;
            }
        }
        let (field, after) = rest.split_at(end);
        rest = after;
        (!field.is_empty()).then_some(field)
    })
}
