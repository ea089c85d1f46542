//! The pages for those who come from another program: every row of their tables is run or looked up, and what a command
//! prints is compared. The server has the configuration that `tollgate import` makes of the page's sample.
//! `documentation_failures.rs` provokes the failures and the log lines, and `documentation_coming_from_metrics.rs` asks
//! Prometheus for the metrics.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::transcript;
use std::path::Path;
use std::process::{Command, Output};

use crate::coming_from::{KINDS, Made, RECORDED, RUN, Row, SECRET, compared, quoted, rows};
use crate::pages::{Page, pages};
use crate::server::{Server, root};

/// A server with the configuration of a page.
struct Stand {
    name: String,
    home: tempfile::TempDir,
    made: Made,
    server: Server,
}

/// Evaluates an expression with `client`, and prints its value.
const EVALUATE: &str = "
import sys
from tollgate import Client
client = Client(sys.argv[1])
print(eval(sys.argv[2]))";

impl Stand {
    fn of(page: &Page) -> Self {
        let made = Made::of(page);
        let home = tempfile::tempdir().unwrap();
        // `fail` makes curl report an error status.
        std::fs::write(home.path().join(".curlrc"), "fail\nsilent\nshow-error\nmax-time = 60\n").unwrap();
        let name = page.path.file_stem().unwrap().to_str().unwrap().to_owned();
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
        if made.config.contains("\ngateway:\n") {
            variables.push(("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0"));
        }
        if made.config.contains("\npostfix:\n") {
            variables.push(("TOLLGATE__LISTEN__POSTFIX", "127.0.0.1:0"));
        }
        let server = Server::start(Some(&home.path().join("tollgate.yaml")), &variables);
        Self { name, home, made, server }
    }

    fn shell(&self, command: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap().display().to_string();
        Command::new("sh")
            .arg("-c")
            .arg(command.replace("127.0.0.1:8080", &self.server.address))
            .env_clear()
            .env("PATH", format!("{program}:/usr/local/bin:/usr/bin:/bin"))
            .env("TOLLGATE_SERVER", format!("http://{}", self.server.address))
            .env("CURL_HOME", self.home.path())
            .env("TOKEN", "any")
            .current_dir(self.home.path())
            .output()
            .unwrap()
    }

    fn python(&self, expression: &str) -> Output {
        Command::new(root().join(".venv/bin/python"))
            .args(["-W", "error", "-c", EVALUATE, &format!("http://{}", self.server.address), expression])
            .env_clear()
            .env("PYTHONPATH", root().join("clients/python/src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("`./test` makes .venv")
    }

    /// Runs what a row says, and compares what it prints.
    fn run(&self, row: &Row) -> Result<(), String> {
        let ([command], [prints]) = (&quoted(&row.here)[..], &quoted(&row.prints)[..]) else {
            return Err("a row has one command and one excerpt of what it prints".to_owned());
        };
        let output = match &*row.kind {
            "python" => self.python(command),
            _ if command.starts_with("tollgate ") || command.starts_with("curl ") => self.shell(command),
            _ => return Err(format!("`{command}` is not a command")),
        };
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let line = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        if output.status.success() && transcript::matches(&format!("…{}…", prints.replace(" … ", "…")), &line)
        {
            return Ok(());
        }
        Err(format!("`{prints}` is not what it prints:\n{printed}"))
    }

    /// The settings there are in the sample, and the settings here in what is made of it. The import reports on what has no
    /// setting here, and reports no difference if the row says that there is none.
    fn configures(&self, row: &Row) -> Result<(), String> {
        let (here, config) = (quoted(&row.here), &self.made.config);
        if let Some(text) = here.iter().find(|text| !config.contains(**text)) {
            return Err(format!("`{text}` is not in\n{config}"));
        }
        let sample = self.made.sample.as_ref().filter(|_| row.kind == "configuration");
        let Some(sample) = sample else { return Ok(()) };
        for text in quoted(&row.there) {
            let at = sample.lines().position(|line| line.contains(text));
            let at = at.ok_or_else(|| format!("`{text}` is not in the sample"))?;
            let found: Vec<_> =
                self.made.findings.iter().filter(|finding| finding["line"] == at + 1).collect();
            if here.is_empty() && found.is_empty() {
                return Err(format!("the import does not report on `{text}`"));
            }
            let differs = ["differs", "left_out"];
            let differs =
                found.iter().find(|finding| differs.iter().any(|verdict| finding["verdict"] == *verdict));
            if let (true, Some(finding)) = (row.difference.starts_with("none"), differs) {
                return Err(format!("the import reports a difference: {finding}"));
            }
        }
        Ok(())
    }

    /// The metric exists with its labels, and the name there is recorded from it.
    fn measures(&self, row: &Row, labels: &str, records: &str) -> Result<(), String> {
        let scrape = self.server.metrics();
        for metric in quoted(&row.here) {
            let name = metric.split('{').next().unwrap();
            let family = name.strip_suffix("_total").unwrap_or(name);
            // A server without a gateway, a relay or a shared store does not have their metrics, but the reference does.
            // `documentation_coming_from_metrics.rs` makes servers that have them.
            let known = [name, family].iter().any(|name| scrape.contains(&format!("# TYPE {name} ")))
                || labels.contains(&format!("`{name}`"));
            let unknown = metric.split(['{', ',']).skip(1).filter_map(|label| label.split('=').next());
            let unknown = unknown.into_iter().find(|label| !labels.contains(&format!("`{label}`")));
            if !known || unknown.is_some() {
                return Err(format!("no metric `{metric}`"));
            }
        }
        for name in quoted(&row.there).into_iter().filter(|_| RECORDED.contains(&&*self.name)) {
            // Micrometer writes dots, which Prometheus shows as underscores, and counters get an ending.
            let name = name.split('{').next().unwrap().replace('.', "_");
            if ![name.clone(), format!("{name}_total")]
                .iter()
                .any(|name| records.lines().any(|line| line.trim() == format!("- record: {name}")))
            {
                return Err(format!("names.rules.yaml does not record `{name}`"));
            }
        }
        Ok(())
    }
}

#[test]
fn every_row_holds() {
    let labels = Page::at("docs/reference/metrics.md").text;
    let log_lines = Page::at("docs/reference/log-lines.md").text;
    let records = std::fs::read_to_string(root().join("monitoring/names.rules.yaml")).unwrap();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for page in compared() {
        let stand = Stand::of(&page);
        let rows = rows(&page);
        for kind in KINDS.iter().filter(|kind| **kind != "redis-cli") {
            assert!(rows.iter().any(|row| row.kind == **kind), "{} has no table of {kind}", page.name());
        }
        for row in rows {
            checked += 1;
            let held = match &*row.kind {
                kind if RUN.contains(&kind) => stand.run(&row),
                // `documentation_failures.rs` provokes them.
                "configuration" | "failure" => stand.configures(&row),
                "metric" => stand.measures(&row, &labels, &records),
                _ => quoted(&row.here).iter().try_for_each(|line| {
                    let known = log_lines.contains(&format!("| {line}"));
                    if known { Ok(()) } else { Err(format!("nothing logs `{line}`")) }
                }),
            };
            if let Err(reason) = held {
                wrong.push(format!("{}:{}: {} → {}: {reason}", page.name(), row.line, row.there, row.here));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(checked > 150, "only {checked} rows were found");
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
