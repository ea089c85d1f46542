//! Every example and every imported sample: it passes `check-config --strict` on a small machine, and the request that
//! `serve` prints for it works.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{Home, text};
use serde_json::Value;

const TOKEN: &str = "a-secret-that-is-long-enough-to-verify-tokens";
/// The memory of a small machine.
const SMALL: u64 = 8 << 30;

/// The files of a directory of examples.
fn files(below: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(below);
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    found.sort();
    found
}

/// The environment variables from which a configuration takes secrets.
fn variables(config: &str) -> BTreeSet<String> {
    let words = config.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let pairs = words.windows(2).filter(|pair| pair[0].ends_with("_env"));
    pairs.map(|pair| pair[1].to_owned()).collect()
}

/// The same configuration on free ports.
fn on_free_ports(config: &str) -> String {
    let free = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let listens = line.trim_start().starts_with("listen:") || line.trim_start().starts_with("http = ");
        for word in words.iter_mut().filter(|word| listens && word.contains(':') && word.contains('.')) {
            let (address, rest) = word.rsplit_once(':').unwrap();
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            *word = format!("{address}:0{after}");
        }
        words.join(" ")
    };
    config.lines().map(free).collect::<Vec<_>>().join("\n") + "\n"
}

/// A home with a configuration, and where it is.
fn home(name: &str, config: &str) -> Home {
    let mut home = Home::empty();
    std::fs::write(home.path(name), config).unwrap();
    for variable in variables(config) {
        home = home.variable(&variable, TOKEN);
    }
    home
}

/// Every configuration: its name, its file's name, and its text.
fn all() -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for path in files("") {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        found.push((name.clone(), name, std::fs::read_to_string(path).unwrap()));
    }
    for path in files("import") {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = command.arg("import").arg(&path).env_clear().output().unwrap();
        assert!(output.status.success(), "{path:?}: {}", text(&output.stderr));
        let name = format!("imported {}", path.file_name().unwrap().to_str().unwrap());
        found.push((name, "tollgate.yaml".to_owned(), text(&output.stdout).to_owned()));
    }
    assert!(found.len() > 25, "{}", found.len());
    found
}

#[test]
fn every_example_and_every_import_is_without_warnings_and_fits_into_a_small_machine() {
    for (name, file, config) in all() {
        let home = home(&file, &config);
        let output = home.program().args(["check-config", "--strict", "--json", &file]).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(output.status.success(), "{name}: {}{:#}", text(&output.stderr), said["warnings"]);
        let need = said["memory"]["most_bytes"].as_u64().unwrap();
        assert!(need < SMALL, "{name} takes up to {need} bytes");
    }
}

#[test]
fn the_request_that_serve_prints_works_for_every_example_and_every_import() {
    for (name, file, config) in all() {
        let home = home("tollgate.yaml", &on_free_ports(&config));
        let home = home.variable("TOLLGATE__STORE", "memory");
        let toml = file.ends_with(".toml");
        if toml {
            std::fs::rename(home.path("tollgate.yaml"), home.path("tollgate.toml")).unwrap();
        }
        let home = if toml { home.variable("TOLLGATE_CONFIG", "tollgate.toml") } else { home };
        let mut server = home.start();
        let console = server.next_line();
        assert_eq!(console, format!("the console is at {}/", server.url()), "{name}");
        let line = server.next_line();
        let request = line.strip_prefix("try: ").unwrap_or_else(|| panic!("{name}: {line:?}"));
        let output = Command::new("sh")
            .args(["-c", &format!("TOLLGATE_TOKEN={TOKEN}; {request}")])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let answer = text(&output.stdout);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{name}: {line}: {answer}");
        assert!(answer.contains("\"allowed\":true"), "{name}: {line}: {answer}");
        server.stop();
    }
}
