//! Reads request bodies into memory, within bounds: for one body, for one connection, and for all
//! connections together.
//!
//! Only admitted callers get here. A body without room gets a 503 instead of waiting: two bodies that wait
//! for each other's room would both wait until their time-out.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;

use super::App;
use super::problem::Problem;

/// The most bytes of request bodies that one connection may have in memory. The longest body of any endpoint
/// fits.
pub const MOST_BODY_BYTES_PER_CONNECTION: usize = 8 << 20;

/// The most bytes of request bodies that all connections together may have in memory.
pub const MOST_BODY_BYTES_IN_TOTAL: usize = 64 << 20;

/// The connection of a request. The server of the router adds a clone of it to the extensions of each request
/// on the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) address: IpAddr,
    bodies: Arc<Gauge>,
}

/// How many bytes of bodies are in memory.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

/// The memory of a body, for as long as it is needed.
pub(crate) struct Room {
    app: Arc<App>,
    peer: Option<Peer>,
    bytes: usize,
}

impl Peer {
    /// A connection from this address, with nothing in memory yet.
    pub fn new(address: IpAddr) -> Self {
        Self { address, bodies: Arc::default() }
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
    pub(crate) fn new(app: &Arc<App>, peer: Option<&Peer>) -> Self {
        Self { app: Arc::clone(app), peer: peer.cloned(), bytes: 0 }
    }

    /// What all requests share.
    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    /// Grows to this many bytes in total.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        let more = bytes.saturating_sub(self.bytes);
        if let Some(peer) = &self.peer
            && !peer.bodies.add(more, MOST_BODY_BYTES_PER_CONNECTION)
        {
            return Err(Problem::no_room("this connection has too many request bodies in flight"));
        }
        if !self.app.bodies.add(more, MOST_BODY_BYTES_IN_TOTAL) {
            if let Some(peer) = &self.peer {
                peer.bodies.subtract(more);
            }
            return Err(Problem::no_room("the server has too many request bodies in flight"));
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(peer) = &self.peer {
            peer.bodies.subtract(self.bytes);
        }
        self.app.bodies.subtract(self.bytes);
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
    while let Some(piece) = next(&mut body).await? {
        let needed = whole.len() + piece.len();
        if needed > most {
            return Err(Problem::too_large(most));
        }
        if needed > whole.capacity() {
            let capacity = needed.max(whole.capacity() * 2).min(most);
            room.grow_to(capacity)?;
            whole.reserve_exact(capacity - whole.len());
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
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
