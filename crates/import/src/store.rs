//! The address of a store on a server, without its password.

use tollgate_tree::Place;

use crate::draft::scalar;
use crate::work::Work;

/// An address, and the settings that belong to it.
pub(crate) struct Address {
    url: String,
    user: Option<String>,
    has_password: bool,
}

impl Address {
    /// Splits the user and the password off.
    pub(crate) fn of(url: &str) -> Self {
        let bare = Self { url: url.to_owned(), user: None, has_password: false };
        let Some((scheme, rest)) = url.split_once("://") else { return bare };
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let Some((login, host)) = authority.rsplit_once('@') else { return bare };
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let tail = &rest[authority.len()..];
        Self {
            url: format!("{scheme}://{host}{tail}"),
            user: Some(user.to_owned()).filter(|user| !user.is_empty()),
            has_password: !password.is_empty(),
        }
    }

    /// The address without user and password, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.url
    }

    /// Sets the store of the configuration. The password is expected in a variable.
    pub(crate) fn write(&self, key_prefix: Option<&str>, variable: &str, place: &Place, work: &mut Work<'_>) {
        let postgres = self.url.starts_with("postgres");
        let kind = if postgres { "postgres" } else { "redis" };
        let mut settings = vec![format!("{kind}: {}", scalar(&self.url))];
        let key_prefix = key_prefix.filter(|_| !postgres);
        if let Some(prefix) = key_prefix.map(|prefix| prefix.trim_end_matches(':')).filter(|p| !p.is_empty())
        {
            settings.push(format!("key_prefix: {}", scalar(prefix)));
        }
        if let Some(user) = &self.user {
            settings.push(format!("user: {}", scalar(user)));
        }
        if self.has_password {
            settings.push(format!("password_env: {variable}"));
            work.draft.variables.push(variable.to_owned());
            let message = format!(
                "the password of the store is not copied: put it into the environment variable `{variable}`"
            );
            work.asks(place, message);
        }
        work.draft.store = Some(format!("{{ {} }}", settings.join(", ")));
    }
}

/// The prefix of keys that the files name.
fn prefix_of(store: &str) -> Option<&str> {
    let (_, rest) = store.split_once("key_prefix: ")?;
    rest.split([',', ' ']).next().map(|prefix| prefix.trim_matches('"'))
}

/// Sets the store that the operator names, instead of that of the files.
pub(crate) fn answered(place: &Place, work: &mut Work<'_>) {
    let Some(address) = work.answered_store() else { return };
    let before = work.draft.store.take().unwrap_or_default();
    work.draft.variables.retain(|variable| !before.contains(variable.as_str()));
    if address.contains("://") {
        let prefix = prefix_of(&before).map(ToOwned::to_owned);
        Address::of(address).write(prefix.as_deref(), "STORE_PASSWORD", place, work);
    } else {
        work.draft.store = Some(scalar(address));
    }
}

/// Sets a store on Redis whose address the files may not have.
pub(crate) fn redis(
    found: Option<(String, &Place)>,
    key_prefix: Option<&str>,
    place: &Place,
    work: &mut Work<'_>,
) {
    const ASSUMED: &str = "redis://localhost:6379";
    match found {
        Some((url, place)) => {
            let address = Address::of(&url);
            work.exact(place, format!("the store is {}", address.shown()));
            address.write(key_prefix, "REDIS_PASSWORD", place, work);
        }
        None => {
            if work.answered_store().is_none() {
                let message = format!(
                    "the file does not have the address of Redis; assumed `{ASSUMED}`. Answer with `--store {ASSUMED}`, or another store"
                );
                work.asks(place, message);
            }
            Address::of(ASSUMED).write(key_prefix, "REDIS_PASSWORD", place, work);
        }
    }
}
