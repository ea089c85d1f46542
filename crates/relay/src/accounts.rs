//! Accounts: the servers that mail is delivered through, and whether each can be used.

mod draft;
mod fault;
mod known;
mod pauses;
mod record;
mod registry;
mod rests;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tollgate_core::{Span, Timestamp};

pub use draft::{AccountDraft, AccountView, Existing, Put, Secret, SecretKey, Source, check_name, fresh_id};
pub use fault::AccountFault;
pub use pauses::Pausable;
pub use registry::AccountRegistry;
pub(crate) use rests::{Passage, Rests, Trial};

use crate::client::Destination;
use crate::moment::rfc3339;
use crate::replies::Rest;
use rests::AFTER_LOGIN;

/// An account of a tenant: a server that its mail is delivered through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The tenant that the account belongs to.
    pub tenant: String,
    /// Its name, unique within the tenant.
    pub id: String,
    /// The server and the login.
    pub destination: Destination,
    /// The treatment of mail that exceeds one of its limits.
    pub on_limit: OnLimit,
    /// Lower numbers are used first.
    pub priority: u32,
}

/// The treatment of mail that exceeds an account's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The mail waits.
    #[default]
    Defer,
    /// The mail fails, and its sender gets a report.
    Reject,
}

/// The reason why an account is paused, and the end of the pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The time at which the account is tried again.
    pub until: Timestamp,
    /// The reply of its server.
    pub reason: String,
}

/// All accounts.
#[derive(Default)]
pub struct Accounts {
    all: RwLock<HashMap<String, Vec<Arc<Account>>>>,
    rests: Arc<Rests>,
    /// Those whose servers refused a text lately, and when. Only accounts that exist are noted, and only for a while.
    bounced: Mutex<HashMap<(String, String), Timestamp>>,
    /// Those that an operator paused.
    held: RwLock<BTreeSet<(String, String)>>,
}

/// For how long a report avoids an account whose server refused a text.
const LATELY: Span = Span::from_secs(15 * 60);

impl Accounts {
    pub fn new(accounts: impl IntoIterator<Item = Account>) -> Self {
        let known = Self::default();
        for account in accounts {
            known.put(account);
        }
        known
    }

    /// Adds an account, or replaces the one of the same name. Its pause ends, because the password may be new.
    pub fn put(&self, account: Account) {
        self.resume(&account.tenant, &account.id);
        let mut all = self.all.write();
        let own = all.entry(account.tenant.clone()).or_default();
        own.retain(|known| known.id != account.id);
        own.push(Arc::new(account));
        own.sort_by(|one, two| (one.priority, &one.id).cmp(&(two.priority, &two.id)));
    }

    /// Removes an account. Returns whether there was one.
    pub fn remove(&self, tenant: &str, id: &str) -> bool {
        self.resume(tenant, id);
        let mut all = self.all.write();
        let Some(own) = all.get_mut(tenant) else { return false };
        let before = own.len();
        own.retain(|known| known.id != id);
        own.len() < before
    }

    /// The accounts of a tenant in the order in which they are tried. If `named` is given, only that account.
    pub fn of(&self, tenant: &str, named: Option<&str>) -> Vec<Arc<Account>> {
        let all = self.all.read();
        let own = all.get(tenant).into_iter().flatten();
        own.filter(|account| named.is_none_or(|named| account.id == named)).cloned().collect()
    }

    /// Whether a tenant has the named account, or any if none is named.
    pub fn has(&self, tenant: &str, named: Option<&str>) -> bool {
        let all = self.all.read();
        let mut own = all.get(tenant).into_iter().flatten();
        own.any(|account| named.is_none_or(|named| account.id == named))
    }

    pub fn all(&self) -> Vec<Arc<Account>> {
        self.all.read().values().flatten().cloned().collect()
    }

    /// Lets an account or a host rest, because its server refuses mail whatever the message is, and logs it.
    pub fn rest(&self, account: &Account, why: Rest, reason: &str, now: Timestamp) -> Pause {
        let (pause, new) = self.rests.rest(account, why, reason, now);
        let (tenant, id, until) = (&*account.tenant, &*account.id, rfc3339(pause.until));
        match why {
            _ if !new => {}
            _ if id.is_empty() => {
                let host = account.destination.name();
                tracing::info!(
                    component = "relay",
                    host,
                    reason,
                    until,
                    "host paused: it refuses mail for now"
                );
            }
            Rest::Login => {
                tracing::error!(
                    component = "relay",
                    tenant,
                    account = id,
                    reason,
                    until,
                    "login failed: account paused"
                );
            }
            Rest::Slow | Rest::Sleep(_) => {
                tracing::warn!(
                    component = "relay",
                    tenant,
                    account = id,
                    reason,
                    until,
                    "account paused: its server refuses mail for now"
                );
            }
        }
        pause
    }

    /// Whether an account or a host may be tried now.
    pub(crate) fn enter(&self, account: &Account, now: Timestamp) -> Passage {
        match self.held_by_operator(account, now) {
            Some(pause) => Passage::Resting(pause),
            None => self.rests.enter(account, now),
        }
    }

    /// Notes that an account's server took a message. Returns whether the account had rested.
    pub(crate) fn works(&self, account: &Account, now: Timestamp) -> bool {
        self.rests.works(account, now)
    }

    /// Notes that an account's server refused a text for good.
    pub(crate) fn note_bounce(&self, account: &Account, now: Timestamp) {
        let mut bounced = self.bounced.lock();
        bounced.retain(|_, at| now.since(*at) < LATELY && *at <= now);
        bounced.insert((account.tenant.clone(), account.id.clone()), now);
    }

    /// Puts the accounts last whose servers refused a text lately: one that refuses a message may refuse the report
    /// about it, too.
    pub(crate) fn order_for_report(&self, accounts: &mut [Arc<Account>], now: Timestamp) {
        let bounced = self.bounced.lock();
        accounts.sort_by_key(|account| {
            let at = bounced.get(&(account.tenant.clone(), account.id.clone()));
            at.is_some_and(|at| now.since(*at) < LATELY && *at <= now)
        });
    }

    /// Ends the rest of an account. Returns whether it rested.
    pub fn resume(&self, tenant: &str, id: &str) -> bool {
        self.rests.end(tenant, id)
    }

    /// Pauses an account until an operator resumes it, whether or not it exists. Returns whether it was not
    /// paused before.
    pub fn hold(&self, tenant: &str, id: &str) -> bool {
        self.held.write().insert((tenant.to_owned(), id.to_owned()))
    }

    /// Ends a pause by [`Accounts::hold`]. Returns whether the account was paused.
    pub fn release(&self, tenant: &str, id: &str) -> bool {
        self.held.write().remove(&(tenant.to_owned(), id.to_owned()))
    }

    /// Whether an operator paused an account.
    pub fn is_held(&self, tenant: &str, id: &str) -> bool {
        self.held.read().contains(&(tenant.to_owned(), id.to_owned()))
    }

    /// The accounts that an operator paused, by tenant and name.
    pub fn held(&self) -> Vec<(String, String)> {
        self.held.read().iter().cloned().collect()
    }

    /// The pause of an account, if it is paused now.
    pub fn paused(&self, account: &Account, now: Timestamp) -> Option<Pause> {
        self.held_by_operator(account, now).or_else(|| self.rests.pause(account, now))
    }

    fn held_by_operator(&self, account: &Account, now: Timestamp) -> Option<Pause> {
        self.is_held(&account.tenant, &account.id)
            .then(|| Pause { until: now + AFTER_LOGIN, reason: "an operator paused it".to_owned() })
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("accounts", &self.all().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::TlsMode;

    fn account(tenant: &str, id: &str, priority: u32) -> Account {
        let destination =
            Destination { host: "smtp.example".to_owned(), port: 587, tls: TlsMode::StartTls, login: None };
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        Account { tenant, id, destination, on_limit: OnLimit::Defer, priority }
    }

    #[test]
    fn accounts_come_by_priority_and_belong_to_their_tenant() {
        let accounts = Accounts::new([
            account("acme", "second", 2),
            account("acme", "first", 1),
            account("other", "first", 0),
        ]);
        let ids = |named| -> Vec<String> {
            accounts.of("acme", named).iter().map(|account| account.id.clone()).collect()
        };
        assert_eq!(ids(None), ["first", "second"]);
        assert_eq!(ids(Some("second")), ["second"]);
        accounts.put(account("acme", "second", 0));
        assert_eq!(ids(None), ["second", "first"]);
        assert!(accounts.remove("acme", "second") && !accounts.remove("acme", "second"));
        assert_eq!(accounts.of("nobody", None), []);
    }

    #[test]
    fn a_pause_ends_by_itself_and_by_a_new_password() {
        let accounts = Accounts::new([account("acme", "main", 0)]);
        let main = account("acme", "main", 0);
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        let pause = accounts.rest(&main, Rest::Login, "535 wrong", now);
        assert_eq!(accounts.paused(&main, now), Some(pause.clone()));
        assert_eq!(accounts.paused(&account("other", "main", 0), now), None, "tenants are apart");
        assert_eq!(accounts.paused(&main, pause.until), None);
        assert_eq!(accounts.paused(&main, now - Span::from_secs(86_400)), None, "the clock was set back");
        accounts.put(main.clone());
        assert_eq!(accounts.paused(&main, now), None);
    }

    #[test]
    fn an_operators_pause_ends_by_the_operator_alone() {
        let accounts = Accounts::new([account("acme", "main", 0)]);
        let main = account("acme", "main", 0);
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        assert!(accounts.hold("acme", "main") && !accounts.hold("acme", "main"));
        accounts.put(main.clone());
        accounts.resume("acme", "main");
        assert!(accounts.paused(&main, now + Span::from_secs(86_400)).is_some());
        assert_eq!(accounts.held(), [("acme".to_owned(), "main".to_owned())]);
        assert!(accounts.release("acme", "main") && !accounts.release("acme", "main"));
        assert_eq!(accounts.paused(&main, now), None);
    }
}
