//! The bytes of a connection, cut into requests. A request ends with an empty line.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::request::{MOST_REQUEST, Malformed, Request};

/// The end of the last line, and the empty line behind it.
static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\n\n"));

/// How much room a read has at least.
const ROOM: usize = 4 * 1024;
/// How much memory an idle connection keeps.
const KEPT: usize = 16 * 1024;

/// What a connection received and has not answered yet. It has at most one incomplete request.
#[derive(Debug, Default)]
pub struct Requests {
    buffer: Vec<u8>,
    /// Where the next request begins.
    start: usize,
    /// How many bytes from there on have no end of a request.
    scanned: usize,
}

impl Requests {
    /// Where received bytes are appended, with room for more.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.reserve(ROOM);
        &mut self.buffer
    }

    /// The next complete request. After an error nothing behind it can be trusted: the connection has to be closed.
    ///
    /// The caller calls this until it is `None` before it adds bytes, so that requests do not pile up.
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
