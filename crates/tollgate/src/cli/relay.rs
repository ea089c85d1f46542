//! `tollgate relay`: what an operator prepares for the mail relay, without a server.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal;
use tollgate_relay::server::PasswordHash;

/// What is prepared.
#[derive(Args, Clone, Debug)]
pub struct RelayTools {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Action {
    /// Hash a user's password for `password_hash`
    #[command(after_help = HASHING)]
    HashPassword,
}

const HASHING: &str = "\
Reads the password from the terminal, without showing it, or else from the first line of standard input.
Prints its hash for `relay.users[].password_hash`: PBKDF2 with HMAC-SHA-256 and 600,000 rounds.

Examples:
  tollgate relay hash-password
  tollgate relay hash-password < secret

Exit codes: 0 printed, 2 an error.";

/// The longest password: longer ones do not fit into a login.
const MOST_BYTES: u64 = 1_024;

impl RelayTools {
    pub(super) fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let Action::HashPassword = self.action;
        let password = if io::stdin().is_terminal() { typed(err)? } else { piped(io::stdin().lock())? };
        let (count, least) = (password.chars().count(), PasswordHash::LEAST_CHARACTERS);
        if count < least {
            bail!(
                "the password has {count} characters: at least {least} are needed, as from `openssl rand -hex 16`"
            );
        }
        writeln!(out, "{}", PasswordHash::for_file(&password).written())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The first line of the input.
fn piped(input: impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    // One byte more than the longest password with its line end.
    input.take(MOST_BYTES + 3).read_line(&mut line).context("the password cannot be read")?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.len() as u64 > MOST_BYTES {
        bail!("the password is longer than {MOST_BYTES} bytes");
    }
    Ok(password.to_owned())
}

/// A password that was typed twice.
fn typed(err: &mut dyn Write) -> anyhow::Result<String> {
    let password = hidden("Password: ", err)?;
    if hidden("The same password again: ", err)? != password {
        bail!("the two passwords are not the same");
    }
    Ok(password)
}

/// Reads a line from the terminal without showing it.
fn hidden(prompt: &str, err: &mut dyn Write) -> anyhow::Result<String> {
    write!(err, "{prompt}")?;
    err.flush()?;
    terminal::enable_raw_mode().context("the terminal cannot hide the password")?;
    let line = keys();
    terminal::disable_raw_mode()?;
    writeln!(err)?;
    line
}

/// The keys up to Enter.
fn keys() -> anyhow::Result<String> {
    let mut line = String::new();
    loop {
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Enter => return Ok(line),
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => bail!("interrupted"),
            KeyCode::Backspace => drop(line.pop()),
            KeyCode::Char(c) if (line.len() as u64) < MOST_BYTES => line.push(c),
            _ => {}
        }
    }
}
