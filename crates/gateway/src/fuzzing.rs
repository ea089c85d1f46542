//! Opens the parsers of HTTP/1 to fuzzing: bytes in, what the gateway reads out.

use bytes::BytesMut;
use http::{HeaderMap, Method};

use crate::h1::decode::{Decoded, Decoder};
use crate::h1::request::{self, Most, RequestHead};
use crate::h1::response::{self, ResponseHead};

/// A message that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The method and the target of a request; the status of a response.
    pub first: (String, String),
    /// The header lines.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// How many bytes the message took.
    pub taken: usize,
}

/// The request at the start of these bytes; `None` if it is refused or incomplete.
pub fn read_request(bytes: &[u8]) -> Option<Message> {
    let mut inbox = BytesMut::from(bytes);
    let (mut scanned, mut head) = (0, RequestHead::default());
    let most = Most { bytes: 64 * 1024, lines: 100 };
    if !request::take(&mut inbox, &mut scanned, most, &mut head).ok()? {
        return None;
    }
    let body = read_body(head.body, &mut inbox)?;
    let target = String::from_utf8_lossy(&head.target).into_owned();
    let first = (head.method.to_string(), target);
    Some(Message { first, headers: head.headers().clone(), body, taken: bytes.len() - inbox.len() })
}

/// The response at the start of these bytes to a request of this method; `None` if it is refused or incomplete.
pub fn read_response(bytes: &[u8], method: &Method) -> Option<Message> {
    let mut inbox = BytesMut::from(bytes);
    let mut head = ResponseHead::default();
    if !response::take(&mut inbox, method, &mut head).ok()? {
        return None;
    }
    let body = read_body(head.body.decoder(), &mut inbox)?;
    let first = (head.status.to_string(), String::new());
    Some(Message { first, headers: head.lines.to_map(), body, taken: bytes.len() - inbox.len() })
}

fn read_body(mut decoder: Decoder, inbox: &mut BytesMut) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        match decoder.decode(inbox).ok()? {
            Decoded::Data(piece) => body.extend_from_slice(&piece),
            Decoded::Trailers(_) | Decoded::End => return Some(body),
            Decoded::More => return decoder.end().ok().map(|()| body),
        }
    }
}
