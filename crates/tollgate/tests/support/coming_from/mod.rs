//! The rows of the pages for those who come from another program, and the configurations that the pages are about.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

pub(crate) mod scenes;

use std::process::Command;

use serde_json::Value;

use crate::pages::{Page, pages};
use crate::server::root;

/// A row of a table that compares another program with tollgate.
pub(crate) struct Row {
    /// What the table is about; one of `KINDS`.
    pub(crate) kind: String,
    pub(crate) there: String,
    pub(crate) here: String,
    /// An excerpt of the output, in tables of commands.
    pub(crate) prints: String,
    pub(crate) difference: String,
    pub(crate) line: usize,
}

/// The kinds of tables, by the first cell of their heads.
pub(crate) const KINDS: [&str; 8] =
    ["configuration", "curl", "command", "redis-cli", "python", "metric", "log line", "failure"];

/// The kinds whose rows are run, and whose output is compared.
pub(crate) const RUN: [&str; 4] = ["curl", "command", "redis-cli", "python"];

/// The programs whose metric names `names.rules.yaml` records.
pub(crate) const RECORDED: [&str; 5] =
    ["ad-marketplace", "api-gateway", "elemta", "genro-mail-proxy", "sendry"];

/// The pages with such tables.
pub(crate) fn compared() -> Vec<Page> {
    pages().into_iter().filter(|page| page.comment("import").or(page.comment("compare")).is_some()).collect()
}

/// The rows of a page's tables.
pub(crate) fn rows(page: &Page) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut kind: Option<String> = None;
    for (index, line) in page.text.lines().enumerate() {
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            kind = None;
            continue;
        };
        let place = format!("{}:{}", page.name(), index + 1);
        let cells: Vec<&str> = cells.split(" | ").collect();
        if let Some(head) = cells[0].strip_suffix(" there").filter(|_| kind.is_none()) {
            assert!(KINDS.contains(&head), "{place}: what is `{head}`?");
            let heads: &[&str] =
                if RUN.contains(&head) { &["here", "prints", "difference"] } else { &["here", "difference"] };
            assert_eq!(&cells[1..], heads, "{place}");
            kind = Some(head.to_owned());
        } else if let Some(kind) = &kind
            && !cells[0].starts_with("---")
        {
            let [there, here, prints, difference] = match cells[..] {
                [there, here, difference] => [there, here, "", difference],
                [there, here, prints, difference] => [there, here, prints, difference],
                _ => panic!("{place}: {} cells", cells.len()),
            };
            assert!(![there, here, difference].iter().any(|cell| cell.trim().is_empty()), "{place}: empty");
            let [there, here, prints, difference] = [there, here, prints, difference].map(str::to_owned);
            rows.push(Row { kind: kind.clone(), there, here, prints, difference, line: index + 1 });
        }
    }
    rows
}

/// The texts between backquotes in a cell.
pub(crate) fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// What a page is about: the sample of another program, if there is one, and the configuration made of it.
pub(crate) struct Made {
    /// The text of the sample.
    pub(crate) sample: Option<String>,
    pub(crate) config: String,
    /// The variables that its secrets are in.
    pub(crate) variables: Vec<String>,
    /// What the import reports.
    pub(crate) findings: Vec<Value>,
}

impl Made {
    pub(crate) fn of(page: &Page) -> Self {
        let mut made = match page.comment("compare") {
            Some(file) => {
                let config = std::fs::read_to_string(root().join(file)).unwrap();
                Self { sample: None, config, variables: Vec::new(), findings: Vec::new() }
            }
            None => Self::imported(page),
        };
        // What the page adds to the configuration.
        for block in page.blocks().iter().filter(|block| block.language == "yaml" && block.fragment) {
            made.config.push_str(&block.text);
        }
        made
    }

    fn imported(page: &Page) -> Self {
        let words = page.comment("import").unwrap();
        let arguments: Vec<&str> = words.split(' ').collect();
        let files = arguments.iter().filter(|word| word.starts_with("examples/"));
        let samples: Vec<String> =
            files.map(|file| std::fs::read_to_string(root().join(file)).unwrap()).collect();
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["import", "--json"])
            .args(&arguments)
            .current_dir(root())
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", page.name(), String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let variables = report["variables"].as_array().unwrap();
        Self {
            sample: Some(samples.join("\n")),
            config: report["config"].as_str().unwrap().to_owned(),
            variables: variables.iter().map(|name| name.as_str().unwrap().to_owned()).collect(),
            findings: report["findings"].as_array().unwrap().clone(),
        }
    }
}

/// The value of secrets.
pub(crate) const SECRET: &str = "a-secret-for-the-documentation";
