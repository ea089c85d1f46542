//! The bytes of a connection, cut into requests. A request ends with an empty line.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::request::{MOST_REQUEST, Malformed, Request};

/// The end of the last line, and the empty line behind it.
static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\n\n"));

/// A read always has room for at least this many bytes.
const ROOM: usize = 4 * 1024;
/// The buffer of an idle connection shrinks to this size.
const KEPT: usize = 16 * 1024;

/// The received bytes of a connection that are not answered yet. At most one request in them is incomplete.
#[derive(Debug, Default)]
pub struct Requests {
    buffer: Vec<u8>,
    /// The position of the next request.
    start: usize,
    /// The number of bytes after `start` that were searched and contain no end of a request.
    scanned: usize,
}

impl Requests {
    /// The buffer to append received bytes to, with room for more.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.reserve(ROOM);
        &mut self.buffer
    }

    /// Returns the next complete request. After an error the caller must close the connection, because nothing
    /// after it can be trusted.
    ///
    /// The caller repeats this until it returns `None`, and only then adds bytes, so that requests do not pile
    /// up.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not lend its items")]
    pub fn next(&mut self) -> Option<Result<Request<'_>, Malformed>> {
        let unread = &self.buffer[self.start..];
        // An empty line where a request should begin is a request without attributes.
        if unread.first() == Some(&b'\n') {
            self.start += 1;
            return Some(Err(Malformed::NotAPolicyRequest));
        }
        let from = self.scanned.saturating_sub(1);
        if let Some(end) = END.find(&unread[from..]).map(|at| from + at) {
            let lines = self.start..=self.start + end;
            self.start += end + 2;
            self.scanned = 0;
            return Some(Request::parse(&self.buffer[lines]));
        }
        self.scanned = unread.len();
        if self.scanned > MOST_REQUEST {
            return Some(Err(Malformed::TooLong));
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(KEPT);
        }
        None
    }

    /// Whether a request has begun and is not complete. Only after [`Requests::next`] has returned `None`.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }
}
