//! Giving back.

use tollgate_core::store::Given;
use tollgate_core::{Charges, StoreError, Timestamp};

use super::RedisStore;
use crate::name::{memory, spent};
use crate::request::{Ask, Mode, Request};

impl RedisStore {
    /// Gives back what these charges took: once for each ticket.
    pub(super) async fn give_back(
        &self,
        charges: &Charges<'_>,
        taken_at: Timestamp,
    ) -> Result<Given, StoreError> {
        let mut request = Request::new(charges, (0..charges.len()).collect(), &self.names);
        let Some(first) = request.keys.first().cloned() else { return Ok(Given::TooOld) };
        let spent_for = charges.iter().map(|charge| memory(charge.plan)).max().unwrap_or_default();
        request.last = vec![self.names.forgotten(), spent(&first, charges.ticket)];
        let rules: Vec<&[u8]> = charges.iter().map(|charge| charge.plan.rule().as_bytes()).collect();
        let ask = Ask { mode: Mode::Give, moment: taken_at, spent_for };
        let reply = self.settle(&self.scripts.give, &mut request, ask, &rules).await?;
        Ok(match self.head(&reply)?.status {
            0 => Given::Back,
            1 => Given::Already,
            _ => Given::TooOld,
        })
    }

    /// Removes what bears the name of a ticket whose take was never answered.
    pub(super) async fn take_back(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        let mut request = Request::new(charges, (0..charges.len()).collect(), &self.names);
        self.settle(&self.scripts.give, &mut request, Ask::to(Mode::Retract), &[]).await?;
        Ok(())
    }
}
