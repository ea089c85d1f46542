//! Opens the parsers of HTTP/1 to fuzzing: bytes in, what the gateway reads out.

pub mod routing;

use bytes::BytesMut;
use http::{HeaderMap, Method};

use crate::h1::decode::{Decoded, Decoder};
use crate::h1::request::{self, Most, RequestHead};
use crate::h1::response::{self, Body, ResponseHead};

/// A message that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The method and the target of a request; the status of a response.
    pub first: (String, String),
    /// The host of a request: of its target, or else of its `Host`.
    pub host: Option<Vec<u8>>,
    /// The header lines.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers that are forwarded.
    pub trailers: HeaderMap,
    /// What ends it.
    pub ends: Ends,
    /// How many bytes the message took.
    pub taken: usize,
}

/// What ends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Its head says where it ends.
    Itself,
    /// The end of the connection.
    Close,
}

/// The bounds of a request's head.
const MOST: Most = Most { bytes: 64 * 1024, lines: 100 };

/// The request at the start of these bytes; `None` if it is refused or incomplete.
pub fn read_request(bytes: &[u8]) -> Option<Message> {
    let mut inbox = BytesMut::from(bytes);
    let (mut scanned, mut head) = (0, RequestHead::default());
    if !request::take(&mut inbox, &mut scanned, MOST, &mut head).ok()? {
        return None;
    }
    let (body, trailers) = read_body(head.body, &mut inbox)?;
    let target = String::from_utf8_lossy(&head.target).into_owned();
    Some(Message {
        first: (head.method.to_string(), target),
        host: head.host.as_ref().map(|host| host.to_vec()),
        headers: head.headers().clone(),
        body,
        trailers,
        ends: Ends::Itself,
        taken: bytes.len() - inbox.len(),
    })
}

/// The response at the start of these bytes to a request of this method; `None` if it is refused or incomplete.
pub fn read_response(bytes: &[u8], method: &Method) -> Option<Message> {
    let mut inbox = BytesMut::from(bytes);
    let mut head = ResponseHead::default();
    if !response::take(&mut inbox, method, &mut head).ok()? {
        return None;
    }
    let (body, trailers) = read_body(head.body.decoder(), &mut inbox)?;
    Some(Message {
        first: (head.status.to_string(), String::new()),
        host: None,
        headers: head.lines.to_map(),
        body,
        trailers,
        ends: if head.body == Body::UntilClose { Ends::Close } else { Ends::Itself },
        taken: bytes.len() - inbox.len(),
    })
}

fn read_body(mut decoder: Decoder, inbox: &mut BytesMut) -> Option<(Vec<u8>, HeaderMap)> {
    let mut body = Vec::new();
    loop {
        match decoder.decode(inbox).ok()? {
            Decoded::Data(piece) => body.extend_from_slice(&piece),
            Decoded::Trailers(trailers) => return Some((body, trailers)),
            Decoded::End => return Some((body, HeaderMap::new())),
            Decoded::More => return decoder.end().ok().map(|()| (body, HeaderMap::new())),
        }
    }
}
