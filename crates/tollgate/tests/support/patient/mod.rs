//! Runs `tollgate doctor` on a store.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A store that the doctor inspects.
pub struct Patient {
    pub directory: TempDir,
    store: String,
}

impl Patient {
    /// The servers at this address, with long time-outs.
    pub fn at(url: &str) -> Self {
        Self::of(&format!("{{ redis: '{url}', command_timeout: 10s, connect_timeout: 10s }}"))
    }

    /// The servers at this address, some of which do not answer.
    pub fn silent(url: &str) -> Self {
        Self::of(&format!("{{ redis: '{url}', command_timeout: 2s, connect_timeout: 10s }}"))
    }

    /// A store with these settings, beside the starter's rules.
    pub fn of(store: &str) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), store: store.to_owned() }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("doctor")
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("TOLLGATE__STORE", &self.store)
            .output()
            .expect("the program starts")
    }

    /// The output and the exit code.
    pub fn words(&self) -> (String, i32) {
        let output = self.run(&[]);
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains('\x1b'), "there are no colours where no terminal is: {said}");
        (said, output.status.code().unwrap())
    }

    /// The output as JSON.
    pub fn json(&self) -> Value {
        let output = self.run(&["--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}
