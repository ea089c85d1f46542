//! Logins: attempts at a guard. Each is decided, if need be after the delays of the guard's ladders, and charged as if it
//! had failed. Its caller reports how it ended: [`Taken::end_login`].

use std::sync::Arc;

use tollgate_core::{Decision, Guard, Span};

use super::{Admission, Admitted, NotAdmitted, Seeing};
use crate::engine::{Engine, Manner};
use crate::live_config::Snapshot;
use crate::owned_attempt::OwnedAttempt;
use crate::taken::Taken;

/// A login at a guard.
#[derive(Clone, Copy, Debug)]
pub struct Login<'t> {
    /// The guard. The attempt's policy must be the guard's.
    pub guard: &'t Guard,
    /// The longest that delays may make it wait in total. A login that would have to wait longer is refused.
    pub max_delay: Span,
}

/// A login that is not admitted yet, and all that it needs.
pub(super) struct Beginning {
    engine: Arc<Engine>,
    snapshot: Arc<Snapshot>,
    attempt: OwnedAttempt,
    guard: Arc<str>,
    max_delay: Span,
}

impl Beginning {
    pub(super) fn new(
        engine: &Arc<Engine>,
        snapshot: &Arc<Snapshot>,
        attempt: OwnedAttempt,
        Login { guard, max_delay }: Login<'_>,
    ) -> Self {
        let (engine, snapshot) = (Arc::clone(engine), Arc::clone(snapshot));
        Self { engine, snapshot, attempt, guard: Arc::clone(&guard.name), max_delay }
    }

    /// Decides the login, and decides it again after each delay. Only the final decision is recorded: otherwise the
    /// journal would show several denials of one waiting login, and a rule with `ban` could ban its key.
    pub(super) async fn admit<T, F>(self, see: Seeing<F>) -> Admitted<T>
    where
        F: FnOnce(&Engine, &Decision<'_>) -> T,
    {
        let Self { engine, snapshot, attempt: kept, guard, max_delay } = &self;
        let fields = kept.fields();
        let attempt = kept.attempt(&fields);
        let mut waited = 0;
        loop {
            let mut decision = Decision::for_caller(kept.correlation.as_deref());
            engine.decide_as(Manner::TakeUnrecorded, snapshot, &attempt, &mut decision).await?;
            let left = Span::from_micros(max_delay.as_micros() - waited);
            let Some(delay) = engine.guards.delay(&decision, left) else {
                engine.note(snapshot, &decision);
                // Made before the lock is recorded: if the caller goes away meanwhile, dropping `taken` releases its
                // holds.
                let taken = Taken::of_login(engine, guard, &decision, see.lease(&decision));
                let seen = (see.see)(engine, &decision);
                engine.guards.note_begun(guard, &decision).await;
                return Ok(Admission { waited: Span::from_micros(waited), seen, taken });
            };
            drop(decision);
            waited += delay.span().as_micros();
            delay.pass().await.map_err(|_| NotAdmitted::Ended)?;
        }
    }
}
