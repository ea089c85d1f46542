//! Orders about the holds of one key.

use tollgate_core::limit::Hold;
use tollgate_core::store::{HoldsOrder, HoldsReport, Spot};
use tollgate_core::{Charges, StoreError, Ticket, Timestamp};

use super::{RedisStore, head, nonsense};
use crate::request::{Ask, Mode, Request};
use crate::resp::Reply;

impl RedisStore {
    /// Does what was ordered, and reports what is held then.
    pub(super) async fn obey(
        &self,
        spot: &Spot<'_>,
        order: HoldsOrder<'_>,
    ) -> Result<HoldsReport, StoreError> {
        let weights: Vec<String> = match order {
            HoldsOrder::Claim(ids, _) => ids.iter().map(|(_, weight)| weight.to_string()).collect(),
            _ => Vec::new(),
        };
        let (word, ids, ticket): (&[u8], Vec<&[u8]>, Ticket) = match order {
            HoldsOrder::List => (b"list", vec![], Ticket(0)),
            HoldsOrder::Renew(id) => (b"renew", vec![id.as_bytes()], Ticket(0)),
            HoldsOrder::Release(id) => (b"release", vec![id.as_bytes()], Ticket(0)),
            HoldsOrder::Replace(ids, ticket) => (b"replace", bytes(ids), ticket),
            HoldsOrder::RenewMany(ids) => (b"renew-many", bytes(ids), Ticket(0)),
            HoldsOrder::ReleaseMany(ids) => (b"release-many", bytes(ids), Ticket(0)),
            HoldsOrder::Claim(ids, ticket) => {
                let pairs = ids.iter().zip(&weights);
                (
                    b"claim",
                    pairs.flat_map(|((id, _), weight)| [id.as_bytes(), weight.as_bytes()]).collect(),
                    ticket,
                )
            }
        };
        let mut charges = Charges::new(ticket, 0, None);
        charges.push(spot.plan, spot.key, true);
        self.know_secret(std::iter::once(&**spot.plan)).await?;
        let mut request = Request::new(&charges, vec![0], &self.names)?;
        // Nobody's decision waits for an order about many.
        let deadline = if ids.len() > 1 { self.patience() } else { self.deadline() };
        let words: Vec<&[u8]> = [word].into_iter().chain(ids).collect();
        let reply =
            self.settle(&self.scripts.holds, &mut request, Ask::to(Mode::Take), &words, deadline).await?;
        let head = head(&reply)?;
        let [found, holds @ ..] = head.rest else { return Err(nonsense()) };
        let mut holds: Vec<(String, Hold)> =
            holds.chunks(2).map(|pair| read_hold(pair).ok_or_else(nonsense)).collect::<Result<_, _>>()?;
        holds.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(HoldsReport { found: found.number() == Some(1), now: head.now, holds })
    }
}

fn bytes<'i>(ids: &[&'i str]) -> Vec<&'i [u8]> {
    ids.iter().map(|id| id.as_bytes()).collect()
}

/// A hold from its id and `ticket weight since renewed`.
fn read_hold(pair: &[Reply]) -> Option<(String, Hold)> {
    let [id, text] = pair else { return None };
    let mut words = text.text()?.split(' ');
    let ticket = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse().ok();
    let (weight, since, renewed) = (number()?, number()?, number()?);
    let hold = Hold {
        ticket,
        weight,
        since: Timestamp::from_micros(since),
        renewed: Timestamp::from_micros(renewed),
    };
    Some((id.text()?.to_owned(), hold))
}
