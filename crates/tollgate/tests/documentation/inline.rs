//! Commands in the middle of sentences: every subcommand and option that the documentation, a message or a comment
//! names in backquotes exists.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use tollgate::cli::Cli;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a directory with one of these endings.
fn files(directory: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["node_modules", "target", "dist", ".venv", "tests"].contains(&name) {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// The texts between backquotes, outside of blocks.
fn spans(text: &str) -> Vec<String> {
    let mut spans = Vec::new();
    let blocks = text.split("```").step_by(2);
    for paragraph in blocks.flat_map(|block| block.split("\n\n")) {
        // A long command goes on in the next line.
        let words = paragraph.lines().map(|line| line.trim_start_matches([' ', '/', '!', '#', '>', '-']));
        let joined = words.collect::<Vec<_>>().join(" ");
        spans.extend(joined.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    spans
}

/// Whether a word stands for what the reader writes there.
fn is_blank(word: &str) -> bool {
    word.chars().any(|c| c.is_uppercase() || matches!(c, '…' | '<' | '[' | '$' | '{' | '/' | '.' | '@' | '='))
}

/// What does not exist in a command line, if it begins with the name of a subcommand.
fn unknown(program: &Command, line: &str) -> Option<String> {
    let mut path = vec![program];
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let command = *path.last().unwrap();
        if matches!(word, "|" | ">" | "<" | "&&" | ";" | "--" | "…") || word.starts_with('\'') {
            break;
        }
        if let Some(option) = word.strip_prefix("--") {
            let (name, inline) = option.split_once('=').map_or((option, false), |(name, _)| (name, true));
            let name = name.trim_end_matches([',', '.', ')', ']']);
            let known = |command: &&Command| {
                command
                    .get_arguments()
                    .find(|arg| {
                        arg.get_long() == Some(name)
                            || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
                    })
                    .map(|arg| arg.get_action().takes_values())
            };
            let takes = path.iter().rev().find_map(known);
            let built_in = ["help", "version"].contains(&name);
            match takes {
                None if !built_in => {
                    return Some(format!("`{line}`: `{}` has no `--{name}`", command.get_name()));
                }
                Some(true) if !inline => drop(words.next()),
                _ => {}
            }
        } else if let Some(below) = command.find_subcommand(word) {
            path.push(below);
        } else if command.has_subcommands() && command.get_positionals().next().is_none() && !is_blank(word) {
            return Some(format!("`{line}`: `{}` has no `{word}`", command.get_name()));
        }
    }
    None
}

/// What does not exist in a span, if it is a command of this program.
fn unknown_in(program: &Command, span: &str) -> Option<String> {
    if let Some(line) = span.strip_prefix("tollgate ") {
        return unknown(program, line);
    }
    let mut words = span.split_whitespace();
    let begins = words.next().is_some_and(|word| program.find_subcommand(word).is_some());
    let goes_on = words.next().is_some_and(|word| word.starts_with("--") && word.len() > 2);
    (begins && goes_on).then(|| unknown(program, span)).flatten()
}

#[test]
fn every_command_within_a_sentence_exists() {
    let mut program = Cli::command();
    program.build();
    let mut paths = Vec::new();
    for (directory, endings) in [
        ("docs", &[".md"][..]),
        ("crates", &[".rs", ".md"]),
        ("console/src", &[".tsx", ".ts"]),
        ("examples", &[".yaml", ".toml"]),
        ("clients/python", &[".py", ".md"]),
    ] {
        files(&root().join(directory), endings, &mut paths);
    }
    paths.extend(
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root().join(name)),
    );
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in paths {
        for span in spans(&fs::read_to_string(&path).unwrap()) {
            seen += usize::from(span.starts_with("tollgate "));
            wrong.extend(unknown_in(&program, &span).map(|problem| format!("{}: {problem}", path.display())));
        }
    }
    assert!(seen > 200, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_or_an_option_that_does_not_exist_is_found() {
    let mut program = Cli::command();
    program.build();
    for (span, exists) in [
        ("tollgate decisions --watch", false),
        ("decisions --watch", false),
        ("tollgate decison", false),
        ("tollgate queue lst", false),
        ("tollgate decisions --id", true),
        ("tollgate decisions --key --x --json", true),
        ("tollgate queue list --server http://10.0.0.1 --limit 5", true),
        ("tollgate serve --config tollgate.yaml", true),
        ("tollgate RULE", true),
        ("check --", true),
        ("redis-cli --watch", true),
    ] {
        assert_eq!(unknown_in(&program, span).is_none(), exists, "{span}");
    }
}
