//! Takes and peeks, with one script for all charges in one slot.

use futures_util::future::join_all;
use tokio::time::Instant;
use tollgate_core::{Charge, Charges, Limit, Outcome, Reading, Span, StoreError, Timestamp, When};

use super::{Head, RedisStore, head, nonsense, plans};
use crate::request::{Ask, Mode, Request, packed};
use crate::resp::Reply;
use crate::row::{self, Adoption, has_reported_wait, width};
use crate::script::Script;

/// A call is repeated at most this often because limits changed or a clock jumped.
const MOST_TRIES: usize = 8;

const TOO_LATE: i64 = -1;
const OTHER_LIMITS: i64 = -2;
const STALE: i64 = -3;
const DAMAGED: i64 = -4;

/// The outcome of one request.
struct Part {
    chosen: Vec<usize>,
    outcome: Outcome,
    /// The number of readings of each charge.
    widths: Vec<usize>,
    holds: bool,
}

impl RedisStore {
    /// Converts the charges that a reply reports as stored under other limits.
    fn adopt(
        &self,
        request: &Request<'_, '_>,
        head: &Head<'_>,
    ) -> Result<Vec<(usize, Vec<u8>, Adoption)>, StoreError> {
        let mut adoptions = Vec::new();
        for pair in head.rest.chunks(2) {
            let [index, kept] = pair else { break };
            let index = index.number().and_then(|index| usize::try_from(index).ok()?.checked_sub(1));
            let index = index.ok_or_else(nonsense)?;
            let (charge, kept) = request.chosen().nth(index).zip(kept.bytes()).ok_or_else(nonsense)?;
            let adoption = row::adopt(charge.plan, kept, head.now).ok_or_else(|| StoreError::Damaged {
                key: request.keys[index].clone(),
                reason: "it is not a counter".into(),
            })?;
            adoptions.push((index, kept.to_vec(), adoption));
        }
        Ok(adoptions)
    }

    /// Runs a script over charges. Repeats it if limits changed or a clock jumped.
    pub(super) async fn settle(
        &self,
        script: &Script,
        request: &mut Request<'_, '_>,
        ask: Ask,
        more: &[&[u8]],
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let plain_keys = request.keys.len();
        let mut adoptions = Vec::new();
        for _ in 0..MOST_TRIES {
            let body = request.body(ask, self.timing(&request.keys[0], deadline));
            let mut words: Vec<&[u8]> = vec![&body, &adoptions];
            words.extend_from_slice(more);
            if more.is_empty() && adoptions.is_empty() {
                words.pop();
            }
            let reply = self.run(script, [&request.keys, &request.last], &words, deadline).await?;
            let head = head(&reply)?;
            match head.status {
                TOO_LATE => {}
                OTHER_LIMITS => {
                    let found = self.adopt(request, &head)?;
                    request.keys.truncate(plain_keys);
                    adoptions = request.adoptions(&found);
                }
                STALE => return Err(StoreError::Stale { now: head.now }),
                DAMAGED => return Err(damaged(request, &head)),
                _ => return Ok(reply),
            }
        }
        // Every try was refused before it changed anything.
        Err(StoreError::Busy)
    }

    /// Takes from a single bucket. `None` if the general script is needed.
    async fn settle_alone(
        &self,
        request: &Request<'_, '_>,
        deadline: Instant,
    ) -> Result<Option<Reply>, StoreError> {
        let Some((heading, bucket)) = request.lone_bucket() else { return Ok(None) };
        let timing = self.timing(&request.keys[0], deadline);
        let cost = request.chosen().map(|charge| charge.cost).sum();
        let mut numbers = packed(&[cost, timing.deadline, timing.time, timing.slack]);
        numbers.extend_from_slice(&bucket);
        let words: [&[u8]; 2] = [heading.as_bytes(), &numbers];
        let reply = self.run(&self.scripts.lone, [&request.keys, &[]], &words, deadline).await?;
        // The general script converts other limits, and reports damage.
        let status = head(&reply)?.status;
        Ok((status >= 0).then_some(reply))
    }

    pub(super) async fn decide(
        &self,
        charges: &Charges<'_>,
        mode: Mode,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        if charges.is_empty() {
            *outcome = Outcome { now: self.ask_time().await?, allowed: true, ..Outcome::default() };
            return Ok(());
        }
        self.know_secret(plans(charges)).await?;
        let request = Request::new(charges, (0..charges.len()).collect(), &self.names)?;
        let groups = self.fleet.groups(&request.keys[..charges.len()]);
        if groups.len() > 1 {
            return self.decide_in_groups(charges, groups, mode, outcome).await;
        }
        self.decide_together(request, mode, outcome).await
    }

    async fn decide_together(
        &self,
        mut request: Request<'_, '_>,
        mode: Mode,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        // All calls of one decision share one deadline.
        let deadline = self.deadline();
        let alone = if mode == Mode::Take { self.settle_alone(&request, deadline).await? } else { None };
        let reply = match alone {
            Some(reply) => reply,
            None => {
                let script = if request.has_logs() { &self.scripts.full } else { &self.scripts.plain };
                self.settle(script, &mut request, Ask::to(mode), &[], deadline).await?
            }
        };
        let head = head(&reply)?;
        read_outcome(&request, &head, outcome)
    }

    /// Decides charges whose keys are in different slots. All slots are read first. Only if all charges
    /// conform, each slot takes its part. If another attempt was faster at one of them, the others are rolled
    /// back. So the limits are never exceeded, but an attempt may be refused because of another one that is
    /// then refused itself.
    async fn decide_in_groups(
        &self,
        charges: &Charges<'_>,
        groups: Vec<Vec<usize>>,
        mode: Mode,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let parts = self.settle_parts(charges, &groups, Mode::Peek, deadline).await;
        let parts: Vec<Part> = parts.into_iter().collect::<Result<_, _>>()?;
        assemble(charges, &parts, outcome);
        outcome.repeated = parts.iter().any(|part| part.holds)
            && parts.iter().all(|part| part.outcome.repeated || !part.holds);
        // A part whose own holds are all held says that it is allowed, whatever its other limits say.
        outcome.allowed = outcome.repeated || conforms(charges, outcome);
        if mode == Mode::Peek || !charges.takes() || outcome.repeated || !outcome.allowed {
            return Ok(());
        }
        let parts = self.settle_parts(charges, &groups, Mode::TakePart, deadline).await;
        if parts.iter().all(|part| part.as_ref().is_ok_and(|part| part.outcome.allowed)) {
            assemble(charges, &parts.into_iter().collect::<Result<Vec<_>, _>>()?, outcome);
            outcome.allowed = true;
            return Ok(());
        }
        self.roll_back(charges, &parts, deadline).await;
        parts.into_iter().collect::<Result<Vec<_>, _>>()?;
        let parts = self.settle_parts(charges, &groups, Mode::Peek, deadline).await;
        assemble(charges, &parts.into_iter().collect::<Result<Vec<_>, _>>()?, outcome);
        insist(charges, outcome);
        Ok(())
    }

    async fn settle_part(
        &self,
        charges: &Charges<'_>,
        group: &[usize],
        mode: Mode,
        deadline: Instant,
    ) -> Result<Part, StoreError> {
        let mut request = Request::new(charges, group.to_vec(), &self.names)?;
        let script = if request.has_logs() { &self.scripts.full } else { &self.scripts.plain };
        let reply = self.settle(script, &mut request, Ask::to(mode), &[], deadline).await?;
        let mut outcome = Outcome::default();
        read_outcome(&request, &head(&reply)?, &mut outcome)?;
        let widths = request.chosen().map(|charge| charge.plan.limits().len()).collect();
        let holds = request.chosen().any(counts_holds);
        Ok(Part { chosen: request.chosen, outcome, widths, holds })
    }

    /// Settles all groups concurrently.
    async fn settle_parts(
        &self,
        charges: &Charges<'_>,
        groups: &[Vec<usize>],
        mode: Mode,
        deadline: Instant,
    ) -> Vec<Result<Part, StoreError>> {
        join_all(groups.iter().map(|group| self.settle_part(charges, group, mode, deadline))).await
    }

    /// Undoes what some groups took while others refused. What cannot be undone stays counted.
    async fn roll_back(&self, charges: &Charges<'_>, parts: &[Result<Part, StoreError>], deadline: Instant) {
        for part in parts.iter().flatten() {
            let taken = |(position, _): &(usize, &usize)| part.outcome.taken & (1 << position) != 0;
            let chosen: Vec<usize> =
                part.chosen.iter().enumerate().filter(taken).map(|(_, index)| *index).collect();
            if !chosen.is_empty() {
                let _ = self.undo(charges, chosen, part.outcome.now, deadline).await;
            }
        }
    }
}

fn counts_holds(charge: &Charge<'_>) -> bool {
    charge.enforced && charge.plan.limits().iter().any(Limit::holds)
}

/// Combines the parts of an outcome. The caller decides whether it allows the attempt.
fn assemble(charges: &Charges<'_>, parts: &[Part], outcome: &mut Outcome) {
    let mut rows: Vec<&[Reading]> = vec![&[]; charges.len()];
    *outcome = Outcome { now: Timestamp::from_micros(u64::MAX), ..Outcome::default() };
    for part in parts {
        // The earliest of the servers' times: with a later one, a refund could return more than was taken.
        outcome.now = outcome.now.min(part.outcome.now);
        let mut start = 0;
        for (position, (index, width)) in part.chosen.iter().zip(&part.widths).enumerate() {
            rows[*index] = &part.outcome.readings[start..start + width];
            start += width;
            outcome.taken |= ((part.outcome.taken >> position) & 1) << index;
        }
    }
    outcome.readings.extend(rows.into_iter().flatten().copied());
}

/// Whether every enforced charge conforms.
fn conforms(charges: &Charges<'_>, outcome: &Outcome) -> bool {
    let mut enforced = charges.iter().enumerate().filter(|(_, charge)| charge.enforced);
    enforced.all(|(index, _)| outcome.of(charges, index).iter().all(|reading| reading.when == When::Now))
}

/// Makes sure that a refusal names its reason. If the limit became free between two calls, it gets the
/// shortest wait.
fn insist(charges: &Charges<'_>, outcome: &mut Outcome) {
    if !conforms(charges, outcome) {
        return;
    }
    let observed = charges.iter().take_while(|charge| !charge.enforced);
    let first: usize = observed.map(|charge| charge.plan.limits().len()).sum();
    if let Some(reading) = outcome.readings.get_mut(first) {
        reading.when = When::After(Span::from_micros(1));
    }
}

fn damaged(request: &Request<'_, '_>, head: &Head<'_>) -> StoreError {
    let index = head.rest.first().and_then(Reply::number).map_or(0, |index| index.max(1) as usize - 1);
    let key = request.keys.get(index).cloned().unwrap_or_default();
    let what = head.rest.get(1).and_then(Reply::text).unwrap_or("garbage");
    StoreError::Damaged { key, reason: format!("it holds {what}, not a counter") }
}

/// Reads the outcome: flags, the stored numbers of each charge, and the waits of logs.
fn read_outcome(request: &Request<'_, '_>, head: &Head<'_>, outcome: &mut Outcome) -> Result<(), StoreError> {
    let mut draft = request.charges.draft(head.now).map_err(|stale| StoreError::Stale { now: stale.now })?;
    let flags = u32::try_from(head.status).map_err(|_| nonsense())?;
    outcome.now = head.now;
    outcome.allowed = flags & 1 != 0;
    outcome.repeated = flags & 2 != 0;
    outcome.taken = flags >> 2;
    outcome.readings.clear();
    let kept = head.rest.get(..request.chosen.len()).ok_or_else(nonsense)?;
    let mut waits = head.rest[request.chosen.len()..].iter();
    for (index, (charge, kept)) in request.chosen().zip(kept).enumerate() {
        draft.cost = charge.cost;
        let taken = outcome.taken & (1 << index) != 0;
        let row = kept.bytes().and_then(|kept| row::read(charge.plan, kept)).ok_or_else(nonsense)?;
        let mut start = 0;
        for limit in charge.plan.limits() {
            let numbers = &row[start..start + width(limit)];
            start += numbers.len();
            let reported = if has_reported_wait(limit) {
                Some(waits.next().and_then(Reply::number).map(when).ok_or_else(nonsense)?)
            } else {
                None
            };
            outcome.readings.push(row::reading(limit, numbers, reported, taken, &draft));
        }
    }
    Ok(())
}

/// The wait in a script's reply.
fn when(reported: i64) -> When {
    match reported {
        0 => When::Now,
        -1 => When::OnRelease,
        1.. => When::After(Span::from_micros(reported as u64)),
        _ => When::Never,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests;
