//! Every target has a program for libFuzzer and a corpus, and no other is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tollgate_fuzz_targets::ALL;

fn fuzz(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(part)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names in a directory.
fn listed(part: &str) -> BTreeSet<String> {
    let files = std::fs::read_dir(fuzz(part)).expect("a directory");
    files.map(|file| file.expect("a file").file_name().into_string().expect("a plain name")).collect()
}

fn targets() -> BTreeSet<String> {
    let names: BTreeSet<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names.len(), ALL.len(), "two targets have the same name");
    names
}

#[test]
fn every_target_has_a_program_that_runs_it() {
    let programs = targets().into_iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(listed("fuzz_targets"), programs);
    for name in targets() {
        let program = text(&fuzz("fuzz_targets").join(format!("{name}.rs")));
        let call = format!("fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::{name}(bytes));");
        assert!(program.contains(&call), "{name}.rs does not run it");
    }
}

#[test]
fn every_target_is_in_the_manifest() {
    let manifest = text(&fuzz("Cargo.toml"));
    let programs: BTreeSet<&str> = manifest.split("[[bin]]").skip(1).map(str::trim).collect();
    let expected = targets();
    let expected: BTreeSet<String> = expected
        .iter()
        .map(|name| {
            format!(
                "name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\ntest = false\ndoc = false\nbench = false"
            )
        })
        .collect();
    assert_eq!(programs, expected.iter().map(String::as_str).collect());
}

#[test]
fn every_target_has_a_corpus() {
    assert_eq!(listed("corpus"), targets());
}
