//! Warns of files with secrets that every user of the machine can read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path as FilePath;

use super::hush;
use super::problem::Findings;
use super::tree::{Node, Path, Value};

/// The settings that name a file with a secret, wherever they stand.
const SECRETS: [&str; 6] =
    ["token_file", "password_file", "key_secret_file", "secret_file", "url_file", "tls_key"];

/// The right of other users to read a file, or to reach what is in a directory.
const OTHERS_READ: u32 = 0o004;
const OTHERS_ENTER: u32 = 0o001;

/// Warns of each file with a secret that every user of the machine can read.
pub(super) fn find(tree: &Node, findings: &mut Findings<'_>) {
    walk(tree, &Path::default(), false, findings);
}

fn walk(node: &Node, path: &Path, in_tls: bool, findings: &mut Findings<'_>) {
    match &node.value {
        Value::List(nodes) => {
            nodes.iter().enumerate().for_each(|(at, node)| walk(node, &path.index(at), in_tls, findings));
        }
        Value::Table(entries) => {
            for entry in entries {
                let at = path.key(&entry.key);
                match &entry.node.value {
                    Value::Text(file) if holds_secret(&entry.key, in_tls) => warn(file, &at, findings),
                    _ => walk(&entry.node, &at, entry.key == "tls", findings),
                }
            }
        }
        _ => {}
    }
}

/// Whether the setting names a file with a secret. The key of a certificate is `key` in a table `tls`.
fn holds_secret(setting: &str, in_tls: bool) -> bool {
    SECRETS.contains(&setting) || (in_tls && setting == "key")
}

fn warn(file: &str, path: &Path, findings: &mut Findings<'_>) {
    if is_open_to_others(FilePath::new(file)) {
        let message = format!("every user of this machine can read {}", hush::file(file));
        findings.warn(path, &message, "take the right from others, as with `chmod o-rwx FILE`");
    }
}

/// Whether users other than the owner and the group can reach and read the file.
fn is_open_to_others(file: &FilePath) -> bool {
    // A path with links is followed, so that the directories that really lead to the file count.
    let Ok(file) = file.canonicalize() else { return false };
    let has = |path: &FilePath, right: u32| {
        path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & right != 0)
    };
    has(&file, OTHERS_READ) && file.ancestors().skip(1).all(|directory| has(directory, OTHERS_ENTER))
}
