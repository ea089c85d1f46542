//! The users who may log in. Of their passwords, only hashes are stored.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use data_encoding::BASE64;
use ring::pbkdf2;

use crate::session::address::normal_domain;
use crate::session::{Identity, NULL_SENDER};

#[derive(Clone, Debug)]
pub struct User {
    /// The name for logging in, by which rules count the user.
    pub name: Arc<str>,
    /// The tenant that its mail belongs to.
    pub tenant: Arc<str>,
    /// The domains of its senders, and [`NULL_SENDER`] if it may use that; any if the list is empty.
    pub senders: Vec<String>,
    pub password: PasswordHash,
}

/// All users.
#[derive(Debug)]
pub struct Users {
    by_name: HashMap<Arc<str>, (Identity, PasswordHash)>,
    /// The hash that an unknown user's password is compared with, so that the check takes as long.
    decoy: PasswordHash,
}

/// A password as PBKDF2 (HMAC-SHA-256) hashed it.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    rounds: NonZeroU32,
    salt: Vec<u8>,
    hash: [u8; 32],
}

/// The reason why these users are invalid. The fault of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadUsers {
    /// Two have the same name.
    Twice { name: Arc<str> },
    /// A sender domain of a user is not a domain.
    NotADomain {
        /// The user.
        name: Arc<str>,
        /// The text that is not a domain.
        domain: String,
    },
}

/// The prefix of a hash in text form.
const PREFIX: &str = "pbkdf2-sha256";
/// The rounds for passwords that the configuration has in clear text. Their hashes stay in this process.
const ROUNDS: NonZeroU32 = NonZeroU32::new(4_096).expect("it is not zero");
/// The rounds of hashes that are stored in a file, as OWASP recommends for PBKDF2 with HMAC-SHA-256.
const ROUNDS_FOR_FILE: NonZeroU32 = NonZeroU32::new(600_000).expect("it is not zero");
/// The most rounds of a hash. More would keep a processor busy for seconds.
const MOST_ROUNDS: u32 = 10_000_000;

impl Users {
    /// These users.
    pub fn new(users: Vec<User>) -> Result<Self, BadUsers> {
        let mut by_name = HashMap::with_capacity(users.len());
        // The decoy takes as long as the slowest hash.
        let rounds = users.iter().map(|user| user.password.rounds).max().unwrap_or(ROUNDS);
        for User { name, tenant, senders, password } in users {
            let normal = |domain: &String| {
                if domain == NULL_SENDER {
                    return Ok(domain.clone());
                }
                let bad = || BadUsers::NotADomain { name: Arc::clone(&name), domain: domain.clone() };
                normal_domain(domain).ok_or_else(bad)
            };
            let senders = senders.iter().map(normal).collect::<Result<Vec<_>, _>>()?;
            let identity =
                Identity { user: Some(Arc::clone(&name)), api_key: None, tenant, senders: senders.into() };
            if by_name.insert(Arc::clone(&name), (identity, password)).is_some() {
                return Err(BadUsers::Twice { name });
            }
        }
        Ok(Self { by_name, decoy: PasswordHash { rounds, salt: vec![0; 16], hash: [0; 32] } })
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The tenants that their mail belongs to, each as often as it has users.
    pub fn tenants(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().map(|(identity, _)| &*identity.tenant)
    }

    /// The identity of the user with this name and password. It takes as long for an unknown user as for a
    /// known one, and may be slow: call it on a thread for blocking work.
    pub fn identify(&self, name: &str, password: &str) -> Option<Identity> {
        match self.by_name.get(name) {
            Some((identity, hash)) => hash.matches(password).then(|| identity.clone()),
            None => {
                self.decoy.matches(password);
                None
            }
        }
    }
}

impl PasswordHash {
    /// The fewest characters of a password. Shorter ones can be guessed.
    pub const LEAST_CHARACTERS: usize = 8;

    /// Hashes a password that this process has in clear.
    ///
    /// # Panics
    ///
    /// If the system gives no random numbers.
    pub fn of(password: &str) -> Self {
        Self::after(ROUNDS, password)
    }

    /// Hashes a password for a file, which others may read one day.
    ///
    /// # Panics
    ///
    /// If the system gives no random numbers.
    pub fn for_file(password: &str) -> Self {
        Self::after(ROUNDS_FOR_FILE, password)
    }

    fn after(rounds: NonZeroU32, password: &str) -> Self {
        let mut salt = vec![0; 16];
        getrandom::fill(&mut salt).expect("the system gives random numbers");
        let mut hash = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut hash);
        Self { rounds, salt, hash }
    }

    /// Parses a hash of the form `pbkdf2-sha256$ROUNDS$SALT$HASH`, with salt and hash in base64.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('$');
        let (PREFIX, rounds, salt, hash, None) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next())
        else {
            return None;
        };
        let rounds = rounds.parse().ok().filter(|rounds: &NonZeroU32| rounds.get() <= MOST_ROUNDS)?;
        let hash = BASE64.decode(hash.as_bytes()).ok()?.try_into().ok()?;
        Some(Self { rounds, salt: BASE64.decode(salt.as_bytes()).ok()?, hash })
    }

    /// The text form that [`PasswordHash::read`] parses, for the configuration.
    pub fn written(&self) -> String {
        let Self { rounds, salt, hash } = self;
        format!("{PREFIX}${rounds}${}${}", BASE64.encode(salt), BASE64.encode(hash))
    }

    fn matches(&self, password: &str) -> bool {
        let Self { rounds, salt, hash } = self;
        // Compares in constant time.
        pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA256, *rounds, salt, password.as_bytes(), hash).is_ok()
    }
}

impl Default for Users {
    fn default() -> Self {
        Self::new(Vec::new()).expect("nothing is wrong with no users")
    }
}

/// Shows nothing of the hash.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

impl fmt::Display for BadUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { name } => write!(f, "there are two users with the name `{name}`"),
            Self::NotADomain { name, domain } => {
                write!(f, "user `{name}`: the sender domain `{domain}` is not a domain")
            }
        }
    }
}

impl std::error::Error for BadUsers {}
