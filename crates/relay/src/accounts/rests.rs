//! Remembers the accounts and hosts that rest, because their servers refuse mail whatever the message is.
//!
//! A rest that is over ends with a trial: one message is tried, and the others wait for what comes of it. So an account with
//! mail for sixty domains asks its server once, and not sixty times.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::{Span, Timestamp};

use super::{Account, Pause};
use crate::lanes::rest_after;
use crate::replies::Rest;

/// The accounts and hosts that rest, or did until their trial succeeds.
#[derive(Debug, Default)]
pub(crate) struct Rests(Mutex<HashMap<RestKey, Resting>>);

/// An account by tenant and name; a host without a tenant.
type RestKey = (String, String);

#[derive(Debug)]
struct Resting {
    since: Timestamp,
    span: Span,
    reason: String,
    why: Rest,
    /// The number of rests before, without a success in between.
    times: u32,
    on_trial: bool,
}

/// Whether an account may be tried.
#[derive(Debug)]
pub(crate) enum Passage {
    /// Nothing is known against it.
    Open,
    /// Its rest is over: it may be tried once. Until the trial is dropped, nothing else goes through it.
    Trial(Trial),
    /// It rests.
    Resting(Pause),
    /// Something else tries it.
    OnTrial(String),
}

/// The right to try an account whose rest is over.
#[derive(Debug)]
pub(crate) struct Trial {
    rests: Arc<Rests>,
    key: RestKey,
}

/// For how long an account whose login failed is left alone.
pub(super) const AFTER_LOGIN: Span = Span::from_secs(15 * 60);
/// The first and the longest sleep of an account. Quotas are counted by hour or by day.
const FIRST_SLEEP: Span = Span::from_secs(3_600);
const LONGEST_SLEEP: Span = Span::from_secs(4 * 3_600);
/// The most accounts and hosts that are remembered.
const MOST: usize = 10_000;

impl Rests {
    /// Whether an account may be tried now.
    pub(crate) fn enter(self: &Arc<Self>, account: &Account, now: Timestamp) -> Passage {
        let key = key(account);
        let mut all = self.0.lock();
        let Some(resting) = all.get_mut(&key) else { return Passage::Open };
        if let Some(pause) = resting.pause(now) {
            return Passage::Resting(pause);
        }
        if resting.on_trial {
            return Passage::OnTrial(resting.reason.clone());
        }
        resting.on_trial = true;
        Passage::Trial(Trial { rests: Arc::clone(self), key })
    }

    /// Why and until when an account rests, if it does.
    pub(super) fn pause(&self, account: &Account, now: Timestamp) -> Option<Pause> {
        self.0.lock().get(&key(account))?.pause(now)
    }

    /// Lets an account rest. Returns until when, and whether this is new: messages that were on their way when the rest
    /// began make it no longer, unless they know of a worse reason.
    pub(super) fn rest(&self, account: &Account, why: Rest, reason: &str, now: Timestamp) -> (Pause, bool) {
        let mut all = self.0.lock();
        let key = key(account);
        let known = all.get(&key);
        if let Some(known) = known
            && let Some(pause) = known.pause(now)
            && known.why >= why
        {
            return (pause, false);
        }
        let times = known.map_or(0, |known| known.times.saturating_add(1));
        let span = match why {
            Rest::Slow => rest_after(times),
            Rest::Login => AFTER_LOGIN,
            Rest::Sleep(Some(span)) => span,
            Rest::Sleep(None) => doubled(FIRST_SLEEP, times, LONGEST_SLEEP),
        };
        let on_trial = known.is_some_and(|known| known.on_trial);
        let resting = Resting { since: now, span, reason: reason.to_owned(), why, times, on_trial };
        let pause = Pause { until: now + span, reason: reason.to_owned() };
        all.insert(key, resting);
        if all.len() > MOST {
            all.retain(|_, resting| resting.on_trial || resting.pause(now).is_some());
        }
        if all.len() > MOST
            && let Some(first) =
                all.iter().min_by_key(|(_, one)| one.since + one.span).map(|(key, _)| key.clone())
        {
            all.remove(&first);
        }
        (pause, true)
    }

    /// Notes that a server took a message. Returns whether the account had rested. A message that was on its way when the
    /// rest began does not end it.
    pub(crate) fn works(&self, account: &Account, now: Timestamp) -> bool {
        let (mut all, key) = (self.0.lock(), key(account));
        let is_over = all.get(&key).is_some_and(|resting| resting.pause(now).is_none());
        is_over && all.remove(&key).is_some()
    }

    /// Forgets that an account rests. Returns whether it did.
    pub(super) fn end(&self, tenant: &str, id: &str) -> bool {
        self.0.lock().remove(&(tenant.to_owned(), id.to_owned())).is_some()
    }
}

impl Resting {
    /// Until when it rests. A clock that went back by more than the rest ends it.
    fn pause(&self, now: Timestamp) -> Option<Pause> {
        let until = self.since + self.span;
        let rests = until > now && until.since(now) <= self.span;
        rests.then(|| Pause { until, reason: self.reason.clone() })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Some(resting) = self.rests.0.lock().get_mut(&self.key) {
            resting.on_trial = false;
        }
    }
}

fn key(account: &Account) -> RestKey {
    match account.id.is_empty() {
        // Tenants share the hosts of the recipients.
        true => (String::new(), account.destination.name()),
        false => (account.tenant.clone(), account.id.clone()),
    }
}

fn doubled(first: Span, times: u32, longest: Span) -> Span {
    let doubled = first.as_micros().saturating_mul(1 << times.min(10));
    Span::from_micros(doubled.min(longest.as_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::OnLimit;
    use crate::client::{Destination, TlsMode};

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
    const HOUR: Span = Span::from_secs(3_600);

    fn account(id: &str) -> Account {
        let destination =
            Destination { host: "192.0.2.1".to_owned(), port: 25, tls: TlsMode::None, login: None };
        let (tenant, id) = ("acme".to_owned(), id.to_owned());
        Account { tenant, id, destination, on_limit: OnLimit::Defer, priority: 0 }
    }

    #[test]
    fn a_rest_ends_with_one_trial_at_a_time() {
        let (rests, main) = (Arc::new(Rests::default()), account("main"));
        assert!(matches!(rests.enter(&main, NOW), Passage::Open));
        let (pause, new) = rests.rest(&main, Rest::Sleep(None), "550 5.4.5", NOW);
        assert_eq!((pause.until, new), (NOW + HOUR, true));
        assert!(matches!(rests.enter(&main, NOW), Passage::Resting(known) if known == pause));
        assert!(!rests.works(&main, NOW), "a message that was on its way");
        let over = pause.until;
        let Passage::Trial(trial) = rests.enter(&main, over) else { panic!("the rest is over") };
        assert!(matches!(rests.enter(&main, over), Passage::OnTrial(reason) if reason == "550 5.4.5"));
        drop(trial);
        let Passage::Trial(trial) = rests.enter(&main, over) else { panic!("the next one tries") };
        assert!(rests.works(&main, over) && !rests.works(&main, over));
        drop(trial);
        assert!(matches!(rests.enter(&main, over), Passage::Open));
    }

    #[test]
    fn rests_grow_until_a_message_is_taken_and_worse_reasons_count() {
        let (rests, main) = (Arc::new(Rests::default()), account("main"));
        let mut now = NOW;
        for hours in [1, 2, 4, 4] {
            let (pause, _) = rests.rest(&main, Rest::Sleep(None), "quota", now);
            assert_eq!(pause.until.since(now), Span::from_secs(hours * 3_600));
            let (same, new) = rests.rest(&main, Rest::Slow, "421", now);
            assert_eq!((same, new), (pause.clone(), false));
            now = pause.until;
        }
        assert!(rests.works(&main, now));
        let (pause, _) = rests.rest(&main, Rest::Slow, "421", now);
        assert_eq!(pause.until.since(now), Span::from_secs(60));
        let (pause, new) = rests.rest(&main, Rest::Sleep(Some(HOUR)), "quota", now);
        assert_eq!((pause.until.since(now), new), (HOUR, true));
        let back = Timestamp::from_micros(now.as_micros() - 2 * HOUR.as_micros());
        assert_eq!(rests.pause(&main, back), None, "the clock went back");
    }

    #[test]
    fn hosts_are_shared_by_tenants_and_bounded() {
        let (rests, host) = (Arc::new(Rests::default()), account(""));
        rests.rest(&host, Rest::Slow, "421", NOW);
        assert!(rests.pause(&Account { tenant: "other".to_owned(), ..host.clone() }, NOW).is_some());
        for number in 0..MOST + 50 {
            rests.rest(
                &account(&number.to_string()),
                Rest::Slow,
                "421",
                NOW + Span::from_millis(number as u64),
            );
        }
        assert!(rests.0.lock().len() <= MOST);
    }
}
