//! Accounts that can be changed while the relay runs: each is a record of the store, which all nodes follow.
//!
//! An account of the configuration beats a record of the same name, and only the configuration changes it. Its
//! passwords are sealed with a key that the operator provides, so that the store alone does not reveal them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::Limit;
use tollgate_engine::receipt::Seal;
use tollgate_engine::{ChangeFault, Engine};

use super::draft::{AccountDraft, AccountView, Existing, Put, Secret, SecretKey, Source, check_name};
use super::fault::AccountFault;
use super::pauses::PREFIX;
use super::record::{Recorded, SealedLogin, seal};
use super::{Account, Accounts};
use crate::sender::Sender;

/// The most times that a change is tried again because another one was faster.
const TRIES: usize = 4;
/// All accounts: those of the configuration and those of the store's records.
pub struct AccountRegistry {
    pub(super) engine: Arc<Engine>,
    pub(super) sender: Arc<Sender>,
    pub(super) accounts: Arc<Accounts>,
    seal: Option<Seal>,
    configured: Mutex<BTreeMap<Name, Account>>,
    /// The unusable records that were logged already.
    logged: Mutex<BTreeSet<String>>,
    /// Held while an account changes, so that its limits and its record agree.
    changing: tokio::sync::Mutex<()>,
}

/// The source of the limits in force for an account that is being written.
enum LimitsOf {
    /// The limits of its record.
    Record,
    /// The limits of the draft. The draft may not have become the record.
    Draft,
}

/// Tenant and id.
type Name = (String, String);

impl AccountRegistry {
    /// A registry over the engine's records, which changes `accounts`. Without a key no password can be set.
    pub fn new(
        engine: Arc<Engine>,
        sender: Arc<Sender>,
        accounts: Arc<Accounts>,
        key: Option<&SecretKey>,
    ) -> Self {
        Self {
            engine,
            sender,
            accounts,
            seal: key.map(|SecretKey(key)| Seal::new(*key)),
            configured: Mutex::default(),
            logged: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
        }
    }

    /// Follows the records until `stop` is ready.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) {
        let mut changed = self.engine.accounts.watch();
        tokio::pin!(stop);
        loop {
            changed.mark_unchanged();
            self.apply();
            self.apply_pauses();
            tokio::select! {
                () = &mut stop => return,
                changed = changed.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Replaces the accounts of the configuration.
    pub fn configure(&self, accounts: impl IntoIterator<Item = Account>) {
        let name = |account: &Account| (account.tenant.clone(), account.id.clone());
        *self.configured.lock() = accounts.into_iter().map(|account| (name(&account), account)).collect();
        self.apply();
    }

    /// Updates the accounts in use to those of the configuration and the records.
    fn apply(&self) {
        let configured = self.configured.lock();
        let mut wanted = configured.clone();
        let mut logged = self.logged.lock();
        let mut unusable = BTreeSet::new();
        let records = self.engine.accounts.all();
        for (record, bytes) in records.into_iter().filter(|(record, _)| !record.starts_with(PREFIX)) {
            let read = named(&record).zip(Recorded::read(&bytes));
            let problem = match read {
                None => Some("another version wrote it, or it is damaged"),
                Some(((tenant, id), _)) if configured.contains_key(&(tenant.to_owned(), id.to_owned())) => {
                    Some("the configuration has an account of this name")
                }
                Some(((tenant, id), recorded)) => {
                    let account = recorded.account(tenant, id, self.seal.as_ref());
                    let problem = account.is_none().then_some(
                        "its password does not open: set the relay's `secret_env` or `secret_file` to the secret that it was sealed with, or set the password again",
                    );
                    wanted.extend(account.map(|account| ((tenant.to_owned(), id.to_owned()), account)));
                    problem
                }
            };
            if let Some(why) = problem {
                if !logged.contains(&record) {
                    tracing::warn!(
                        component = "relay",
                        account = record,
                        why,
                        "the record of an account is not used"
                    );
                }
                unusable.insert(record);
            }
        }
        *logged = unusable;
        drop((configured, logged));
        self.replace(wanted);
    }

    fn replace(&self, mut wanted: BTreeMap<Name, Account>) {
        let mut tenants = BTreeSet::new();
        for known in self.accounts.all() {
            match wanted.remove(&(known.tenant.clone(), known.id.clone())) {
                Some(same) if same == *known => {}
                Some(other) => {
                    self.accounts.put(other);
                    tenants.insert(known.tenant.clone());
                }
                None => drop(self.accounts.remove(&known.tenant, &known.id)),
            }
        }
        for account in wanted.into_values() {
            tenants.insert(account.tenant.clone());
            self.accounts.put(account);
        }
        tenants.iter().for_each(|tenant| self.sender.reconsider(tenant));
    }

    /// The accounts in the order of tenant and id, after one of them, at most `most`. If `tenant` is given,
    /// only the accounts of that tenant.
    pub fn list(&self, tenant: Option<&str>, after: Option<(&str, &str)>, most: usize) -> Vec<AccountView> {
        let mut names: BTreeSet<Name> = self.configured.lock().keys().cloned().collect();
        let records = self.engine.accounts.all();
        let recorded = records.iter().filter_map(|(record, _)| named(record));
        names.extend(recorded.map(|(tenant, id)| (tenant.to_owned(), id.to_owned())));
        let wanted = |(own, id): &&Name| {
            tenant.is_none_or(|tenant| tenant == own) && after.is_none_or(|after| (&**own, &**id) > after)
        };
        // A record that cannot be read does not count toward the page.
        names.iter().filter(wanted).filter_map(|(tenant, id)| self.view(tenant, id)).take(most).collect()
    }

    /// One account.
    pub fn view(&self, tenant: &str, id: &str) -> Option<AccountView> {
        let name = (tenant.to_owned(), id.to_owned());
        let configured = self.configured.lock().get(&name).cloned();
        if let Some(account) = configured {
            return Some(self.shown(&account, Source::Configuration));
        }
        let recorded = Recorded::read(&self.engine.accounts.at(&record(tenant, id))?)?;
        if let Some(account) = recorded.account(tenant, id, self.seal.as_ref()) {
            return Some(AccountView { limits: recorded.limits, ..self.shown(&account, Source::Api) });
        }
        Some(AccountView {
            tenant: tenant.to_owned(),
            id: id.to_owned(),
            host: recorded.host,
            port: recorded.port,
            tls: recorded.tls,
            user: recorded.login.map(|login| login.user),
            limits: recorded.limits,
            on_limit: recorded.on_limit,
            priority: recorded.priority,
            source: Source::Api,
            paused: None,
            held: self.accounts.is_held(tenant, id),
            usable: false,
        })
    }

    fn shown(&self, account: &Account, source: Source) -> AccountView {
        let destination = &account.destination;
        AccountView {
            tenant: account.tenant.clone(),
            id: account.id.clone(),
            host: destination.host.clone(),
            port: destination.port,
            tls: destination.tls,
            user: destination.login.as_ref().map(|login| login.user.clone()),
            limits: self.sender.limits().of_account(&account.tenant, &account.id),
            on_limit: account.on_limit,
            priority: account.priority,
            source,
            paused: self.sender.paused(account),
            held: self.accounts.is_held(&account.tenant, &account.id),
            usable: true,
        }
    }

    /// Writes an account and its limits. All nodes use it from now on.
    pub async fn put(&self, draft: AccountDraft, existing: Existing) -> Result<Put, AccountFault> {
        draft.check()?;
        self.refuse_configured(&draft.tenant, &draft.id)?;
        let _alone = self.changing.lock().await;
        self.engine.accounts.refresh().await?;
        let mut limits = LimitsOf::Record;
        let written = self.write(&draft, existing, &mut limits).await;
        match (&written, limits) {
            // If the draft was not written, its limits must not apply to another node's account.
            (Err(AccountFault::Store(_)), LimitsOf::Draft) => {
                let _ = self.restore_limits(&draft.tenant, &draft.id).await;
            }
            (Err(_), LimitsOf::Draft) => self.restore_limits(&draft.tenant, &draft.id).await?,
            _ => {}
        }
        written
    }

    /// Writes the limits and the record. Sets whose limits are in force afterwards.
    async fn write(
        &self,
        draft: &AccountDraft,
        existing: Existing,
        limits: &mut LimitsOf,
    ) -> Result<Put, AccountFault> {
        let (record, name) = (record(&draft.tenant, &draft.id), draft.name());
        for _ in 0..TRIES {
            let before = self.engine.accounts.at(&record);
            match (existing, &before) {
                (Existing::Refuse, Some(_)) => return Err(AccountFault::Exists { name }),
                (Existing::Require, None) => return Err(AccountFault::Unknown { name }),
                _ => {}
            }
            let after = self.recorded(draft, before.as_deref().and_then(Recorded::read))?;
            // The limits are written before the account is used, and never after.
            *limits = LimitsOf::Draft;
            self.set_limits(&draft.tenant, &draft.id, after.limits.clone()).await?;
            let is_new = before.is_none();
            if self.engine.accounts.swap(&record, before, Some(after.write())).await? {
                *limits = LimitsOf::Record;
                self.apply();
                // The limits may have changed although the account has not.
                self.sender.reconsider(&draft.tenant);
                return Ok(if is_new { Put::Created } else { Put::Replaced });
            }
        }
        Err(AccountFault::Contended { name })
    }

    /// Removes an account and its limits. Its messages wait for another account.
    pub async fn remove(&self, tenant: &str, id: &str) -> Result<(), AccountFault> {
        let (record, name) = (record(tenant, id), format!("{tenant}/{id}"));
        let _alone = self.changing.lock().await;
        self.engine.accounts.refresh().await?;
        for _ in 0..TRIES {
            let Some(before) = self.engine.accounts.at(&record) else {
                self.refuse_configured(tenant, id)?;
                return Err(AccountFault::Unknown { name });
            };
            if self.engine.accounts.swap(&record, Some(before), None).await? {
                self.apply();
                return self.reset_limits(tenant, id).await;
            }
        }
        Err(AccountFault::Contended { name })
    }

    fn refuse_configured(&self, tenant: &str, id: &str) -> Result<(), AccountFault> {
        match self.configured.lock().contains_key(&(tenant.to_owned(), id.to_owned())) {
            true => Err(AccountFault::Configured { name: format!("{tenant}/{id}") }),
            false => Ok(()),
        }
    }

    /// The new record of an account.
    fn recorded(&self, draft: &AccountDraft, before: Option<Recorded>) -> Result<Recorded, AccountFault> {
        let login = match (&draft.user, &draft.password) {
            (None, _) => None,
            (Some(user), Some(Secret(password))) => {
                let key = self.seal.as_ref().ok_or(AccountFault::NoKey)?;
                let password = seal(key, &draft.tenant, &draft.id, password);
                Some(SealedLogin { user: user.clone(), password })
            }
            (Some(user), None) => Some(kept(draft, user, before)?),
        };
        Ok(Recorded {
            host: draft.host.clone(),
            port: draft.port,
            tls: draft.tls,
            login,
            limits: draft.limits.clone(),
            on_limit: draft.on_limit,
            priority: draft.priority,
        })
    }

    async fn set_limits(&self, tenant: &str, id: &str, limits: Vec<Limit>) -> Result<(), AccountFault> {
        let unlimited = limits.is_empty();
        match self.sender.limits().set_account(tenant, id, limits).await {
            // Without the rule every account is unlimited.
            Err(ChangeFault::Unknown { .. }) if unlimited => Ok(()),
            Err(ChangeFault::Unknown { .. }) => Err(AccountFault::NoRule),
            Err(ChangeFault::Store(error)) => Err(error.into()),
            Err(fault) => Err(AccountFault::Limits(fault)),
            Ok(()) => Ok(()),
        }
    }

    async fn reset_limits(&self, tenant: &str, id: &str) -> Result<(), AccountFault> {
        match self.sender.limits().reset_account(tenant, id).await {
            Ok(()) | Err(ChangeFault::Unknown { .. }) => Ok(()),
            Err(ChangeFault::Store(error)) => Err(error.into()),
            Err(fault) => Err(AccountFault::Limits(fault)),
        }
    }

    /// Sets the limits of the record again, after another caller changed them.
    async fn restore_limits(&self, tenant: &str, id: &str) -> Result<(), AccountFault> {
        self.engine.accounts.refresh().await?;
        match self.engine.accounts.at(&record(tenant, id)).as_deref().and_then(Recorded::read) {
            Some(recorded) => self.set_limits(tenant, id, recorded.limits).await,
            None => self.reset_limits(tenant, id).await,
        }
    }
}

/// The login that an account keeps. It is kept only for the same server: another one would learn the password.
fn kept(draft: &AccountDraft, user: &str, before: Option<Recorded>) -> Result<SealedLogin, AccountFault> {
    let same =
        |before: &Recorded| (&before.host, before.port, before.tls) == (&draft.host, draft.port, draft.tls);
    let login = before.filter(same).and_then(|before| before.login).filter(|login| login.user == user);
    login.ok_or_else(|| AccountFault::Invalid {
        reason: "`user` needs `password`, unless host, port, TLS and user stay as they are".to_owned(),
    })
}

/// The name of an account's record.
fn record(tenant: &str, id: &str) -> String {
    format!("account/{tenant}/{id}")
}

/// Tenant and id of a record.
fn named(record: &str) -> Option<(&str, &str)> {
    let (tenant, id) = record.strip_prefix("account/")?.split_once('/')?;
    (check_name("tenant", tenant).is_ok() && check_name("id", id).is_ok()).then_some((tenant, id))
}

impl fmt::Debug for AccountRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountRegistry").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}
