//! Commands, and the parameters of MAIL and RCPT.
//!
//! The syntax is parsed here and not by a library. The crate `smtp-proto` was considered, but it accepts input
//! that a relay must refuse. It skips a CR anywhere, ignores words after DATA, and reads `<postmaster>` as the
//! empty address, which here is the null sender and skips the limits of senders. Addresses also must stay
//! exactly as they were sent, quotation marks included, because they go to the next hop; and an AUTH without an
//! initial response differs from one with an empty one.

use super::address::{Address, BadPath, read_path};
use super::reply::Reply;
use super::xtext;
use crate::message::Notify;

/// The longest command other than AUTH: 512 bytes, and what SIZE, DSN, AUTH and SMTPUTF8 add to it.
const MOST_BYTES: usize = 2_048;
/// The longest ENVID and ORCPT (RFC 3461).
const MOST_ENVID: usize = 100;
const MOST_ORCPT: usize = 500;
/// The longest name in EHLO.
const MOST_NAME: usize = 255;

/// A valid command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command<'l> {
    Ehlo(&'l str),
    Helo(&'l str),
    StartTls,
    Auth { mechanism: &'l str, initial: Option<&'l str> },
    Mail(Mail),
    Rcpt(Rcpt),
    Data,
    Rset,
    Noop,
    Vrfy,
    Help,
    Quit,
}

/// The parameters of `MAIL FROM`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mail {
    pub(super) sender: Option<Address>,
    pub(super) size: Option<u64>,
    pub(super) utf8: bool,
    pub(super) return_full: Option<bool>,
    pub(super) envelope_id: Option<String>,
}

/// The parameters of `RCPT TO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rcpt {
    pub(super) address: Address,
    pub(super) notify: Option<Notify>,
    pub(super) original: Option<String>,
}

impl<'l> Command<'l> {
    /// Parses a line. An error is the reply to it.
    pub(super) fn read(line: &'l [u8]) -> Result<Self, Reply> {
        let unreadable = || Reply::new(500, "5.5.2", "Command is not valid UTF-8");
        let line = str::from_utf8(line).map_err(|_| unreadable())?;
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let verb = verb.to_ascii_uppercase();
        if line.len() > MOST_BYTES && verb != "AUTH" {
            return Err(Reply::new(500, "5.5.2", "Line too long"));
        }
        let alone = |command| match rest.trim_matches(' ') {
            "" => Ok(command),
            _ => Err(syntax("Command takes no parameters")),
        };
        match &*verb {
            "EHLO" => name(rest).map(Self::Ehlo),
            "HELO" => name(rest).map(Self::Helo),
            "MAIL" => mail(rest).map(Self::Mail),
            "RCPT" => rcpt(rest).map(Self::Rcpt),
            "AUTH" => auth(rest),
            "DATA" => alone(Self::Data),
            "RSET" => alone(Self::Rset),
            "QUIT" => alone(Self::Quit),
            "STARTTLS" => alone(Self::StartTls),
            "NOOP" => Ok(Self::Noop),
            "HELP" => Ok(Self::Help),
            "VRFY" => Ok(Self::Vrfy),
            "EXPN" | "BDAT" | "ETRN" | "TURN" | "ATRN" | "BURL" => {
                Err(Reply::new(502, "5.5.1", "Command not implemented"))
            }
            _ => Err(Reply::new(500, "5.5.2", "Command unknown")),
        }
    }
}

fn syntax(text: &'static str) -> Reply {
    Reply::new(501, "5.5.2", text)
}

fn bad_parameter(text: &'static str) -> Reply {
    Reply::new(501, "5.5.4", text)
}

/// Parses the name that a client gives itself. It goes into `Received`, so it must not contain characters that
/// have a meaning there.
fn name(rest: &str) -> Result<&str, Reply> {
    let name = rest.trim_matches(' ');
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;\\\"".contains(&byte);
    if name.is_empty() || name.len() > MOST_NAME || !name.bytes().all(fits) {
        return Err(syntax("Expected the name of the client"));
    }
    Ok(name)
}

fn auth(rest: &str) -> Result<Command<'_>, Reply> {
    let mut words = rest.split(' ').filter(|word| !word.is_empty());
    let mechanism = words.next().ok_or_else(|| syntax("Expected AUTH mechanism [initial-response]"))?;
    let initial = words.next();
    if words.next().is_some() {
        return Err(syntax("Expected AUTH mechanism [initial-response]"));
    }
    Ok(Command::Auth { mechanism, initial })
}

/// The text after a keyword such as `FROM:`, in any case.
fn after_keyword<'r>(rest: &'r str, keyword: &str) -> Option<&'r str> {
    let rest = rest.trim_start_matches(' ');
    let head = rest.get(..keyword.len())?;
    head.eq_ignore_ascii_case(keyword).then(|| &rest[keyword.len()..])
}

fn mail(rest: &str) -> Result<Mail, Reply> {
    let usage = || syntax("Expected MAIL FROM:<address> [parameters]");
    let path = after_keyword(rest, "FROM:").ok_or_else(usage)?;
    let (sender, rest) = read_path(path).map_err(|bad| match bad {
        BadPath::Syntax => usage(),
        BadPath::Address => Reply::new(553, "5.1.7", "Sender is not a mail address with a domain"),
    })?;
    let mut mail = Mail { sender, ..Mail::default() };
    let (mut body, mut auth) = (None, None);
    for (name, value) in parameters(rest) {
        let fresh = match (&*name, value) {
            ("SIZE", Some(value)) => put(&mut mail.size, Some(size(value)?)),
            ("BODY", Some(value)) => put(&mut body, Some(is_known(value, &["7BIT", "8BITMIME"])?)),
            ("RET", Some(value)) => {
                put(&mut mail.return_full, Some(is_known(value, &["HDRS", "FULL"])? == 1))
            }
            ("ENVID", Some(value)) => {
                let decoded = (value.len() <= MOST_ENVID).then(|| xtext::decode(value)).flatten();
                put(&mut mail.envelope_id, Some(decoded.ok_or_else(|| bad_parameter("Bad ENVID"))?))
            }
            // The client is not trusted to name the original submitter (RFC 4954, 5).
            ("AUTH", Some(_)) => put(&mut auth, Some(())),
            ("SMTPUTF8", None) => !std::mem::replace(&mut mail.utf8, true),
            _ => return Err(Reply::new(555, "5.5.4", "Unknown parameter of MAIL")),
        };
        if !fresh {
            return Err(bad_parameter("A parameter is given twice"));
        }
    }
    Ok(mail)
}

fn rcpt(rest: &str) -> Result<Rcpt, Reply> {
    let usage = || syntax("Expected RCPT TO:<address> [parameters]");
    let bad_address = || Reply::new(553, "5.1.3", "Recipient is not a mail address with a domain");
    let path = after_keyword(rest, "TO:").ok_or_else(usage)?;
    let (address, rest) = read_path(path).map_err(|bad| match bad {
        BadPath::Syntax => usage(),
        BadPath::Address => bad_address(),
    })?;
    let mut rcpt = Rcpt { address: address.ok_or_else(bad_address)?, notify: None, original: None };
    for (name, value) in parameters(rest) {
        let fresh = match (&*name, value) {
            ("NOTIFY", Some(value)) => {
                put(&mut rcpt.notify, Some(notify(value).ok_or_else(|| bad_parameter("Bad NOTIFY"))?))
            }
            ("ORCPT", Some(value)) => {
                put(&mut rcpt.original, Some(original(value).ok_or_else(|| bad_parameter("Bad ORCPT"))?))
            }
            _ => return Err(Reply::new(555, "5.5.4", "Unknown parameter of RCPT")),
        };
        if !fresh {
            return Err(bad_parameter("A parameter is given twice"));
        }
    }
    Ok(rcpt)
}

/// Parameters, their names in upper case.
fn parameters(rest: &str) -> impl Iterator<Item = (String, Option<&str>)> {
    rest.split(' ').filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
        Some((name, value)) => (name.to_ascii_uppercase(), Some(value)),
        None => (word.to_ascii_uppercase(), None),
    })
}

/// Sets a value. Returns whether it was not set before.
fn put<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    std::mem::replace(place, value).is_none()
}

/// Parses a number of bytes. A number beyond the range is too large, whatever the limit is.
fn size(value: &str) -> Result<u64, Reply> {
    if value.is_empty() || value.len() > 20 || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad_parameter("Bad SIZE"));
    }
    Ok(value.parse().unwrap_or(u64::MAX))
}

/// The index of a value among these words.
fn is_known(value: &str, words: &[&str]) -> Result<usize, Reply> {
    let place = words.iter().position(|word| value.eq_ignore_ascii_case(word));
    place.ok_or_else(|| bad_parameter("Unknown value of a parameter"))
}

/// `NEVER`, or a list of `SUCCESS`, `FAILURE` and `DELAY`.
fn notify(value: &str) -> Option<Notify> {
    let mut notify = Notify { success: false, failure: false, delay: false };
    if value.eq_ignore_ascii_case("NEVER") {
        return Some(notify);
    }
    for word in value.split(',') {
        match is_known(word, &["SUCCESS", "FAILURE", "DELAY"]).ok()? {
            0 => notify.success = true,
            1 => notify.failure = true,
            _ => notify.delay = true,
        }
    }
    Some(notify)
}

/// `rfc822;user@example.com`, decoded. Addresses of the type `utf-8` have an encoding of their own (RFC 6533).
fn original(value: &str) -> Option<String> {
    let (kind, address) = value.split_once(';')?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if value.len() > MOST_ORCPT || kind.is_empty() || address.is_empty() || !kind.bytes().all(fits) {
        return None;
    }
    if kind.eq_ignore_ascii_case("utf-8") {
        return (!address.chars().any(char::is_control)).then(|| value.to_owned());
    }
    Some(format!("{kind};{}", xtext::decode(address)?))
}
