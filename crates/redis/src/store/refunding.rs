//! Refunds.

use tokio::time::Instant;
use tollgate_core::store::Refunded;
use tollgate_core::{Charges, Span, StoreError, Timestamp};

use super::{RedisStore, head, nonsense, plans};
use crate::name::spent;
use crate::request::{Ask, Mode, Request};
use crate::resp::Reply;

impl RedisStore {
    /// Refunds these charges, each of them once.
    pub(super) async fn refund_all(
        &self,
        charges: &Charges<'_>,
        taken_at: Timestamp,
    ) -> Result<Refunded, StoreError> {
        if charges.is_empty() {
            return Ok(Refunded::TooOld);
        }
        self.know_secret(plans(charges)).await?;
        let request = Request::new(charges, (0..charges.len()).collect(), &self.names)?;
        let groups = self.fleet.groups(&request.keys[..charges.len()]);
        if self.fleet.is_whole() {
            return self.refund_to(request, taken_at, Mode::Refund).await;
        }
        let known = self.remembered(charges, taken_at).await?;
        let mut refunded = Refunded::Already;
        for group in groups {
            let mut request = Request::new(charges, group, &self.names)?;
            request.known = Some(request.chosen.iter().map(|index| known[*index]).collect());
            refunded = match (refunded, self.refund_to(request, taken_at, Mode::RefundKnown).await?) {
                (Refunded::Done, _) | (_, Refunded::Done) => Refunded::Done,
                (Refunded::TooOld, _) | (_, Refunded::TooOld) => Refunded::TooOld,
                (Refunded::Already, Refunded::Already) => Refunded::Already,
            };
        }
        Ok(refunded)
    }

    /// Undoes a part of an attempt, because another part was refused.
    pub(super) async fn undo(
        &self,
        charges: &Charges<'_>,
        chosen: Vec<usize>,
        taken_at: Timestamp,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let mut request = Request::new(charges, chosen, &self.names)?;
        let ask = Ask { moment: taken_at, ..Ask::to(Mode::Undo) };
        self.settle(&self.scripts.refund, &mut request, ask, &[], deadline).await.map(|_| ())
    }

    async fn refund_to(
        &self,
        mut request: Request<'_, '_>,
        taken_at: Timestamp,
        mode: Mode,
    ) -> Result<Refunded, StoreError> {
        let charges = request.charges;
        let spent_for = charges.iter().map(|charge| charge.plan.matters_for()).max().unwrap_or_default();
        let age = charges.ages_out().map_or(0, Span::as_micros).to_string();
        let mut words: Vec<&[u8]> = vec![age.as_bytes()];
        if mode == Mode::Refund {
            request.last.push(self.names.forgotten());
            words.extend(charges.iter().map(|charge| charge.plan.rule().as_bytes()));
        }
        let marks = request.keys[..request.chosen.len()].iter().map(|key| spent(key, charges.ticket));
        request.last.extend(marks);
        let ask = Ask { mode, moment: taken_at, spent_for };
        let reply = self.settle(&self.scripts.refund, &mut request, ask, &words, self.deadline()).await?;
        Ok(match head(&reply)?.status {
            0 => Refunded::Done,
            1 => Refunded::Already,
            _ => Refunded::TooOld,
        })
    }

    /// Whether each charge's rule was not forgotten since.
    async fn remembered(&self, charges: &Charges<'_>, taken_at: Timestamp) -> Result<Vec<bool>, StoreError> {
        let key = self.names.forgotten();
        let mut words: Vec<&[u8]> = vec![b"HMGET", key.as_bytes(), b"*"];
        words.extend(charges.iter().map(|charge| charge.plan.rule().as_bytes()));
        let reply = self.command(&key, &words).await?;
        let [all, rules @ ..] = reply.list().unwrap_or_default() else { return Err(nonsense()) };
        let known = |forgotten: &Reply| {
            let moment = forgotten.text().and_then(|text| text.parse().ok()).map(Timestamp::from_micros);
            moment.is_none_or(|moment| taken_at > moment)
        };
        let known = |index: usize| known(all) && rules.get(index).is_some_and(known);
        Ok((0..charges.len()).map(known).collect())
    }

    /// Removes the charges of a ticket whose take got no reply.
    pub(super) async fn take_back(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        if charges.is_empty() {
            return Ok(());
        }
        self.know_secret(plans(charges)).await?;
        let request = Request::new(charges, (0..charges.len()).collect(), &self.names)?;
        for group in self.fleet.groups(&request.keys[..charges.len()]) {
            let mut request = Request::new(charges, group, &self.names)?;
            self.settle(&self.scripts.refund, &mut request, Ask::to(Mode::Retract), &[], self.deadline())
                .await?;
        }
        Ok(())
    }
}
