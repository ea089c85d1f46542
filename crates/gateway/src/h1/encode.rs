//! Encodes the body of an outgoing message and marks its end.

use bytes::Bytes;
use http::HeaderMap;

use super::outbox::Outbox;

/// How the rest of an outgoing message is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoder {
    /// No body: pieces are discarded.
    Empty,
    /// Bytes as they are. The head gives their number, or the connection closes after them.
    Plain,
    /// Chunks.
    Chunked,
}

impl Encoder {
    /// Adds a piece.
    pub(crate) fn encode(self, bytes: Bytes, outbox: &mut Outbox) {
        match self {
            Self::Empty => {}
            Self::Plain => outbox.put(bytes, b""),
            // An empty chunk would end the body.
            Self::Chunked if bytes.is_empty() => {}
            Self::Chunked => {
                let mut digits = [0; 18];
                outbox.small.extend_from_slice(chunk_line(bytes.len(), &mut digits));
                outbox.put(bytes, b"\r\n");
            }
        }
    }

    /// Ends the message.
    pub(crate) fn finish(&mut self, trailers: Option<&HeaderMap>, outbox: &mut Outbox) {
        if *self == Self::Chunked {
            let small = &mut outbox.small;
            small.extend_from_slice(b"0\r\n");
            for (name, value) in trailers.into_iter().flatten() {
                small.extend_from_slice(name.as_str().as_bytes());
                small.extend_from_slice(b": ");
                small.extend_from_slice(value.as_bytes());
                small.extend_from_slice(b"\r\n");
            }
            small.extend_from_slice(b"\r\n");
        }
        *self = Self::Empty;
    }
}

/// `1a0\r\n`
fn chunk_line(size: usize, room: &mut [u8; 18]) -> &[u8] {
    let mut at = room.len() - 2;
    room[at..].copy_from_slice(b"\r\n");
    let mut left = size;
    loop {
        at -= 1;
        room[at] = b"0123456789abcdef"[left % 16];
        left /= 16;
        if left == 0 {
            return &room[at..];
        }
    }
}
