//! What the server's answers say about guards.

use serde::Deserialize;

/// The guards there are.
#[derive(Clone, Debug, Deserialize)]
pub struct Guards {
    /// Each of them.
    pub guards: Vec<Guard>,
}

/// A guard.
#[derive(Clone, Debug, Deserialize)]
pub struct Guard {
    /// Its name.
    pub name: String,
    /// The policy that logins pass.
    pub policy: String,
    /// The fields that a login brings.
    pub fields: Vec<String>,
    /// What a success clears.
    pub clears: Vec<String>,
    /// How many failed.
    pub failures: u64,
    /// How many locks there were.
    pub lockouts: u64,
}

/// A login that has begun, or was refused.
#[derive(Clone, Debug, Deserialize)]
pub struct Begun {
    /// Whether it may be tried.
    pub allowed: bool,
    /// How it was reached: `barred` by the blocklist, or otherwise.
    pub origin: Option<String>,
    /// The rule that is named.
    pub denied_by: Option<String>,
    /// What it is finished with.
    pub ticket: Option<String>,
    /// What it has to do.
    #[serde(flatten)]
    pub advice: Advice,
    /// What the next one has to do if it fails.
    pub if_failed: Option<Advice>,
}

/// What a login has to do.
#[derive(Clone, Debug, Deserialize)]
pub struct Advice {
    /// How long to wait.
    pub delay_ms: u64,
    /// Whether it is to come with a CAPTCHA.
    pub captcha: bool,
    /// When the lock ends that keeps it out.
    pub locked_until: Option<String>,
}

/// What came of finishing a login.
#[derive(Clone, Debug, Deserialize)]
pub struct Finished {
    /// The guard that it began at.
    pub guard: String,
    /// `now`, `already` or `too_old`.
    pub finished: String,
}

/// Who is locked.
#[derive(Clone, Debug, Deserialize)]
pub struct Locks {
    /// In the order of rules.
    pub locks: Vec<Lock>,
    /// Behind what there are more.
    pub next: Option<String>,
}

/// Somebody who is locked.
#[derive(Clone, Debug, Deserialize)]
pub struct Lock {
    /// By which rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How many failures are remembered.
    pub failures: u64,
    /// Until when.
    pub locked_until: String,
}

/// How somebody stands at a guard.
#[derive(Clone, Debug, Deserialize)]
pub struct Standings {
    /// On each ladder.
    pub ladders: Vec<Standing>,
}

/// How somebody stands on one ladder.
#[derive(Clone, Debug, Deserialize)]
pub struct Standing {
    /// Of which rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Whether it only counts and reports.
    pub observed: bool,
    /// How many failures are remembered.
    pub failures: u64,
    /// What the next login has to do.
    #[serde(flatten)]
    pub advice: Advice,
}

/// Whose failures were forgotten.
#[derive(Clone, Debug, Deserialize)]
pub struct Unlocked {
    /// By rule and key.
    pub unlocked: Vec<UnlockedKey>,
}

/// A key whose failures were forgotten.
#[derive(Clone, Debug, Deserialize)]
pub struct UnlockedKey {
    /// Of which rule.
    pub rule: String,
    /// The key.
    pub key: String,
}
