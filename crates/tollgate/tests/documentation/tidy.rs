//! Checks the source itself: which crate may use which, how files begin, and forbidden words.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod kinds;
mod names;
mod paths;
mod quick;
mod registries;

/// Each crate, and the crates of this workspace that it may use.
const ARROWS: [(&str, &[&str]); 18] = [
    ("core", &[]),
    ("store", &["core"]),
    ("redis", &["core", "remote"]),
    ("postgres", &["core", "remote"]),
    ("engine", &["core"]),
    ("fuzzing", &["core", "engine", "gateway", "postfix", "redis", "relay", "replay", "tollgate", "web"]),
    ("web", &["core", "engine"]),
    ("doors", &["core", "engine", "relay", "web"]),
    ("gateway", &["core", "engine", "remote", "web"]),
    ("import", &["core", "tree"]),
    ("layer", &["core", "engine", "web"]),
    ("postfix", &["core", "engine"]),
    ("relay", &["core", "engine", "remote"]),
    ("remote", &[]),
    ("replay", &["core", "engine", "gateway", "store", "web"]),
    ("testbed", &[]),
    (
        "tollgate",
        &[
            "core", "doors", "engine", "gateway", "import", "postfix", "postgres", "redis", "relay",
            "remote", "replay", "store", "tree", "web",
        ],
    ),
    ("tree", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// All files of the crates and the benchmarks with this ending, without build directories.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join("crates"), root().join("bench")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.to_str().is_some_and(|path| path.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "there are files that end in {ending}");
    found
}

/// All source files except this one, which contains the searched words.
fn others() -> impl Iterator<Item = PathBuf> {
    files(".rs").into_iter().filter(|path| path.file_name() != Path::new(file!()).file_name())
}

#[test]
fn crates_use_only_what_their_arrow_allows() {
    for entry in fs::read_dir(root().join("crates")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        let arrow = ARROWS.iter().find(|(known, _)| *known == name);
        let (_, allowed) = arrow.unwrap_or_else(|| panic!("{name} has no arrow"));
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let own = manifest.split("[dev-dependencies]").next().unwrap();
        let used: BTreeSet<&str> = own
            .lines()
            .filter_map(|line| line.strip_prefix("tollgate-"))
            .map(|rest| rest.split(['.', ' ', '=']).next().unwrap())
            .collect();
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        assert!(used.is_subset(&allowed), "{name} may use {allowed:?}, and uses {used:?}");
    }
}

#[test]
fn the_core_does_without_std() {
    let lib = fs::read_to_string(root().join("crates/core/src/lib.rs")).unwrap();
    assert!(lib.contains("#![no_std]"));
    let manifest = fs::read_to_string(root().join("crates/core/Cargo.toml")).unwrap();
    for absent in ["serde", "tokio", "parking_lot", "quanta"] {
        assert!(!manifest.contains(absent), "the core does not depend on {absent}");
    }
}

#[test]
fn every_file_begins_by_saying_what_it_is_for() {
    for path in files(".rs") {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} begins with `//!`", path.display());
    }
}

#[test]
fn files_are_named_for_what_they_are() {
    for path in files(".rs") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let vague = ["utils", "util", "common", "manager", "handler", "helpers", "types", "misc"];
        assert!(!vague.contains(&name), "{} has a name that says nothing", path.display());
    }
}

#[test]
fn nothing_is_left_undone_or_switched_off() {
    for path in others() {
        let text = fs::read_to_string(&path).unwrap();
        for word in ["todo!", "unimplemented!", "dbg!", "FIXME", "XXX", "#[ignore"] {
            assert!(!text.contains(word), "{} contains {word}", path.display());
        }
        let own = path.components().any(|part| part.as_os_str() == "src");
        assert!(!own || !text.contains("unreachable!"), "{} contains unreachable!", path.display());
        let shouts = text.lines().any(|line| line.contains("TODO"));
        assert!(!shouts, "{} contains TODO", path.display());
    }
}

#[test]
fn functions_named_get_are_named_for_what_they_give() {
    for path in others() {
        let text = fs::read_to_string(&path).unwrap();
        let getter = text.lines().find(|line| line.contains("fn get_"));
        assert_eq!(getter, None, "in {}", path.display());
    }
}

#[test]
fn doors_ask_the_engine_by_its_one_entry_point() {
    for door in ["doors", "gateway", "layer", "postfix", "relay", "replay", "tollgate", "web"] {
        let source = root().join("crates").join(door).join("src");
        for path in files(".rs").into_iter().filter(|path| path.starts_with(&source)) {
            let text = fs::read_to_string(&path).unwrap();
            for below in [
                "engine.decide(",
                "engine.peek(",
                "decide_as(",
                "decide_into(",
                "acquire_with(",
                "pacer.acquire(",
            ] {
                assert!(!text.contains(below), "{} calls `{below}`: use `Pinned::admit`", path.display());
            }
        }
    }
}

#[test]
fn no_door_is_built_with_the_calls_below_the_entry_point() {
    for path in files("Cargo.toml").into_iter().filter(|path| path.starts_with(root().join("crates"))) {
        let manifest = fs::read_to_string(&path).unwrap();
        let own = manifest.split("[dev-dependencies]").next().unwrap();
        let testing =
            own.lines().find(|line| line.starts_with("tollgate-engine") && line.contains("testing"));
        assert_eq!(testing, None, "only dev-dependencies use the feature: {}", path.display());
    }
}
