//! `tollgate completions` and `tollgate man`: generated from the definition of the command line, so they
//! cannot differ from it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// A shell to complete for.
#[derive(Args, Clone, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Where manual pages go.
#[derive(Args, Clone, Debug)]
#[command(after_help = MAN_EXAMPLES)]
pub struct Manual {
    /// Write a page for every command into this directory, instead of printing the main page
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  tollgate man | man -l -
  tollgate man --dir /usr/local/share/man/man1";

impl Completions {
    /// Prints the script.
    pub fn run(&self, mut program: Command, out: &mut dyn Write) -> io::Result<ExitCode> {
        // Written at once: the generator panics if a stream fails, as a closed pipe does.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "tollgate", &mut script);
        out.write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Manual {
    /// Prints the main page, or writes all pages.
    pub fn run(&self, program: Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let Some(dir) = &self.dir else {
            Man::new(program).render(out)?;
            return Ok(ExitCode::SUCCESS);
        };
        let failed = |error| anyhow::anyhow!("cannot write pages into {}: {error}", dir.display());
        std::fs::create_dir_all(dir).map_err(failed)?;
        clap_mangen::generate_to(program, dir).map_err(failed)?;
        Ok(ExitCode::SUCCESS)
    }
}
