//! Webhooks, from their written form to their meaning. A secret is never printed, and of a URL only the host:
//! the rest may be a secret too.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tollgate_core::Span;

use super::BodyTemplate;
use crate::config::files;
use crate::config::hush;
use crate::config::limits;
use crate::config::problem::Findings;
use crate::config::raw::guards::WebhookTable;
use crate::config::tree::Path;

/// A webhook that is notified of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The URL.
    url: Url,
    /// The secret that signs notices. A receiver with a body of its own need not have one.
    pub secret: Option<WebhookSecret>,
    /// The body of its calls; without one it is the notice.
    pub body: Option<BodyTemplate>,
    /// The time-out of one try.
    pub timeout: Duration,
    /// The number of tries.
    pub tries: u32,
}

/// The secret that signs notices.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Arc<[u8]>);

/// A URL of which only the host is printed.
#[derive(Clone, PartialEq, Eq)]
struct Url(Uri);

/// Shorter secrets can be guessed.
const LEAST_SECRET_CHARS: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUTS: std::ops::RangeInclusive<Span> = Span::from_millis(100)..=Span::from_secs(60);
const TRIES: u32 = 5;
const MOST_TRIES: u32 = 10;

impl Webhook {
    /// The complete URL.
    pub fn uri(&self) -> &Uri {
        &self.url.0
    }

    /// The part of the URL that may be shown.
    pub fn place(&self) -> String {
        self.url.to_string()
    }

    /// Whether it uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.url.0.scheme_str() == Some("https")
    }

    /// The host to connect to, without brackets.
    pub fn host(&self) -> &str {
        let host = self.url.0.host().expect("checked when it was read");
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.url.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    /// Whether its requests can be read on the network.
    pub(super) fn is_in_clear(&self) -> bool {
        let loopback = self.host() == "localhost"
            || self.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        !self.is_encrypted() && !loopback
    }
}

impl WebhookSecret {
    /// This secret.
    pub fn new(secret: &str) -> Self {
        Self(secret.as_bytes().into())
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) = (self.0.scheme_str().unwrap_or("http"), self.0.host().unwrap_or_default());
        match self.0.port_u16() {
            Some(port) => write!(f, "{scheme}://{host}:{port}"),
            None => write!(f, "{scheme}://{host}"),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(super) fn mean(
    written: &WebhookTable,
    fields: &[Arc<str>],
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Webhook> {
    let url = match url(&written.url) {
        Ok(url) => Some(url),
        Err(problem) => {
            findings.value(&path.key("url"), problem);
            None
        }
    };
    let is_signed = written.body.is_none() || written.secret_env.is_some() || written.secret_file.is_some();
    let secret = if is_signed { secret(written, path, environment, findings).map(Some) } else { Some(None) };
    let body = match &written.body {
        None => Some(None),
        Some(body) => BodyTemplate::mean(body, fields, &path.key("body"), findings).map(Some),
    };
    let timeout = match &written.timeout {
        None => Some(TIMEOUT),
        Some(text) => {
            let path = path.key("timeout");
            let span = limits::span(text, &path, findings);
            if span.is_some_and(|span| !TIMEOUTS.contains(&span)) {
                findings.value(&path, "a try may take from 100ms to 60s");
            }
            span.map(Into::into)
        }
    };
    let tries = written.tries.map_or(Some(TRIES), |tries| u32::try_from(tries).ok());
    let tries = tries.filter(|tries| (1..=MOST_TRIES).contains(tries));
    if tries.is_none() {
        findings.value(&path.key("tries"), format!("it is tried from 1 to {MOST_TRIES} times"));
    }
    Some(Webhook { url: url?, secret: secret?, body: body?, timeout: timeout?, tries: tries? })
}

fn url(text: &str) -> Result<Url, &'static str> {
    if !(text.starts_with("http://") || text.starts_with("https://")) {
        return Err("an address starts with https:// or http://, as in https://example.com/hooks/locked");
    }
    let uri: Uri =
        text.parse().map_err(|_| "this is not an address, as in https://example.com/hooks/locked")?;
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err("the host is missing, as in https://example.com/hooks/locked");
    };
    if authority.as_str().contains('@') {
        return Err("no user or password here: calls are signed with the secret");
    }
    if text.contains('#') {
        return Err("what follows `#` is never sent: leave it out");
    }
    Ok(Url(uri))
}

fn secret(
    written: &WebhookTable,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<WebhookSecret> {
    let (setting, holder, secret) = match (&written.secret_env, &written.secret_file) {
        (Some(name), None) => {
            let holder = hush::variable(name);
            ("secret_env", holder, environment.get(name).cloned().ok_or_else(|| "is not set".to_owned()))
        }
        (None, Some(file)) => {
            let holder = hush::file(file);
            let text = files::read_text(file).map_err(|error| format!("cannot be read: {error}"));
            ("secret_file", holder, text.map(|text| text.trim_end().to_owned()))
        }
        (None, None) => {
            let problem = "what are calls signed with? Add `secret_env` or `secret_file`";
            findings.value(path, problem);
            return None;
        }
        (Some(_), Some(_)) => {
            findings.value(path, "keep one of `secret_env` and `secret_file`");
            return None;
        }
    };
    let problem = match secret {
        Err(problem) => format!("{holder} {problem}"),
        Ok(secret) => match secret.chars().count() {
            count if count < LEAST_SECRET_CHARS => format!(
                "the secret in {holder} has {count} characters: at least {LEAST_SECRET_CHARS} are needed, as from `openssl rand -hex 32`"
            ),
            _ => return Some(WebhookSecret::new(&secret)),
        },
    };
    findings.value(&path.key(setting), problem);
    None
}
