//! The pages for those who come from another program: every row of their tables that can be run is run. The server has
//! the configuration that `tollgate import` makes of the page's sample.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "documentation/pages.rs"]
mod pages;
#[path = "documentation/server.rs"]
mod server;

use std::path::Path;
use std::process::Command;

use pages::{Page, pages};
use server::{Server, root};

/// A row of a table: the kind of the table, and the three cells.
struct Row {
    kind: String,
    there: String,
    here: String,
    difference: String,
    line: usize,
}

/// The kinds of tables, by the first cell of their heads.
const KINDS: [&str; 7] = ["configuration", "curl", "command", "redis-cli", "metric", "log line", "failure"];

/// The rows of the tables that compare another program with tollgate.
fn rows(page: &Page) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut kind = None;
    for (index, line) in page.text.lines().enumerate() {
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            kind = None;
            continue;
        };
        let cells: Vec<&str> = cells.split(" | ").collect();
        if let Some(head) = cells[0].strip_suffix(" there").filter(|_| kind.is_none()) {
            assert!(KINDS.contains(&head), "{}:{}: what is `{head}`?", page.name(), index + 1);
            assert_eq!(cells[1..], ["here", "difference"], "{}:{}", page.name(), index + 1);
            kind = Some(head.to_owned());
        } else if let (Some(kind), [there, here, difference]) = (&kind, cells.as_slice())
            && !there.starts_with("---")
        {
            let [there, here, difference] = [there, here, difference].map(|cell| (*cell).to_owned());
            rows.push(Row { kind: kind.clone(), there, here, difference, line: index + 1 });
        }
    }
    rows
}

/// The texts between backquotes in a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// A server with the configuration of a page.
struct Stand {
    home: tempfile::TempDir,
    made: Made,
    server: Server,
}

/// What a page is about: the sample of another program, if there is one, and the configuration made of it.
struct Made {
    sample: Option<String>,
    config: String,
    /// The variables that its secrets are in.
    variables: Vec<String>,
}

impl Made {
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
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let variables = report["variables"].as_array().unwrap();
        Self {
            sample: Some(samples.join("\n")),
            config: report["config"].as_str().unwrap().to_owned(),
            variables: variables.iter().map(|name| name.as_str().unwrap().to_owned()).collect(),
        }
    }
}

/// The value of secrets.
const SECRET: &str = "a-secret-for-the-documentation";

impl Stand {
    fn of(page: &Page) -> Self {
        let made = match page.comment("compare") {
            Some(file) => {
                let config = std::fs::read_to_string(root().join(file)).unwrap();
                Made { sample: None, config, variables: Vec::new() }
            }
            None => Made::imported(page),
        };
        let home = tempfile::tempdir().unwrap();
        // `fail` makes curl report an error status.
        std::fs::write(home.path().join(".curlrc"), "fail\nsilent\nshow-error\nmax-time = 60\n").unwrap();
        let name = page.path.file_stem().unwrap().to_str().unwrap();
        let short = name.split('-').next().unwrap();
        for file in [format!("{short}.yaml"), "tollgate.yaml".to_owned()] {
            std::fs::write(home.path().join(file), &made.config).unwrap();
        }
        let queue = home.path().join("queue").display().to_string();
        let mut variables: Vec<(&str, &str)> =
            made.variables.iter().map(|name| (name.as_str(), SECRET)).collect();
        if made.config.contains("\nrelay:\n") {
            variables.push(("TOLLGATE__RELAY__LISTEN", "[{ smtp: '127.0.0.1:0' }]"));
            variables.push(("TOLLGATE__RELAY__QUEUE__DIR", &queue));
        }
        if made.config.contains("\npostfix:\n") {
            variables.push(("TOLLGATE__LISTEN__POSTFIX", "127.0.0.1:0"));
        }
        let server = Server::start(Some(&home.path().join("tollgate.yaml")), &variables);
        Self { home, made, server }
    }

    /// Runs a command. The error is what it prints.
    fn run(&self, command: &str) -> Result<(), String> {
        let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap().display().to_string();
        let output = Command::new("sh")
            .arg("-c")
            .arg(command.replace("127.0.0.1:8080", &self.server.address))
            .env_clear()
            .env("PATH", format!("{program}:/usr/local/bin:/usr/bin:/bin"))
            .env("TOLLGATE_SERVER", format!("http://{}", self.server.address))
            .env("CURL_HOME", self.home.path())
            .env("TOKEN", "any")
            .current_dir(self.home.path())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(printed.into_owned()) }
    }

    /// Why a row is wrong.
    fn check(&self, row: &Row, reference: &Reference) -> Result<(), String> {
        if row.difference.trim().is_empty() || row.there.trim().is_empty() {
            return Err("a cell is empty".to_owned());
        }
        let here = quoted(&row.here);
        if here.is_empty() {
            return Err("nothing here can be checked".to_owned());
        }
        match &*row.kind {
            "configuration" | "failure" => {
                let sample = self.made.sample.as_ref().filter(|_| row.kind == "configuration");
                for text in quoted(&row.there) {
                    if sample.is_some_and(|sample| !sample.contains(text)) {
                        return Err(format!("`{text}` is not in the sample"));
                    }
                }
                let config = &self.made.config;
                let missing = here.iter().find(|text| !config.contains(**text));
                missing.map_or(Ok(()), |text| Err(format!("`{text}` is not in\n{config}")))
            }
            "curl" | "command" | "redis-cli" => here.iter().try_for_each(|command| {
                let known = command.starts_with("tollgate ") || command.starts_with("curl ");
                if known { self.run(command) } else { Err(format!("`{command}` is not a command")) }
            }),
            "metric" => here.iter().try_for_each(|metric| {
                let name = metric.split('{').next().unwrap();
                let labels = metric.split(['{', ',']).skip(1).filter_map(|label| label.split('=').next());
                let missing =
                    labels.into_iter().find(|label| !reference.metrics.contains(&format!("`{label}`")));
                let known = reference.metrics.contains(&format!("`{name}`"));
                if known && missing.is_none() { Ok(()) } else { Err(format!("no metric `{metric}`")) }
            }),
            "log line" => here.iter().try_for_each(|line| {
                let known = reference.log_lines.contains(&format!("| {line}"));
                if known { Ok(()) } else { Err(format!("nothing logs `{line}`")) }
            }),
            other => Err(format!("what is `{other}`?")),
        }
    }
}

/// Pages that other tests compare with the program.
struct Reference {
    metrics: String,
    log_lines: String,
}

#[test]
fn every_row_that_can_be_run_holds() {
    let reference = Reference {
        metrics: Page::at("docs/reference/metrics.md").text,
        log_lines: Page::at("docs/reference/log-lines.md").text,
    };
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for page in pages().iter().filter(|page| page.comment("import").or(page.comment("compare")).is_some()) {
        let stand = Stand::of(page);
        let rows = rows(page);
        for kind in KINDS.iter().filter(|kind| !["redis-cli", "curl"].contains(kind)) {
            assert!(rows.iter().any(|row| row.kind == **kind), "{} has no table of {kind}", page.name());
        }
        for row in rows {
            checked += 1;
            if let Err(reason) = stand.check(&row, &reference) {
                wrong.push(format!("{}:{}: {} → {}: {reason}", page.name(), row.line, row.there, row.here));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(checked > 100, "only {checked} rows were found");
}

#[test]
fn there_is_a_page_for_every_program_that_can_be_imported() {
    let all: String = pages()
        .iter()
        .filter(|page| page.name().starts_with("docs/coming-from/"))
        .map(|page| page.text.clone())
        .collect();
    for system in tollgate_import::System::ALL {
        let name = system.to_string();
        assert!(
            all.contains(&format!("# Coming from {name}"))
                || all.contains(&format!("**{name}.**"))
                || all.contains(&format!("## {name}")),
            "{name} has no page"
        );
    }
}
