//! Hides values that may be secrets: a token may have been pasted where its name, its file or a role belongs.

use std::path::Path as FilePath;

use super::problem::shown;
use super::tree::Path;

/// The endings of settings that say where a secret is.
const ENDINGS: [&str; 5] = ["_env", "_file", "_sha256", "_secret", "_hash"];

/// Whether the value or a key at this path may be a secret.
pub(super) fn hides(path: &Path) -> bool {
    let keys: Vec<&str> = path.keys().collect();
    matches!(
        *keys,
        ["keys", ..]
            | ["clients", "api_keys" | "tokens", ..]
            | ["relay", "users" | "accounts", ..]
            | ["databases"]
            | ["databases", _]
            | ["guards", _, "webhook", ..]
    ) || keys.last().is_some_and(|key| {
        ENDINGS.iter().any(|end| key.ends_with(end)) || matches!(*key, "token" | "secret" | "password")
    })
}

/// The environment variable of this name. The name is shown only if it is clearly one.
pub(super) fn variable(name: &str) -> String {
    let capitals = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    if capitals && name.len() <= 64 && (name.len() < 16 || name.contains('_')) {
        format!("the environment variable `{name}`")
    } else {
        "the environment variable that is named here".to_owned()
    }
}

/// The file of this name. The name is shown only if it is clearly one.
pub(super) fn file(name: &str) -> String {
    let parent = FilePath::new(name).parent().filter(|parent| parent.parent().is_some());
    let plainly = ["./", "../"].iter().any(|start| name.starts_with(start))
        || (name.starts_with('/') && parent.is_some_and(FilePath::is_dir));
    if plainly { format!("the file `{}`", shown(name)) } else { "the file that is named here".to_owned() }
}
