//! The program's own documentation: help, completions, manual pages.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::responder::{Run, program, run};

const COMMANDS: [&str; 19] = [
    "check-config",
    "schema",
    "init",
    "check",
    "peek",
    "reset",
    "set",
    "refund",
    "holds",
    "ban",
    "unban",
    "bans",
    "top",
    "decisions",
    "config",
    "reload",
    "bench",
    "completions",
    "man",
];

fn tollgate(arguments: &[&str]) -> Run {
    run("http://127.0.0.1:1", arguments, &[])
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let help = tollgate(&["--help"]);
    assert_eq!(help.code, 0);
    for command in COMMANDS {
        assert!(help.out.contains(&format!("\n  {command} ")), "{command}");
    }
    assert!(
        help.out
            .contains("Exit codes: 0 done or allowed, 1 denied, or as the command's help says, 2 an error.")
    );
}

#[test]
fn every_command_that_asks_the_server_teaches_with_an_example() {
    for command in &COMMANDS[2..] {
        let help = tollgate(&[command, "--help"]);
        assert_eq!(help.code, 0, "{command}");
        let examples = help.out.split_once("\nExample").map(|(_, examples)| examples);
        assert!(examples.is_some_and(|text| text.contains(&format!("  tollgate {command}"))), "{command}");
        let is_page = ["completions", "man"].contains(command);
        assert!(is_page || help.out.contains("Exit codes: 0 "), "{command}");
        assert!(
            help.out.lines().skip_while(|line| !line.starts_with("Example")).all(|line| line.len() <= 110)
        );
    }
}

#[test]
fn only_commands_that_ask_a_server_are_told_which() {
    for command in COMMANDS.iter().chain(&["serve"]) {
        let asks = !["serve", "check-config", "schema", "init", "completions", "man"].contains(command);
        let help = tollgate(&[command, "--help"]).out;
        for option in ["--server", "--token-file", "--timeout"] {
            assert_eq!(help.contains(option), asks, "{command} {option}");
        }
        assert_eq!(
            help.contains("--config <FILE>"),
            ["serve", "check-config"].contains(command),
            "{command}"
        );
        assert_eq!(help.contains("--json"), asks || *command == "check-config", "{command}");
    }
    let wrong = run("no server at all", &["schema"], &[]);
    assert_eq!((wrong.code, wrong.err.as_str()), (0, ""), "a command without a server ignores its address");
}

#[test]
fn every_example_in_the_help_is_understood() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"203.0.113.7\n").unwrap();
    let path = file.path().to_str().unwrap();
    for command in &COMMANDS[2..] {
        let help = tollgate(&[command, "--help"]).out;
        for line in help.lines().filter_map(|line| line.strip_prefix("  tollgate ")) {
            // Only the program's own part of a shell line is checked.
            let line = line.split([';', '|', '&', '>']).next().unwrap().split("   ").next().unwrap();
            let words = line
                .replace("'10/s burst 50'", "10/s_burst_50")
                .replace("\"$receipt\"", "r")
                .replace('\'', "");
            let words: Vec<String> = words.split_whitespace().map(|word| word.replace('_', " ")).collect();
            let mut arguments: Vec<&str> =
                words.iter().map(|word| if word == "drop.txt" { path } else { word }).collect();
            if arguments[0] == "man" || arguments[0] == "check-config" {
                arguments.truncate(1);
            }
            let fresh = tempfile::tempdir().unwrap();
            let written = fresh.path().join("starter.yaml");
            if arguments[0] == "init" {
                // It would write into the directory of the tests.
                arguments.truncate(2);
                arguments.extend(["-o", written.to_str().unwrap()]);
            }
            let run = tollgate(&arguments);
            let answered = run.code == 0 || run.err.starts_with("error: cannot reach http://127.0.0.1:1: ");
            assert!(answered, "{line}: {}", run.err);
        }
    }
}

#[test]
fn completions_know_every_command_in_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = tollgate(&["completions", shell]);
        assert_eq!((script.code, script.err.as_str()), (0, ""));
        for command in COMMANDS {
            assert!(script.out.contains(command), "{shell} lacks {command}");
        }
    }
    assert_eq!(tollgate(&["completions", "csh"]).code, 2);
}

#[test]
fn the_manual_page_is_printed_or_all_pages_are_written() {
    let page = tollgate(&["man"]);
    assert_eq!(page.code, 0);
    assert!(page.out.contains(".TH tollgate 1") && page.out.contains("tollgate\\-check(1)"), "{}", page.out);

    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    assert_eq!(tollgate(&["man", "--dir", pages.to_str().unwrap()]).code, 0);
    for command in COMMANDS {
        let page = std::fs::read_to_string(pages.join(format!("tollgate-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    let check = std::fs::read_to_string(pages.join("tollgate-check.1")).unwrap();
    assert!(check.contains("Exit codes: 0 allowed"), "{check}");

    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = tollgate(&["man", "--dir", file.to_str().unwrap()]);
    assert!(refused.code == 2 && refused.err.starts_with("error: cannot write pages into "), "{refused:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for arguments in [&["completions", "bash"][..], &["man"], &["schema"]] {
        let mut child = program("http://127.0.0.1:1", arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn colours_are_not_printed_into_a_pipe() {
    for arguments in [&["--help"][..], &["check", "--help"], &["check"], &["check", "p"]] {
        let run = tollgate(arguments);
        assert!(!run.out.contains('\x1b') && !run.err.contains('\x1b'), "{run:?}");
    }
}
