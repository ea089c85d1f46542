//! Tests that need a process of their own, because they measure its memory, set its log or kill it.

use std::env;
use std::process::Command;

/// Names the test that a process was started for.
const ALONE: &str = "TOLLGATE_TEST_ALONE";

/// A command that runs one test of this test program and no other. `module` is the `module_path!()` of the test.
pub fn rerun(module: &str, test: &str) -> Command {
    let program = env::current_exe().expect("a test program knows its path");
    let mut command = Command::new(program);
    command.args(["--exact", &path_of(module, test), "--nocapture"]);
    command
}

/// Whether this process runs this test alone. If it does not, another process does it now, and must pass.
pub fn alone(module: &str, test: &str) -> bool {
    let path = path_of(module, test);
    if env::var_os(ALONE).is_some_and(|alone| alone.to_str() == Some(&path)) {
        return true;
    }
    let output = rerun(module, test).env(ALONE, &path).output().expect("a test program can be started");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path} failed in a process of its own:\n{printed}");
    assert!(printed.contains("test result: ok. 1 passed"), "{path} is not the name of this test:\n{printed}");
    print!("{printed}");
    false
}

/// The name by which the test harness knows a test: without the crate.
fn path_of(module: &str, test: &str) -> String {
    module.split_once("::").map_or_else(|| test.to_owned(), |(_, rest)| format!("{rest}::{test}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_runs_in_a_process_of_its_own() {
        let outside = std::process::id();
        if super::alone(module_path!(), "a_test_runs_in_a_process_of_its_own") {
            assert_eq!(std::process::id(), outside);
            assert!(super::env::var_os(super::ALONE).is_some());
        }
    }
}
