//! `tollgate import`: translates the configuration of another rate limiter, and reports what differs.
//!
//! The result is checked like every configuration before anything is written.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use tollgate_import::{Answers, Imported, Input, Verdict, import};
use tollgate_tree::Place;

use super::check_config::print_json;
use super::output::{Existing, Output};
use crate::config::{self, Format};
use crate::printable::plain;

/// What to translate, and where to.
#[derive(Args, Clone, Debug)]
pub struct Import {
    /// The files of the other program; those that belong together are translated together
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Where to write the configuration; by default to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// What a limit counts by, if the files do not tell: `api-write=user`, `orders=route,ip`
    #[arg(long, value_name = "NAME=FIELD")]
    by: Vec<String>,
    /// A limit, if the files do not have it: `'route=10/s burst 50'`
    #[arg(long, value_name = "NAME=LIMIT")]
    limit: Vec<String>,
    /// The address of the store, if the files do not have it: `redis://localhost:6379`
    #[arg(long, value_name = "ADDRESS")]
    store: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) const HELP: &str = "\
The program is recognised by its files: Sendry, genro-mail-proxy, the ad marketplace, the API gateway,
Elemta, nginx, ingress-nginx, Envoy's ratelimit, limitador.

For every line the report says: exact (same decisions), differs (and why), answer? (you must decide; the
assumption is shown), or left out (not imported).
Passwords are not copied: the report names the environment variables that they belong in.
Without -o, the configuration goes to standard output and the report to standard error.

Examples:
  tollgate import nginx.conf
  tollgate import application.yml --by api-write=user -o tollgate.yaml
  tollgate import /etc/nginx/nginx.conf /etc/nginx/conf.d/*.conf -o tollgate.yaml

Exit codes: 0 translated, 2 an error: nothing was written.";

/// The value of secrets while the result is checked.
const PLACEHOLDER: &str = "a-secret-that-is-set-later";

impl Import {
    pub(super) fn run(self, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let answers = self.answers()?;
        let files: Vec<(String, String)> =
            self.files.iter().map(|path| read(path)).collect::<anyhow::Result<_>>()?;
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, text)| Input { name, text }).collect();
        let imported = import(&inputs, &answers)?;
        check(&imported)?;
        if let Some(output) = &self.output {
            self.write(output, &imported.config)?;
        }
        if self.json {
            print_json(&as_json(&imported, self.output.as_deref()), out)?;
            return Ok(ExitCode::SUCCESS);
        }
        match &self.output {
            Some(output) => report(&imported, Some(output), out)?,
            None => {
                write!(out, "{}", imported.config)?;
                report(&imported, None, err)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn answers(&self) -> anyhow::Result<Answers> {
        let mut answers = Answers::default();
        for by in &self.by {
            answers = answers.by(by).with_context(|| format!("--by {by}"))?;
        }
        for limit in &self.limit {
            answers = answers.limit(limit).with_context(|| format!("--limit '{limit}'"))?;
        }
        Ok(match &self.store {
            Some(store) => answers.store(store),
            None => answers,
        })
    }

    /// Writes the file as a whole, or not at all.
    fn write(&self, output: &Path, config: &str) -> anyhow::Result<()> {
        let shown = output.display();
        if Format::of(output).is_none_or(|format| format != Format::Yaml) {
            bail!("{shown}: the configuration is YAML: name a file that ends in `.yaml` or `.yml`");
        }
        let existing = if self.force { Existing::Replaced } else { Existing::Kept };
        let inputs = self.files.iter().map(|file| (&**file, "one of the files to translate")).collect();
        Output { path: output, inputs, existing }.write(config)
    }
}

fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    let text = config::read_file(path).map_err(|message| anyhow::anyhow!("{name}: {message}"))?;
    Ok((name, text))
}

/// Checks the result as `check-config` does, as if its secrets were set.
fn check(imported: &Imported) -> anyhow::Result<()> {
    let environment = imported.variables.iter().map(|name| (name.clone(), PLACEHOLDER.to_owned()));
    let checked = config::load_str(&imported.config, Format::Yaml, "(translated)", environment);
    checked.map(drop).context("the files cannot be translated as they are; nothing was written")
}

fn report(imported: &Imported, written: Option<&Path>, out: &mut dyn Write) -> std::io::Result<()> {
    let place = |place: &Place| match place {
        Place::At { source, line, .. } => format!("{source}:{line}"),
        other => other.to_string(),
    };
    let places: Vec<String> = imported.findings.iter().map(|finding| plain(&place(&finding.place))).collect();
    let width = places.iter().map(|place| place.chars().count()).max().unwrap_or(0);
    for (place, finding) in places.iter().zip(&imported.findings) {
        writeln!(out, "{place:width$}  {:8}  {}", finding.verdict, plain(&finding.message))?;
    }
    let count = |verdict| imported.findings.iter().filter(|finding| finding.verdict == verdict).count();
    writeln!(
        out,
        "\n{}: {} exact, {} different, {} to answer, {} left out",
        imported.system,
        count(Verdict::Exact),
        count(Verdict::Differs),
        count(Verdict::Answer),
        count(Verdict::LeftOut),
    )?;
    if let Some(written) = written {
        let name = plain(&written.display().to_string());
        writeln!(out, "wrote {name}: explain it with `tollgate check-config {name}`")?;
    }
    if !imported.variables.is_empty() {
        writeln!(out, "its secrets are expected in {}", imported.variables.join(", "))?;
    }
    Ok(())
}

fn as_json(imported: &Imported, written: Option<&Path>) -> Value {
    let findings: Vec<Value> = imported
        .findings
        .iter()
        .map(|finding| {
            let (file, line) = match &finding.place {
                Place::At { source, line, .. } => (json!(&**source), json!(line)),
                Place::Source { source } => (json!(&**source), Value::Null),
                Place::Variable { name } => (json!(&**name), Value::Null),
            };
            json!({ "file": file, "line": line, "verdict": finding.verdict.name(), "message": finding.message })
        })
        .collect();
    let mut report = json!({
        "system": imported.system.to_string(),
        "variables": imported.variables,
        "findings": findings,
    });
    match written {
        Some(written) => report["written"] = json!(written.display().to_string()),
        None => report["config"] = json!(imported.config),
    }
    report
}
