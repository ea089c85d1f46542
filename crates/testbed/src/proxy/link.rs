//! One connection through the proxy: for each direction a thread that reads, and one that writes later.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use super::{Shared, Way, lock};
use crate::patience::{now, pause};

/// How many pieces may be in transit before reading stops, as if the network were full.
const UNDER_WAY: usize = 1024;

/// Both ends of one connection.
#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    server: TcpStream,
    closed: AtomicBool,
}

/// Bytes in transit.
struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

impl Link {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> Self {
        Self { client, server, closed: AtomicBool::new(false) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // They may have closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn ends(&self, way: Way) -> io::Result<(TcpStream, TcpStream)> {
        let (from, to) = match way {
            Way::Request => (&self.client, &self.server),
            Way::Reply => (&self.server, &self.client),
        };
        Ok((from.try_clone()?, to.try_clone()?))
    }
}

/// Forwards the bytes of one direction until the connection ends.
pub(super) fn carry(shared: Arc<Shared>, link: &Arc<Link>, way: Way) -> io::Result<()> {
    let (from, to) = link.ends(way)?;
    let (sender, receiver) = sync_channel(UNDER_WAY);
    let (reading, writing, writer) = (Arc::clone(&shared), shared, Arc::clone(link));
    thread::spawn(move || read(&reading, from, &sender));
    thread::spawn(move || {
        write(&writing, &writer, way, to, &receiver);
        writer.close();
        // The thread of the other direction may wait for the end of a fault.
        let _weather = lock(&writing.weather);
        writing.changed.notify_all();
    });
    Ok(())
}

fn read(shared: &Shared, mut from: TcpStream, sender: &SyncSender<Piece>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let due = now() + lock(&shared.weather).delay;
        if sender.send(Piece { due, bytes: buffer[..length].to_vec() }).is_err() {
            return;
        }
    }
}

fn write(shared: &Shared, link: &Link, way: Way, mut to: TcpStream, receiver: &Receiver<Piece>) {
    for piece in receiver {
        pause(piece.due.saturating_duration_since(now()));
        let mut weather = lock(&shared.weather);
        while weather.holds(way) && !link.is_closed() {
            weather = shared.changed.wait(weather).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        let mut passes = piece.bytes.len();
        if let (Way::Reply, Some(left)) = (way, &mut weather.cut_after) {
            passes = passes.min(*left);
            *left -= passes;
        }
        let is_cut = passes < piece.bytes.len();
        if is_cut {
            weather.cut_after = None;
        }
        drop(weather);
        // Counted first, so that a receiver of the bytes finds them counted.
        shared.count(way, passes);
        if to.write_all(&piece.bytes[..passes]).is_err() || is_cut {
            return;
        }
    }
}
