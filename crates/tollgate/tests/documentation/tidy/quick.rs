//! `./test --quick` starts no other program: it leaves out the directories `other_programs`, and only tests in them may
//! start one.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};

use super::{files, root};

/// The tests that `./test --quick` runs.
const QUICK: [&str; 9] = [
    "core/tests",
    "doors/tests",
    "engine/tests",
    "gateway/tests",
    "layer/tests",
    "store/tests",
    "tollgate/tests/configuration",
    "tollgate/tests/program",
    "web/tests",
];
/// Servers of the testbed that are programs of their own.
const SERVERS: [&str; 13] = [
    "Cluster",
    "Flavour",
    "Front",
    "Pgbouncer",
    "Postfix",
    "Postgres",
    "Sentinel",
    "Server",
    "Sink",
    "Sunk",
    "Wire",
    "redis_server",
    "valkey_server",
];
/// Programs that every machine with a shell has.
const EVERYWHERE: [&str; 2] = ["sh", "id"];

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Why a test file starts another program, if it does.
fn other_program(text: &str) -> Option<String> {
    let uses =
        text.split("tollgate_testbed::").skip(1).map(|rest| rest.split([';', '(']).next().unwrap_or(rest));
    let server = uses.flat_map(words).find(|word| SERVERS.contains(word));
    let mut programs = text.split("Command::new(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let program = programs.find(|program| !EVERYWHERE.contains(program));
    server.or(program).map(ToOwned::to_owned)
}

/// The modules that several tests of the program share and that start other programs.
fn shared_with_servers() -> Vec<String> {
    let support = root().join("crates/tollgate/tests/support");
    let directories = fs::read_dir(support).unwrap().map(|entry| entry.unwrap().path());
    let starts = |directory: &PathBuf| {
        let own = files(".rs").into_iter().filter(|path| path.starts_with(directory));
        own.into_iter().any(|path| other_program(&fs::read_to_string(path).unwrap()).is_some())
    };
    directories.filter(starts).map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn the_quick_tests_start_no_other_program() {
    let shared = shared_with_servers();
    assert!(shared.iter().any(|name| name == "market"), "{shared:?}");
    let is_quick =
        |path: &Path| QUICK.iter().any(|tests| path.starts_with(root().join("crates").join(tests)));
    let left_out = |path: &Path| path.components().any(|part| part.as_os_str() == "other_programs");
    let mut quick = 0;
    for path in files(".rs").into_iter().filter(|path| is_quick(path) && !left_out(path)) {
        let text = fs::read_to_string(&path).unwrap();
        quick += 1;
        let place = path.display();
        let program = other_program(&text);
        // What several tests share in a crate may be beside them; the tests that use it may not.
        let is_shared =
            path.ends_with("mod.rs") || path.parent().is_some_and(|parent| parent.ends_with("proxied"));
        assert!(program.is_none() || is_shared, "{place} starts {program:?}: move it to `other_programs`");
        for name in &shared {
            let uses = text.contains(&format!("crate::{name}::")) && !path.ends_with("main.rs");
            assert!(!uses, "{place} uses `{name}`, which starts other programs: move it to `other_programs`");
        }
    }
    assert!(quick > 200, "only {quick} files were found");
}
