//! Names that belong to other projects on PyPI and crates.io: no manifest takes one, and no text tells a user to
//! install one. `pip index versions NAME` and `cargo info NAME` tell the owner.

use std::fs;
use std::path::PathBuf;

use super::root;

/// Names of other projects on crates.io.
const FOREIGN_CRATES: [&str; 2] = ["tollgate-core", "tollgate-store"];

/// The name of another project on PyPI.
const FOREIGN_DISTRIBUTION: &str = "tollgate";

/// All files of the project with this ending, without hidden directories and what is built or downloaded.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                let skipped = name.starts_with('.') || ["target", "node_modules", "corpus"].contains(&name);
                open.extend((!skipped).then_some(path));
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "there are files that end in {ending}");
    found
}

/// The `name` of the first table that has one.
fn name(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// Whether a line tells the reader to install the foreign distribution with `pip` or a similar program.
fn installs_foreign(line: &str) -> bool {
    let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || "`'\"".contains(c)).collect();
    let after = words.iter().position(|word| ["install", "add"].contains(word)).map(|at| &words[at..]);
    let python = ["pip", "pip3", "pipx", "uv", "poetry"].iter().any(|tool| words.contains(tool));
    let project = |word: &str| {
        word.split(['=', '<', '>', '~', '!', '[', ',', '.', ';']).next() == Some(FOREIGN_DISTRIBUTION)
    };
    python && after.is_some_and(|after| after.iter().any(|word| project(word)))
}

#[test]
fn no_manifest_takes_a_name_that_belongs_to_another_project() {
    for path in files("Cargo.toml") {
        let manifest = fs::read_to_string(&path).unwrap();
        let name = name(&manifest).unwrap_or_default();
        assert!(!FOREIGN_CRATES.contains(&name), "{} is called {name}", path.display());
        for line in manifest.lines().filter(|line| line.contains("path = ")) {
            let foreign = FOREIGN_CRATES.iter().any(|foreign| line.starts_with(foreign));
            assert!(!foreign || line.contains("package = "), "{}: {line}", path.display());
        }
    }
    let python = fs::read_to_string(root().join("clients/python/pyproject.toml")).unwrap();
    assert_ne!(name(&python), Some(FOREIGN_DISTRIBUTION));
}

#[test]
fn no_text_tells_a_user_to_install_another_project() {
    for ending in [".md", ".rs", ".py", ".toml", ".yaml", ".ts", ".tsx", ".html"] {
        for path in files(ending) {
            let text = fs::read_to_string(&path).unwrap();
            let foreign = text.lines().find(|line| installs_foreign(line));
            assert_eq!(foreign, None, "in {}", path.display());
            let selected = |line: &&str| {
                FOREIGN_CRATES.iter().any(|foreign| {
                    ["-p ", "--package ", "--test-package ", "cargo add ", "cargo install "]
                        .iter()
                        .any(|option| line.contains(&format!("{option}{foreign}")))
                })
            };
            assert_eq!(text.lines().find(selected), None, "in {}", path.display());
        }
    }
}

#[test]
fn commands_that_install_the_foreign_distribution_are_recognised() {
    let install = "install";
    for line in
        ["pip {} tollgate", "Run `pip3 {} tollgate==1.4`.", "uv pip {} -U tollgate", "pip {} tollgate[async]"]
    {
        assert!(installs_foreign(&line.replace("{}", install)), "{line}");
    }
    for line in [
        "pip {} ./clients/python",
        "pip {} tollgate-client",
        "apt-get {} tollgate",
        "sudo {} tollgate /usr/bin",
    ] {
        assert!(!installs_foreign(&line.replace("{}", install)), "{line}");
    }
}
