//! A type name stands once in a crate, so that a reader who searches for it finds one thing.

use std::collections::BTreeMap;
use std::fs;

use super::{files, root};

/// Names that stand several times in a crate: the crate, why, and the names.
const SHARED: [(&str, &str, &[&str]); 5] = [
    (
        "relay",
        "the client and the server of SMTP each have their own side of one thing",
        &["Connection", "Login", "Reply", "Timeouts"],
    ),
    (
        "tollgate",
        "`client/` has what the API sends, and the command of that name has its arguments",
        &["Accounts", "Ban", "Bans", "Changes", "Consumers", "Holds", "Policies", "Routes", "Top"],
    ),
    (
        "tollgate",
        "`client/wire.rs` has what the API sends, and `config/` has what a file says",
        &["Route", "Rule"],
    ),
    (
        "tollgate",
        "`config/raw.rs` has what was written, and `config/` what it means",
        &["Clients", "Listen", "LogFormat", "RelayListener", "Role"],
    ),
    ("tollgate", "each command with subcommands lists them", &["Action"]),
];

/// The name of the type that a line declares outside of any block.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ").unwrap_or(line);
    let rest = match rest.strip_prefix("pub(") {
        Some(scoped) => scoped.split_once(") ")?.1,
        None => rest,
    };
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    Some(name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or(name))
}

/// The types that the sources of each crate declare, with their files.
fn declarations() -> BTreeMap<(String, String), Vec<String>> {
    let crates = root().join("crates");
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for path in files(".rs") {
        let Ok(file) = path.strip_prefix(&crates) else { continue };
        let file = file.to_str().expect("paths are UTF-8").to_owned();
        let Some((owner, inside)) = file.split_once("/src/") else { continue };
        if inside.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a file of ours");
        for name in text.lines().filter_map(declared) {
            found.entry((owner.to_owned(), name.to_owned())).or_default().push(inside.to_owned());
        }
    }
    found
}

#[test]
fn a_type_name_stands_once_in_a_crate() {
    let found = declarations();
    let allowed =
        |owner: &str, name: &str| SHARED.iter().any(|(own, _, names)| *own == owner && names.contains(&name));
    let twice = found.iter().filter(|((owner, name), files)| files.len() > 1 && !allowed(owner, name));
    let twice: Vec<String> =
        twice.map(|((owner, name), files)| format!("{owner}: `{name}` in {}", files.join(", "))).collect();
    assert!(twice.is_empty(), "rename all but one, or list it with a reason:\n{}", twice.join("\n"));
}

#[test]
fn every_listed_name_still_stands_several_times() {
    let found = declarations();
    for (owner, _, names) in SHARED {
        for name in names {
            let files = found.get(&(owner.to_owned(), (*name).to_owned())).map_or(0, Vec::len);
            assert!(files > 1, "{owner}: `{name}` stands in {files} files: remove it from the list");
        }
    }
}

#[test]
fn declarations_are_found() {
    for (line, name) in [
        ("pub struct Seal {", Some("Seal")),
        ("pub(in crate::pacer) enum Turn<T> {", Some("Turn")),
        ("type Places = Vec<u8>;", Some("Places")),
        ("    struct Inner;", None),
        ("impl Store for Gone {", None),
    ] {
        assert_eq!(declared(line), name, "{line}");
    }
}
