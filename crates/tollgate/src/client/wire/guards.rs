//! The server's responses about guards.

use serde::Deserialize;

/// All guards.
#[derive(Clone, Debug, Deserialize)]
pub struct Guards {
    /// The guards.
    pub guards: Vec<Guard>,
}

/// A guard.
#[derive(Clone, Debug, Deserialize)]
pub struct Guard {
    /// Its name.
    pub name: String,
    /// The policy of the logins.
    pub policy: String,
    /// The fields of a login.
    pub fields: Vec<String>,
    /// What a success clears.
    pub clears: Vec<String>,
    /// How many logins failed, on the node that answers, since it started.
    pub failures: u64,
    /// How many locks that node reported since it started.
    pub lockouts: u64,
}

/// A login that was begun or refused.
#[derive(Clone, Debug, Deserialize)]
pub struct Begun {
    /// Whether it is allowed.
    pub allowed: bool,
    /// How it was reached: `blocked` by the blocklist, or otherwise.
    pub origin: Option<String>,
    /// The rule that denied.
    pub denied_by: Option<String>,
    /// The ticket to finish it with.
    pub ticket: Option<String>,
    /// What the login must do.
    #[serde(flatten)]
    pub advice: Advice,
    /// What the next login must do if this one fails.
    pub if_failed: Option<Advice>,
}

/// What a login must do.
#[derive(Clone, Debug, Deserialize)]
pub struct Advice {
    /// Milliseconds to wait.
    pub delay_ms: u64,
    /// Whether it must include a CAPTCHA.
    pub captcha: bool,
    /// When the lock ends, if it is locked.
    pub locked_until: Option<String>,
}

/// The result of finishing a login.
#[derive(Clone, Debug, Deserialize)]
pub struct Finished {
    /// The guard of the login.
    pub guard: String,
    /// `now`, `already` or `too_old`.
    pub finished: String,
}

/// A page of locks.
#[derive(Clone, Debug, Deserialize)]
pub struct Locks {
    /// The locks, by the name of their rule.
    pub locks: Vec<Lock>,
    /// The value of `after` for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// A lock.
#[derive(Clone, Debug, Deserialize)]
pub struct Lock {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How many failures are counted.
    pub failures: u64,
    /// When it ends.
    pub locked_until: String,
}

/// The state of a user at a guard.
#[derive(Clone, Debug, Deserialize)]
pub struct Standings {
    /// One for each ladder.
    pub ladders: Vec<Standing>,
}

/// The state of a user on one ladder.
#[derive(Clone, Debug, Deserialize)]
pub struct Standing {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Whether it only counts and reports.
    pub observed: bool,
    /// How many failures are counted.
    pub failures: u64,
    /// What the next login must do.
    #[serde(flatten)]
    pub advice: Advice,
}

/// The keys whose failures were cleared.
#[derive(Clone, Debug, Deserialize)]
pub struct Unlocked {
    /// All of them.
    pub unlocked: Vec<UnlockedKey>,
}

/// A key whose failures were cleared.
#[derive(Clone, Debug, Deserialize)]
pub struct UnlockedKey {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
}
