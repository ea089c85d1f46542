//! `tollgate accounts`: the accounts that the mail relay sends through.

use std::io::{self, Read, Write};
use std::path::{Path as File, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::policies::{Listing, more};
use super::table::{TextTable, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::{Account, Accounts as Page, PauseChanged, Removed};
use crate::config::files;

/// What is done with accounts.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Accounts {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Add an account, and print its id
    #[command(after_help = ADDING)]
    Add(Box<Add>),
    /// List the accounts
    List {
        /// Show only accounts of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show an account
    Show(AccountArgument),
    /// Pause an account on all nodes; the relay uses the tenant's other accounts, or mail waits
    Pause(AccountArgument),
    /// Resume an account that was paused, or whose login failed
    Resume(AccountArgument),
    /// Remove an account that was added at run time; its mail waits for another one
    Remove(AccountArgument),
}

/// An account.
#[derive(Args, Clone, Debug)]
struct AccountArgument {
    /// The tenant that it belongs to
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Its id
    id: String,
}

#[derive(Args, Clone, Debug)]
struct Add {
    /// The tenant that it belongs to
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Its id; generated if omitted
    #[arg(long)]
    id: Option<String>,
    /// The mail server's name or address
    #[arg(long)]
    host: String,
    /// Its port
    #[arg(long, default_value_t = 587)]
    port: u16,
    /// How the connection is encrypted; by default implicit on port 465, otherwise starttls
    #[arg(long, value_enum)]
    tls: Option<Tls>,
    /// The user, if the server requires a login
    #[arg(long, requires = "password_file")]
    user: Option<String>,
    /// A file whose first line is the password; `-` reads it from standard input
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Use the usual limits of a provider; the --limit-* options override them
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    /// At most this many messages in any minute; 0 for no limit
    #[arg(long, value_name = "N")]
    limit_minute: Option<u64>,
    /// At most this many messages in any hour; 0 for no limit
    #[arg(long, value_name = "N")]
    limit_hour: Option<u64>,
    /// At most this many messages in any day; 0 for no limit
    #[arg(long, value_name = "N")]
    limit_day: Option<u64>,
    /// What happens to mail that exceeds a limit
    #[arg(long, value_enum, default_value = "defer")]
    on_limit: OnLimitArgument,
    /// Accounts of a tenant with lower numbers are used first
    #[arg(long, value_name = "N", default_value_t = 0)]
    priority: u32,
    /// Replace the account if it exists
    #[arg(long, requires = "id")]
    replace: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tls {
    Starttls,
    Implicit,
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnLimitArgument {
    Defer,
    Reject,
}

/// The usual limits of providers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Preset {
    /// 1 a minute, 200 an hour, 200 a day
    SesSandbox,
    /// 14 a minute, 840 an hour, 50,000 a day
    SesProduction,
    /// 1 a minute, 100 an hour, 100 a day
    SendgridFree,
    /// 10 a minute, 600 an hour
    SendgridPaid,
    /// 5 a minute, 300 an hour, 5,000 a day
    MailgunFree,
    /// 2 a minute, 100 an hour, 1,000 a day
    Smtp2goFree,
    /// 30 a minute, 1,000 an hour
    Postfix,
}

const EXAMPLES: &str = "\
Examples:
  tollgate accounts add --tenant acme --host smtp.example.com --user sender@example.com \\
    --password-file secret --limit-minute 10 --limit-hour 100 --limit-day 1000
  tollgate accounts list --tenant acme
  tollgate accounts remove --tenant acme primary-smtp

A change takes effect immediately, and on every node within a second. Accounts of the configuration file can
only be changed there. Exit codes: 0 done, 2 an error.";

const ADDING: &str = "\
Examples:
  tollgate accounts add --tenant acme --id primary-smtp --host smtp.example.com --user sender@example.com \\
    --password-file secret --limit-minute 10 --limit-hour 100 --limit-day 1000
  tollgate accounts add --tenant acme --host email-smtp.eu-west-1.amazonaws.com --user AKIA... \\
    --password-file - --preset ses-production < secret
  tollgate accounts add --tenant acme --host 10.0.0.5 --port 25 --tls none --limit-hour 1000

Set limits slightly below those of the provider, if other programs use the account too. The server encrypts
the password, and never shows it. Exit codes: 0 added, 2 an error, such as an id that is taken.";

impl Preset {
    /// A minute, an hour, a day; 0 for no limit.
    fn limits(self) -> [u64; 3] {
        match self {
            Self::SesSandbox => [1, 200, 200],
            Self::SesProduction => [14, 840, 50_000],
            Self::SendgridFree => [1, 100, 100],
            Self::SendgridPaid => [10, 600, 0],
            Self::MailgunFree => [5, 300, 5_000],
            Self::Smtp2goFree => [2, 100, 1_000],
            Self::Postfix => [30, 1_000, 0],
        }
    }
}

impl Accounts {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match &self.action {
            Action::Add(add) => add.run(session)?,
            Action::List { tenant, listing } => {
                let limit = listing.limit.to_string();
                let members = [
                    ("tenant", tenant.as_deref()),
                    ("limit", Some(&*limit)),
                    ("after", listing.after.as_deref()),
                ];
                let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
                let answer = session.client.get(&Path::new(&["accounts"]).with_query(members))?;
                session.show(&answer, put_all)?;
            }
            Action::Show(named) => {
                let answer = session.client.get(&named.path())?;
                session.show(&answer, put)?;
            }
            Action::Pause(named) => named.turn(session, "pause")?,
            Action::Resume(named) => named.turn(session, "resume")?,
            Action::Remove(named) => {
                let answer = session.client.delete(&named.path())?;
                session.show(&answer, |answer: &Removed, out| {
                    let name = format!("{}/{}", named.tenant, named.id);
                    let name = words::plain(&name);
                    match answer.removed {
                        true => writeln!(out, "removed the account {name}"),
                        false => writeln!(out, "there is no account {name}"),
                    }
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl AccountArgument {
    fn path(&self) -> Path {
        Path::new(&["accounts", &self.tenant, &self.id])
    }
}

impl AccountArgument {
    fn turn(&self, session: &mut Session<'_>, action: &str) -> anyhow::Result<()> {
        let path = Path::new(&["accounts", &self.tenant, &self.id, action]);
        let answer = session.client.post(&path, &json!({}))?;
        session.show(&answer, put_pause)?;
        Ok(())
    }
}

impl Add {
    fn run(&self, session: &mut Session<'_>) -> anyhow::Result<()> {
        let body = Value::Object(self.body()?);
        let answer = match (&self.id, self.replace) {
            (Some(id), true) => session.client.put(&Path::new(&["accounts", &self.tenant, id]), &body)?,
            _ => session.client.post(&Path::new(&["accounts"]), &body)?,
        };
        session.show(&answer, |account: &Account, out| writeln!(out, "{}", words::plain(&account.id)))?;
        Ok(())
    }

    fn body(&self) -> anyhow::Result<Map<String, Value>> {
        let mut body = Map::new();
        let mut say = |member: &str, value: Value| body.insert(member.to_owned(), value);
        say("tenant", json!(self.tenant));
        say("host", json!(self.host));
        say("port", json!(self.port));
        say("priority", json!(self.priority));
        say("on_limit", json!(word(self.on_limit)));
        if let Some(id) = &self.id {
            say("id", json!(id));
        }
        if let Some(tls) = self.tls {
            say("tls", json!(word(tls)));
        }
        if let (Some(user), Some(file)) = (&self.user, &self.password_file) {
            say("user", json!(user));
            say("password", json!(password(file)?));
        }
        let usual = self.preset.map_or([0; 3], Preset::limits);
        let own = [self.limit_minute, self.limit_hour, self.limit_day];
        let members = ["limit_per_minute", "limit_per_hour", "limit_per_day"];
        for ((member, own), usual) in members.into_iter().zip(own).zip(usual) {
            say(member, json!(own.unwrap_or(usual)));
        }
        Ok(body)
    }
}

/// The name of a value, as the server knows it.
fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The first line of a file, which is not repeated anywhere.
fn password(file: &File) -> anyhow::Result<String> {
    const MOST: u64 = 64 * 1024;
    let mut text = String::new();
    if file == File::new("-") {
        io::stdin().take(MOST).read_to_string(&mut text).context("the password cannot be read")?;
    } else {
        let name = file.display();
        text = files::read_text(file).with_context(|| format!("{name} cannot be read"))?;
    }
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => bail!("the password is empty: its first line must have it"),
    }
}

/// Says whether something is paused now.
pub(super) fn put_pause(answer: &PauseChanged, out: &mut dyn Write) -> io::Result<()> {
    match (answer.paused, answer.changed) {
        (true, true) => writeln!(out, "paused"),
        (true, false) => writeln!(out, "was paused before"),
        (false, true) => writeln!(out, "resumed"),
        (false, false) => writeln!(out, "was not paused"),
    }
}

fn put_all(page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["tenant", "account", "server", "user", "limits", "state"]);
    for account in &page.accounts {
        let tone = if account.is_in_use() { Tone::Normal } else { Tone::Bad };
        let server = format!("{}:{}", account.host, account.port);
        let user = or_dash(account.user.clone());
        let limits = account.limits.join(", ");
        table.line(tone, [account.tenant.clone(), account.id.clone(), server, user, limits, account.state()]);
    }
    if table.is_empty() {
        return writeln!(out, "there are no accounts");
    }
    write!(out, "{table}")?;
    more(page.next.as_deref(), "accounts", out)
}

fn put(account: &Account, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}/{}\n", words::plain(&account.tenant), words::plain(&account.id))?;
    let lines = [
        ("server", format!("{}:{}", account.host, account.port)),
        ("tls", account.tls.clone()),
        ("user", or_dash(account.user.clone())),
        ("limits", account.limits.join(", ")),
        ("when exceeded", account.on_limit.clone()),
        ("priority", account.priority.to_string()),
        ("comes from", account.source.clone()),
        ("state", account.state()),
    ];
    for (title, text) in lines {
        writeln!(out, "{title:<15}{}", words::plain(&text))?;
    }
    Ok(())
}
