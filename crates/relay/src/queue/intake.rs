//! Receives texts into the queue. Small texts stay in memory until they are committed; large texts go to a file
//! piece by piece.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::Queue;
use super::disk::{Disk, Draft};
use super::tables::{Stored, file_name};
use super::writer::Write;
use crate::message::{Accepted, Envelope, Incoming, Intake, IntakeError, Later};

/// Texts up to this size are rows of the database.
const SMALL: usize = 32 << 10;
/// A large text is written to its file in pieces of about this size.
const PIECE: usize = 256 << 10;

impl Intake for Queue {
    fn begin(&self, size: Option<u64>) -> Later<'_, Result<Box<dyn Incoming>, IntakeError>> {
        Box::pin(async move {
            if self.is_full() || self.is_low(size.unwrap_or(0)).await? {
                return Err(IntakeError::Full);
            }
            let hasher = SipHasher13::new();
            let text = IncomingText { queue: self.clone(), held: Vec::new(), size: 0, hasher, file: None };
            Ok(Box::new(text) as Box<dyn Incoming>)
        })
    }

    fn remembers<'a>(&'a self, scope: &'a str, key: &'a str) -> Later<'a, Result<bool, IntakeError>> {
        Box::pin(async move { self.is_used(scope, key).map_err(|error| failed(&error)) })
    }
}

impl Queue {
    /// Whether the disk has too little room for a text of this size.
    async fn is_low(&self, size: u64) -> Result<bool, IntakeError> {
        let shared = &*self.shared;
        let min_free = shared.options.min_free;
        if size > SMALL as u64 {
            return self.is_low_for_file(size);
        }
        let look = || {
            let low = shared.fullness.is_low(&*shared.disk, size, min_free);
            low.map_err(|error| failed(&error))
        };
        if !look()? {
            return Ok(false);
        }
        // An empty transaction counts the reusable space of the database.
        self.write(|_, _| Ok(())).await.map_err(|error| failed(&error))?;
        look()
    }

    /// As [`Queue::is_low`], for a text in a file, which cannot use the reusable space of the database.
    fn is_low_for_file(&self, size: u64) -> Result<bool, IntakeError> {
        let free = self.shared.disk.free().map_err(|error| failed(&error))?;
        Ok(free < self.shared.options.min_free.saturating_add(size))
    }
}

/// A text that is being received.
struct IncomingText {
    queue: Queue,
    /// The part that is not in the file yet.
    held: Vec<u8>,
    size: u64,
    hasher: SipHasher13,
    file: Option<DraftText>,
}

/// The file of a text. Dropping this removes the file, unless it was kept.
struct DraftText {
    disk: Arc<dyn Disk>,
    name: String,
    draft: Box<dyn Draft>,
}

impl Drop for DraftText {
    fn drop(&mut self) {
        self.disk.discard(&self.name);
    }
}

impl IncomingText {
    /// Moves the held bytes to the file, and creates the file if there is none. A client need not announce the
    /// length of its text, so the free space is checked for each piece.
    async fn spill(&mut self) -> Result<(), IntakeError> {
        if self.queue.is_low_for_file(self.held.len() as u64)? {
            return Err(IntakeError::Full);
        }
        let (held, file) = (std::mem::take(&mut self.held), self.file.take());
        let disk = Arc::clone(&self.queue.shared.disk);
        let written = spawn_blocking(move || {
            let mut file = match file {
                Some(file) => file,
                None => {
                    let name = format!("{:032x}", fastrand::u128(..));
                    let draft = disk.create(&name)?;
                    DraftText { disk, name, draft }
                }
            };
            file.draft.append(&held)?;
            Ok::<_, std::io::Error>((file, held))
        });
        let (file, held) = written.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        self.file = Some(file);
        // The buffer is used again. If each piece had its own, freed by other threads, the heap would fragment.
        self.held = held;
        self.held.clear();
        Ok(())
    }

    async fn store(mut self, envelope: Envelope) -> Result<Accepted, IntakeError> {
        let id = envelope.id;
        let is_file = self.file.is_some();
        let text = if is_file {
            self.spill().await?;
            let file = self.file.take().expect("it was spilled to just now");
            let kept = spawn_blocking(move || {
                let mut file = file;
                file.draft.sync()?;
                file.disk.keep(&file.name, &file_name(id))
            });
            kept.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
            Stored::File { size: self.size, checksum: self.hasher.finish() }
        } else {
            Stored::Held(self.held)
        };
        let queue = self.queue;
        let most = queue.shared.options.max_messages;
        let (answer, answered) = oneshot::channel();
        let disk = Arc::clone(&queue.shared.disk);
        // The file is removed if the message is not accepted, even if the caller stops waiting.
        let write: Write = Box::new(move |tables| {
            let accepted = tables.accept(envelope, text, most)?;
            Ok(Box::new(move |done: Result<(), String>| {
                // After a failed commit, a row may or may not name the file. The next transaction finds out.
                if is_file && done.is_ok() && !matches!(accepted, Ok(Accepted::Now(_))) {
                    disk.remove(&file_name(id));
                }
                drop(answer.send(done.map_err(|reason| IntakeError::Failed { reason }).and(accepted)));
            }))
        });
        let stopped = || IntakeError::Failed { reason: "the queue is stopped or its disk failed".to_owned() };
        queue.writes.send(write).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

impl Incoming for IncomingText {
    fn write<'a>(&'a mut self, piece: &'a [u8]) -> Later<'a, Result<(), IntakeError>> {
        Box::pin(async move {
            self.hasher.write(piece);
            self.size += piece.len() as u64;
            self.held.extend_from_slice(piece);
            let bound = if self.file.is_some() { PIECE } else { SMALL };
            if self.held.len() > bound { self.spill().await } else { Ok(()) }
        })
    }

    fn commit(self: Box<Self>, envelope: Envelope) -> Later<'static, Result<Accepted, IntakeError>> {
        Box::pin(self.store(envelope))
    }
}

fn failed(error: &dyn std::fmt::Display) -> IntakeError {
    IntakeError::Failed { reason: error.to_string() }
}
