//! A place that keeps messages in memory, and fails when it is told to.

use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_relay::message::{Accepted, Envelope, Idempotency, Incoming, Intake, IntakeError, Later};

#[derive(Default)]
pub(crate) struct MemoryIntake {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    kept: Mutex<Vec<(Envelope, Vec<u8>)>>,
    fails: Mutex<Fails>,
    /// How many texts were begun, and how many are open.
    open: Mutex<(usize, usize)>,
}

/// When it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fails {
    #[default]
    Never,
    /// It is full before the text comes.
    FullAtOnce,
    /// It is full when the text is written.
    FullLater,
    /// Its disk fails at the end.
    AtCommit,
}

struct Text {
    inner: Arc<Inner>,
    text: Vec<u8>,
}

impl MemoryIntake {
    pub(crate) fn fail(&self, fails: Fails) {
        *self.inner.fails.lock() = fails;
    }

    pub(crate) fn kept(&self) -> Vec<(Envelope, Vec<u8>)> {
        self.inner.kept.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.inner.kept.lock().len()
    }

    /// The only message there is, and its text.
    pub(crate) fn only(&self) -> (Envelope, String) {
        let mut kept = self.kept();
        assert_eq!(kept.len(), 1, "there is one message");
        let (envelope, text) = kept.remove(0);
        (envelope, String::from_utf8(text).unwrap())
    }

    /// How many texts were begun, and how many of them were neither committed nor dropped.
    pub(crate) fn begun_and_open(&self) -> (usize, usize) {
        *self.inner.open.lock()
    }
}

impl Intake for MemoryIntake {
    fn begin(&self, _: Option<u64>) -> Later<'_, Result<Box<dyn Incoming>, IntakeError>> {
        Box::pin(async {
            if *self.inner.fails.lock() == Fails::FullAtOnce {
                return Err(IntakeError::Full);
            }
            let mut open = self.inner.open.lock();
            *open = (open.0 + 1, open.1 + 1);
            let text = Text { inner: Arc::clone(&self.inner), text: Vec::new() };
            Ok(Box::new(text) as Box<dyn Incoming>)
        })
    }

    fn remembers<'a>(&'a self, scope: &'a str, key: &'a str) -> Later<'a, Result<bool, IntakeError>> {
        let is_it = |known: &Idempotency| known.scope == scope && known.key == key;
        let kept = self.inner.kept.lock();
        let known = kept.iter().any(|(envelope, _)| envelope.idempotency.as_ref().is_some_and(is_it));
        Box::pin(async move { Ok(known) })
    }
}

impl Incoming for Text {
    fn write<'a>(&'a mut self, piece: &'a [u8]) -> Later<'a, Result<(), IntakeError>> {
        Box::pin(async move {
            if *self.inner.fails.lock() == Fails::FullLater {
                return Err(IntakeError::Full);
            }
            self.text.extend_from_slice(piece);
            Ok(())
        })
    }

    fn commit(mut self: Box<Self>, envelope: Envelope) -> Later<'static, Result<Accepted, IntakeError>> {
        Box::pin(async move {
            if *self.inner.fails.lock() == Fails::AtCommit {
                return Err(IntakeError::Failed { reason: "EIO".to_owned() });
            }
            let id = envelope.id;
            if let Some(one) = &envelope.idempotency {
                let kept = self.inner.kept.lock();
                let names =
                    kept.iter().filter_map(|(first, _)| Some((first.id, first.idempotency.as_ref()?)));
                let mut same = names.filter(|(_, known)| known.scope == one.scope && known.key == one.key);
                match same.next() {
                    Some((first, known)) if known.digest == one.digest => return Ok(Accepted::Before(first)),
                    Some(_) => return Err(IntakeError::Conflict),
                    None => {}
                }
            }
            let text = std::mem::take(&mut self.text);
            self.inner.kept.lock().push((envelope, text));
            Ok(Accepted::Now(id))
        })
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.inner.open.lock().1 -= 1;
    }
}
