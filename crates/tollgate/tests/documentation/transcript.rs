//! Transcripts: commands and their output, run against a real server.
//!
//! A line that starts with `$ ` is a command for `sh`; a final backslash continues it on the next line. The
//! lines up to the next command are its output, standard error included. There `…` stands for anything, over
//! several lines too, and durations for other durations. Addresses in a page, such as
//! `http://127.0.0.1:8080`, are replaced by the real ones.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::path::Path;
use std::process::Command;

use crate::server::{Server, root};

/// Addresses: as in the pages, and the real ones.
pub(crate) type Places = Vec<(&'static str, String)>;

/// The addresses of a server and its Redis.
pub(crate) fn places(server: &Server, redis: Option<u16>) -> Places {
    let mut places = vec![("127.0.0.1:8080", server.address.clone())];
    if let Some(port) = redis {
        // A busy machine is not an outage.
        let patient =
            format!("{{ redis: redis://localhost:{port}, command_timeout: 10s, connect_timeout: 10s }}");
        places.push(("TOLLGATE__STORE=redis://localhost:6379", format!("TOLLGATE__STORE='{patient}'")));
        places.push(("localhost:6379", format!("localhost:{port}")));
        places.push(("redis-cli ", format!("redis-cli -p {port} ")));
    }
    places
}

/// One command and its output.
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) expected: String,
}

/// Splits a block into steps.
pub(crate) fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        if goes_on {
            let step = steps.last_mut().unwrap();
            step.command.push('\n');
            step.command.push_str(line);
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), expected: String::new() });
        } else {
            let step = steps.last_mut().expect("a transcript starts with a command");
            step.expected.push_str(line);
            step.expected.push('\n');
            continue;
        }
        goes_on = line.ends_with('\\');
    }
    steps
}

/// Runs one step. The error has the output, if it differs.
pub(crate) fn run(step: &Step, places: &Places, directory: &Path) -> Result<(), String> {
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap().display().to_string();
    let command = places.iter().fold(step.command.clone(), |text, (said, real)| text.replace(said, real));
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("exec 2>&1\n{command}"))
        .env_clear()
        .env("PATH", format!("{program}:/usr/local/bin:/usr/bin:/bin"))
        .env("TOLLGATE_SERVER", format!("http://{}", places[0].1))
        .env("LC_ALL", "C.UTF-8")
        .env("COLUMNS", "100")
        .current_dir(directory)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let printed = places.iter().fold(printed, |text, (said, real)| text.replace(real, said));
    if matches(step.expected.trim(), printed.trim()) {
        return Ok(());
    }
    Err(format!("$ {}\nshould print\n{}\nbut prints\n{printed}", step.command, step.expected))
}

/// A directory with the examples, in which a page's commands run one after the other.
pub(crate) fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["examples", "examples/import", "examples/logs"] {
        let copies = directory.path().join(name);
        std::fs::create_dir(&copies).unwrap();
        for entry in std::fs::read_dir(root().join(name)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() {
                std::fs::copy(entry.path(), copies.join(entry.file_name())).unwrap();
            }
        }
    }
    directory
}

/// Whether the output matches. Durations and the width of columns depend on the machine: any duration matches
/// any other, and runs of spaces match one.
pub(crate) fn matches(expected: &str, printed: &str) -> bool {
    let (expected, printed) = (tidy(expected), tidy(printed));
    let mut pieces = expected.split('…');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

fn tidy(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words = line.split_whitespace().map(|word| if is_duration(word) { "(a while)" } else { word });
        let mut words: Vec<&str> = words.collect();
        words.dedup_by(|word, before| *word == "(a while)" && word == before);
        let line = words.join(" ");
        COUNTDOWNS.iter().fold(line, |line, before| without_number(&line, before))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The text before a number that counts down.
const COUNTDOWNS: [&str; 6] =
    ["retry after ", "retry-after: ", "_after\":", "_after_ms\":", "retryAfter\":", ";t="];

fn is_duration(word: &str) -> bool {
    let number = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit = &word[number.len()..];
    ["ms", "s", "m", "h", "d"].contains(&unit) && number.parse::<f64>().is_ok()
}

fn without_number(line: &str, before: &str) -> String {
    let mut pieces = line.split(before);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str(before);
        out.push_str(if rest.len() < piece.len() { "(a while)" } else { "" });
        out.push_str(rest);
    }
    out
}
