//! Reads request bodies into memory, within bounds: for one body, for one connection, for one access key, and for all
//! connections together.
//!
//! Only admitted callers get here. A body without room gets a 503 instead of waiting: two bodies that wait
//! for each other's room would both wait until their time-out. Short bodies take their room from their connection, so
//! that the long bodies of other clients cannot keep them out. A long body must keep coming.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::App;
use super::auth::Caller;
use super::problem::Problem;

/// The most bytes of request bodies that one connection may have in memory. The longest body of any endpoint
/// fits.
pub const MOST_BODY_BYTES_PER_CONNECTION: usize = 8 << 20;

/// The most bytes of request bodies that all connections together may have in memory, beside the short ones.
pub const MOST_BODY_BYTES_IN_TOTAL: usize = 64 << 20;

/// The most of them that the requests with one access key may have. The longest body of any endpoint fits.
const MOST_BODY_BYTES_PER_KEY: usize = MOST_BODY_BYTES_IN_TOTAL / 4;

/// The longest body that is short.
pub(crate) const SHORT_BODY_BYTES: usize = 16 << 10;

/// The most bytes of short bodies that one connection may have beside what all connections share. A client that sends
/// one request after the other has at most one short body, so it always has room. A longer one, or many at once over
/// HTTP/2, share with the others.
const MOST_SHORT_BYTES_PER_CONNECTION: usize = 64 << 10;

/// How long a client may take for the next [`SHORT_BODY_BYTES`] of a body that is no longer short, or for its rest.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection of a request. The server of the router adds a clone of it to the extensions of each request
/// on the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) address: IpAddr,
    bodies: Arc<PeerBodies>,
}

#[derive(Debug, Default)]
struct PeerBodies {
    all: Gauge,
    /// Those that are short, and take no room from what all connections share.
    short: Gauge,
}

/// The room that all connections share.
#[derive(Debug, Default)]
pub(crate) struct SharedRoom {
    total: Gauge,
    /// The part of each access key that has any, by the hash of its token.
    by_key: Mutex<HashMap<[u8; 32], usize>>,
}

/// How many bytes of bodies are in memory.
#[derive(Debug, Default)]
struct Gauge(AtomicUsize);

/// The memory of a body, for as long as it is needed.
pub(crate) struct Room {
    app: Arc<App>,
    peer: Option<Peer>,
    /// The hash of the token of the request; `None` without keys.
    key: Option<[u8; 32]>,
    bytes: usize,
    /// How many of them are shared, and not short.
    shared: usize,
}

impl Peer {
    /// A connection from this address, with nothing in memory yet.
    pub fn new(address: IpAddr) -> Self {
        Self { address, bodies: Arc::default() }
    }
}

impl SharedRoom {
    /// Takes room for a key, or says why there is none.
    fn take(&self, key: Option<&[u8; 32]>, bytes: usize) -> Result<(), Problem> {
        if let Some(key) = key {
            let mut by_key = self.by_key.lock();
            let used = by_key.get(key).copied().unwrap_or(0) + bytes;
            if used > MOST_BODY_BYTES_PER_KEY {
                return Err(Problem::no_room("this access key has too many request bodies in flight"));
            }
            by_key.insert(*key, used);
        }
        if self.total.add(bytes, MOST_BODY_BYTES_IN_TOTAL) {
            return Ok(());
        }
        self.give_back_for(key, bytes);
        Err(Problem::no_room("the server has too many request bodies in flight"))
    }

    fn give_back(&self, key: Option<&[u8; 32]>, bytes: usize) {
        if bytes > 0 {
            self.total.subtract(bytes);
            self.give_back_for(key, bytes);
        }
    }

    fn give_back_for(&self, key: Option<&[u8; 32]>, bytes: usize) {
        let Some(key) = key else { return };
        let mut by_key = self.by_key.lock();
        let left = by_key.get(key).map_or(0, |used| used.saturating_sub(bytes));
        if left == 0 {
            by_key.remove(key);
        } else {
            by_key.insert(*key, left);
        }
    }
}

impl Gauge {
    /// Adds to it. Returns false if there would be more than `most`.
    fn add(&self, bytes: usize, most: usize) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= most;
        if !fits {
            self.subtract(bytes);
        }
        fits
    }

    fn subtract(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Room {
    /// The memory of a body on this connection, at first none.
    pub(crate) fn new(app: &Arc<App>, peer: Option<&Peer>, caller: Option<&Caller>) -> Self {
        let key = caller.map(Caller::hash);
        Self { app: Arc::clone(app), peer: peer.cloned(), key, bytes: 0, shared: 0 }
    }

    /// What all requests share.
    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    /// Grows to this many bytes in total.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        self.grow(bytes, bytes <= SHORT_BODY_BYTES)
    }

    /// Grows to several copies of a body of this many bytes. The copies of a short body are short.
    pub(crate) fn grow_to_copies(&mut self, bytes: usize, copies: usize) -> Result<(), Problem> {
        self.grow(bytes * copies, bytes <= SHORT_BODY_BYTES)
    }

    fn grow(&mut self, bytes: usize, is_short: bool) -> Result<(), Problem> {
        let more = bytes.saturating_sub(self.bytes);
        if let Some(peer) = &self.peer
            && !peer.bodies.all.add(more, MOST_BODY_BYTES_PER_CONNECTION)
        {
            return Err(Problem::no_room("this connection has too many request bodies in flight"));
        }
        self.bytes += more;
        if is_short
            && self.shared == 0
            && let Some(peer) = &self.peer
            && peer.bodies.short.add(more, MOST_SHORT_BYTES_PER_CONNECTION)
        {
            return Ok(());
        }
        // All of it is shared from now on.
        let taken = self.bytes - self.shared;
        if let Err(full) = self.app.bodies.take(self.key.as_ref(), taken) {
            self.bytes -= more;
            if let Some(peer) = &self.peer {
                peer.bodies.all.subtract(more);
            }
            return Err(full);
        }
        if let (Some(peer), 0) = (&self.peer, self.shared) {
            peer.bodies.short.subtract(self.bytes - more);
        }
        self.shared = self.bytes;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(peer) = &self.peer {
            peer.bodies.all.subtract(self.bytes);
            peer.bodies.short.subtract(self.bytes - self.shared);
        }
        self.app.bodies.give_back(self.key.as_ref(), self.shared);
    }
}

/// Reads the whole body into `room`, or stops as soon as it is known to be too long.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    most: usize,
    room: &mut Room,
) -> Result<Bytes, Problem> {
    let length_field = headers.get(CONTENT_LENGTH);
    if length_field.and_then(length).is_some_and(|length| length > most as u64) {
        return Err(Problem::too_large(most));
    }
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    if first.len() > most {
        return Err(Problem::too_large(most));
    }
    room.grow_to(first.len())?;
    // Most bodies arrive in one piece.
    if body.is_end_stream() {
        return Ok(first);
    }
    // It grows as bytes arrive, so a client that announces much and sends little uses little memory.
    let mut whole = first.to_vec();
    drop(first);
    let mut progress = Progress::default();
    while let Some(piece) = progress.bound(whole.len(), next(&mut body)).await? {
        let needed = whole.len() + piece.len();
        if needed > most {
            return Err(Problem::too_large(most));
        }
        if needed > whole.capacity() {
            // A short body does not become long by its capacity.
            let most = if needed <= SHORT_BODY_BYTES { most.min(SHORT_BODY_BYTES) } else { most };
            let capacity = needed.max(whole.capacity() * 2).min(most);
            room.grow_to(capacity)?;
            whole.reserve_exact(capacity - whole.len());
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}

/// How far a long body has come, and until when it must come further.
#[derive(Default)]
struct Progress {
    bytes: usize,
    deadline: Option<Instant>,
}

impl Progress {
    /// Waits for the next piece of a body of which so many bytes have come. A short body has the time of its request.
    async fn bound<T>(
        &mut self,
        bytes: usize,
        piece: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        if bytes > self.bytes + SHORT_BODY_BYTES {
            *self = Self { bytes, deadline: Some(Instant::now() + PROGRESS_TIMEOUT) };
        }
        match self.deadline {
            Some(deadline) => timeout_at(deadline, piece).await.map_err(|_| Problem::too_late())?,
            None => piece.await,
        }
    }
}

/// The next non-empty piece of a body.
pub(crate) async fn next(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Problem::bad_request(format!("the body cannot be read: {error}")))?;
        // Trailers are ignored.
        if let Ok(piece) = frame.into_data()
            && !piece.is_empty()
        {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// The length of the body, as the head tells it.
pub(crate) fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(length)
}

fn length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_body_must_keep_coming_and_a_short_one_has_the_time_of_its_request() {
        let mut progress = Progress::default();
        let slow = async |secs| {
            sleep(Duration::from_secs(secs)).await;
            Ok::<_, Problem>(())
        };
        assert!(progress.bound(SHORT_BODY_BYTES, slow(29)).await.is_ok());
        let long = SHORT_BODY_BYTES + 1;
        assert!(progress.bound(long, slow(9)).await.is_ok());
        // One byte in nine seconds is no progress.
        let begun = Instant::now();
        assert!(progress.bound(long + 1, pending::<Result<(), Problem>>()).await.is_err());
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        assert!(progress.bound(2 * long, slow(9)).await.is_ok());
    }

    #[test]
    fn a_key_has_its_part_of_the_shared_room_and_gives_it_back() {
        let room = SharedRoom::default();
        let (one, two) = ([1; 32], [2; 32]);
        assert!(room.take(Some(&one), MOST_BODY_BYTES_PER_KEY).is_ok());
        assert!(room.take(Some(&one), 1).is_err());
        assert!(room.take(Some(&two), MOST_BODY_BYTES_PER_KEY).is_ok());
        assert!(room.take(None, MOST_BODY_BYTES_IN_TOTAL / 2).is_ok());
        assert!(room.take(Some(&[3; 32]), 1).is_err(), "the whole room is taken");
        assert_eq!(room.by_key.lock().len(), 2, "a refused key leaves nothing");
        room.give_back(Some(&one), MOST_BODY_BYTES_PER_KEY);
        assert!(room.take(Some(&one), MOST_BODY_BYTES_PER_KEY).is_ok());
        room.give_back(Some(&one), MOST_BODY_BYTES_PER_KEY);
        room.give_back(Some(&two), MOST_BODY_BYTES_PER_KEY);
        assert!(room.by_key.lock().is_empty());
    }
}
