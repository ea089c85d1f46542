//! `tollgate init`: writes a commented configuration to start with. It never replaces a file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::USUAL;
use super::output::{self, Existing};
use crate::config::Format;
use crate::printable::plain;

/// What to limit, and where to write the configuration.
#[derive(Args, Clone, Debug)]
pub struct Init {
    /// What to limit
    #[arg(value_name = "KIND", value_enum, default_value_t = Starter::Api)]
    starter: Starter,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = USUAL[0])]
    output: PathBuf,
}

/// The configurations to start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Starter {
    Api,
    Gateway,
    Mail,
    Logins,
}

pub(super) const HELP: &str = "\
Kinds:
  api      an HTTP API that asks tollgate, or whose proxy asks
  gateway  a reverse proxy in front of an HTTP service
  mail     a mail relay in front of a provider
  logins   guards that slow down password guessing

The file has comments, and can be served as it is. An existing file is never replaced.

Examples:
  tollgate init
  tollgate init gateway
  tollgate init mail -o /etc/tollgate/tollgate.yaml

Exit codes: 0 written, 2 an error: nothing was written.";

impl Starter {
    fn text(self) -> &'static str {
        match self {
            Self::Api => include_str!("../config/starters/api.yaml"),
            Self::Gateway => include_str!("../config/starters/gateway.yaml"),
            Self::Mail => include_str!("../config/starters/mail.yaml"),
            Self::Logins => include_str!("../config/starters/logins.yaml"),
        }
    }
}

impl Init {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let shown = plain(&self.output.display().to_string());
        if Format::of(&self.output) != Some(Format::Yaml) {
            bail!("{shown}: the configuration is YAML: name a file that ends in `.yaml` or `.yml`");
        }
        if self.output.symlink_metadata().is_ok() {
            bail!("{shown}: the file exists and is kept: name another one with -o");
        }
        // Two usual names in one directory would leave `serve` without a choice.
        let beside = |name: &str| self.output.with_file_name(name);
        let usual = |path: &Path| USUAL.iter().any(|name| path.ends_with(name));
        if let Some(other) = USUAL.iter().find(|name| beside(name).exists()).filter(|_| usual(&self.output)) {
            bail!("{shown}: there is a configuration already, {other}: name another file with -o");
        }
        output::write(&self.output, self.starter.text(), Existing::Kept)
            .with_context(|| format!("{shown}: cannot be written"))?;
        let file = if self.output == Path::new(USUAL[0]) { String::new() } else { format!(" {shown}") };
        writeln!(
            out,
            "wrote {shown}: edit it, then `tollgate check-config{file}` and `tollgate serve{file}`"
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
