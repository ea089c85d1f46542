//! Orders about the holds of one key.

use std::collections::BTreeMap;

use tollgate_core::limit::Hold;
use tollgate_core::store::{Counter, HoldsOrder, HoldsReport};
use tollgate_core::{Charges, StoreError, Ticket, Timestamp};

use super::{RedisStore, head, nonsense};
use crate::name::beside;
use crate::request::{Ask, Mode, Request};
use crate::resp::Reply;

/// One call names at most this many ids, so that its reply stays within the bound.
const AT_ONCE: usize = 2_000;

impl RedisStore {
    /// Executes an order and returns its result.
    pub(super) async fn obey(
        &self,
        counter: &Counter<'_>,
        order: HoldsOrder<'_>,
    ) -> Result<HoldsReport, StoreError> {
        let parts: Vec<HoldsOrder<'_>> = match order {
            HoldsOrder::RenewMany(ids) => ids.chunks(AT_ONCE).map(HoldsOrder::RenewMany).collect(),
            HoldsOrder::ReleaseMany(ids) => ids.chunks(AT_ONCE).map(HoldsOrder::ReleaseMany).collect(),
            HoldsOrder::Claim(ids, ticket) => {
                ids.chunks(AT_ONCE).map(|ids| HoldsOrder::Claim(ids, ticket)).collect()
            }
            _ => Vec::new(),
        };
        let Some((first, rest)) = parts.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return self.obey_at_once(counter, order).await;
        };
        let mut report = self.obey_at_once(counter, *first).await?;
        for part in rest {
            let more = self.obey_at_once(counter, *part).await?;
            report.found &= more.found;
            report.now = more.now;
            report.holds.extend(more.holds);
        }
        report.holds.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(report)
    }

    /// Executes an order in one call.
    async fn obey_at_once(
        &self,
        counter: &Counter<'_>,
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
            HoldsOrder::RenewMany(ids) => (b"renew", bytes(ids), Ticket(0)),
            HoldsOrder::ReleaseMany(ids) => (b"release", bytes(ids), Ticket(0)),
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
        charges.push(counter.plan, counter.key, true);
        self.know_secret(std::iter::once(&**counter.plan)).await?;
        let mut request = Request::new(&charges, vec![0], &self.names)?;
        // No decision waits for an order about many holds.
        let about_all = matches!(order, HoldsOrder::List | HoldsOrder::Replace(..));
        let deadline = if about_all || ids.len() > 1 { self.background_deadline() } else { self.deadline() };
        let words: Vec<&[u8]> = [word].into_iter().chain(ids).collect();
        let reply =
            self.settle(&self.scripts.holds, &mut request, Ask::to(Mode::Take), &words, deadline).await?;
        let head = head(&reply)?;
        let [found, rest @ ..] = head.rest else { return Err(nonsense()) };
        let holds = match (about_all, rest) {
            (false, holds) => read_holds(holds)?,
            (true, [held]) if held.number() == Some(0) => BTreeMap::new(),
            (true, _) => self.list_holds(counter, &request.keys[0], head.now).await?,
        };
        Ok(HoldsReport {
            found: found.number() == Some(1),
            now: head.now,
            holds: holds.into_iter().collect(),
        })
    }

    /// Every hold of a counter that lasts at `now`, read in pages so that no client waits long. A hold that
    /// is taken or ended meanwhile may or may not be included.
    async fn list_holds(
        &self,
        counter: &Counter<'_>,
        name: &str,
        now: Timestamp,
    ) -> Result<BTreeMap<String, Hold>, StoreError> {
        let Some((index, kind)) = counter.plan.in_flight() else { return Ok(BTreeMap::new()) };
        let Some(key) = beside(name, &counter.plan.limits()[index]) else { return Ok(BTreeMap::new()) };
        let (mut holds, mut cursor) = (BTreeMap::new(), String::from("0"));
        loop {
            let words: [&[u8]; 5] = [b"HSCAN", key.as_bytes(), cursor.as_bytes(), b"COUNT", b"500"];
            let reply = self.command(&key, &words).await?;
            let [next, found] = reply.list().unwrap_or_default() else { return Err(nonsense()) };
            holds.append(&mut read_holds(found.list().unwrap_or_default())?);
            cursor = next.text().unwrap_or("0").to_owned();
            if cursor == "0" {
                break;
            }
        }
        holds.retain(|_, hold| kind.lease().is_none_or(|lease| now < hold.renewed + lease));
        Ok(holds)
    }
}

/// Holds from alternating ids and texts.
fn read_holds(flat: &[Reply]) -> Result<BTreeMap<String, Hold>, StoreError> {
    flat.chunks(2).map(|pair| read_hold(pair).ok_or_else(nonsense)).collect()
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
