//! Accounts as JSON: with our members, and with those of genro-mail-proxy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tollgate_core::{Limit, Span};
use tollgate_relay::accounts::{AccountDraft, AccountView, OnLimit, Secret, Source, fresh_id};
use tollgate_relay::client::TlsMode;

use crate::http::body::{Text, Whole};
use crate::http::limits::{self, Written};
use crate::http::problem::Problem;
use crate::http::shown::Moment;

/// The port for submission, and the one where TLS begins at once.
const SUBMISSION: u64 = 587;
const IMPLICIT: u64 = 465;

const MINUTE: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3_600);
const DAY: Span = Span::from_secs(86_400);

/// An account that mail is sent through.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AccountRequest")]
pub(super) struct AccountBody<'b> {
    /// Its name among the tenant's accounts: 1 to 64 of `A-Z a-z 0-9 _ . - @`. Without it the account gets one.
    #[serde(borrow, default)]
    id: Option<Text<'b>>,
    /// The tenant that it belongs to.
    #[serde(borrow, default)]
    tenant: Option<Text<'b>>,
    /// The same as `tenant`.
    #[serde(borrow, default)]
    tenant_id: Option<Text<'b>>,
    /// The mail server's name or address.
    #[serde(borrow)]
    host: Text<'b>,
    /// Its port; 587 by default.
    #[serde(default)]
    port: Option<Whole>,
    /// `starttls`, `implicit` or `none`; by default `implicit` at port 465 and `starttls` elsewhere.
    #[serde(borrow, default)]
    tls: Option<Text<'b>>,
    /// False is `tls: none`; true is its default.
    #[serde(default)]
    use_tls: Option<bool>,
    /// The user, if the server wants a login.
    #[serde(borrow, default)]
    user: Option<Text<'b>>,
    /// The password. It is encrypted, and never shown.
    #[serde(borrow, default)]
    #[schemars(with = "Option<String>")]
    password: Option<&'b RawValue>,
    /// Limits in the grammar, as in `["10/min sliding", "1000/day sliding"]`; by default unlimited.
    #[serde(borrow, default)]
    limits: Option<Written<'b>>,
    /// The same as `N/min sliding` in `limits`; null and 0 mean no limit.
    #[serde(default)]
    limit_per_minute: Option<Whole>,
    /// The same as `N/hour sliding` in `limits`; null and 0 mean no limit.
    #[serde(default)]
    limit_per_hour: Option<Whole>,
    /// The same as `N/day sliding` in `limits`; null and 0 mean no limit.
    #[serde(default)]
    limit_per_day: Option<Whole>,
    /// What happens to mail that exceeds a limit: `defer`, the default, or `reject`.
    #[serde(borrow, default)]
    on_limit: Option<Text<'b>>,
    /// The same as `on_limit`.
    #[serde(borrow, default)]
    limit_behavior: Option<Text<'b>>,
    /// Accounts of a tenant with lower numbers are used first; 0 by default.
    #[serde(default)]
    priority: Option<Whole>,
}

/// An account. Its password is never shown.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Account")]
pub(super) struct AccountShown {
    id: String,
    tenant: String,
    /// The same as `tenant`.
    tenant_id: String,
    host: String,
    port: u16,
    /// `starttls`, `implicit`, `none` or `opportunistic`.
    tls: &'static str,
    /// Whether `tls` is not `none`.
    use_tls: bool,
    /// The user; null if there is no login.
    user: Option<String>,
    /// The limits in force; `unlimited` if there are none.
    limits: Vec<String>,
    limit_per_minute: Option<u64>,
    limit_per_hour: Option<u64>,
    limit_per_day: Option<u64>,
    /// `defer` or `reject`.
    on_limit: &'static str,
    /// The same as `on_limit`.
    limit_behavior: &'static str,
    priority: u32,
    /// `configuration`, or `api` for one that was added at run time.
    source: &'static str,
    /// False if its password cannot be read with the relay's key.
    usable: bool,
    /// Why it is not used now; null if it is.
    paused: Option<AccountPauseShown>,
}

/// Why an account is not used.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AccountPause")]
struct AccountPauseShown {
    /// When it is used again (RFC 3339); null if an operator has to resume it.
    #[schemars(with = "Option<String>")]
    until: Option<Moment>,
    /// What its server said, or who paused it.
    reason: String,
}

impl AccountBody<'_> {
    /// The account that it asks for; the path may name it.
    pub(super) fn draft(&self, named: Option<(String, String)>) -> Result<AccountDraft, Problem> {
        let tenant = same(("tenant", self.tenant.as_ref()), ("tenant_id", self.tenant_id.as_ref()))?;
        let id = self.id.as_ref().map(Text::as_str);
        let (tenant, id) = match named {
            Some((own, _)) if tenant.is_some_and(|tenant| tenant != own) => return Err(moved("tenant")),
            Some((_, own)) if id.is_some_and(|id| id != own) => return Err(moved("id")),
            Some(named) => named,
            None => {
                let tenant = tenant.ok_or_else(|| Problem::bad_request("`tenant` is missing"))?;
                (tenant.to_owned(), id.map_or_else(fresh_id, str::to_owned))
            }
        };
        let port = self.port.map_or(SUBMISSION, |Whole(port)| port);
        let too_large = |member: &str| Problem::bad_request(format!("`{member}` is too large"));
        Ok(AccountDraft {
            tenant,
            id,
            host: self.host.as_str().to_owned(),
            tls: self.tls(port)?,
            port: u16::try_from(port).map_err(|_| too_large("port"))?,
            user: self.user.as_ref().map(|user| user.as_str().to_owned()),
            password: self.password.map(password).transpose()?,
            limits: self.wanted_limits()?,
            on_limit: self.wanted_behaviour()?,
            priority: u32::try_from(self.priority.map_or(0, |Whole(priority)| priority))
                .map_err(|_| too_large("priority"))?,
        })
    }

    fn tls(&self, port: u64) -> Result<TlsMode, Problem> {
        let default = if port == IMPLICIT { TlsMode::Implicit } else { TlsMode::StartTls };
        match (self.tls.as_ref().map(Text::as_str), self.use_tls) {
            (None, None | Some(true)) => Ok(default),
            (None, Some(false)) => Ok(TlsMode::None),
            (Some(_), Some(_)) => Err(Problem::bad_request("give either `tls` or `use_tls`")),
            (Some(name), None) => match TlsMode::of_name(name) {
                Some(mode @ (TlsMode::None | TlsMode::StartTls | TlsMode::Implicit)) => Ok(mode),
                Some(TlsMode::Opportunistic) | None => {
                    Err(Problem::bad_request("`tls` is `starttls`, `implicit` or `none`"))
                }
            },
        }
    }

    fn wanted_limits(&self) -> Result<Vec<Limit>, Problem> {
        let each =
            [(self.limit_per_minute, "min"), (self.limit_per_hour, "hour"), (self.limit_per_day, "day")];
        let written = each.iter().filter_map(|(number, period)| {
            let Whole(number) = number.filter(|Whole(number)| *number > 0)?;
            Some(format!("{number}/{period} sliding"))
        });
        let written: Vec<String> = written.collect();
        match &self.limits {
            Some(_) if !written.is_empty() => Err(Problem::bad_request(
                "give either `limits`, or `limit_per_minute`, `limit_per_hour` and `limit_per_day`",
            )),
            Some(limits) => limits::read(&limits.0.iter().map(Text::as_str).collect::<Vec<_>>()),
            None if written.is_empty() => Ok(Vec::new()),
            None => limits::read(&written.iter().map(String::as_str).collect::<Vec<_>>()),
        }
    }

    fn wanted_behaviour(&self) -> Result<OnLimit, Problem> {
        let own = ("on_limit", self.on_limit.as_ref());
        let name = same(own, ("limit_behavior", self.limit_behavior.as_ref()))?;
        let Some(name) = name else { return Ok(OnLimit::Defer) };
        OnLimit::of_name(name).ok_or_else(|| Problem::bad_request("`on_limit` is `defer` or `reject`"))
    }
}

/// The value of a member that has two names.
fn same<'t>(
    (one, first): (&str, Option<&'t Text<'_>>),
    (other, second): (&str, Option<&'t Text<'_>>),
) -> Result<Option<&'t str>, Problem> {
    match (first.map(Text::as_str), second.map(Text::as_str)) {
        (Some(first), Some(second)) if first != second => {
            Err(Problem::bad_request(format!("`{one}` and `{other}` differ: give one of them")))
        }
        (first, second) => Ok(first.or(second)),
    }
}

fn moved(member: &str) -> Problem {
    Problem::bad_request(format!("`{member}` differs from the path: an account keeps its name"))
}

/// A password. A wrong one is not repeated in the answer.
fn password(raw: &RawValue) -> Result<Secret, Problem> {
    let read = serde_json::from_str::<String>(raw.get());
    read.map(Secret).map_err(|_| Problem::bad_request("`password` is a string"))
}

impl AccountShown {
    pub(super) fn of(view: AccountView) -> Self {
        let per = |period: Span| view.limits.iter().find_map(|limit| sliding(limit, period));
        Self {
            tenant_id: view.tenant.clone(),
            limit_per_minute: per(MINUTE),
            limit_per_hour: per(HOUR),
            limit_per_day: per(DAY),
            limits: match &view.limits[..] {
                [] => vec!["unlimited".to_owned()],
                limits => limits.iter().map(ToString::to_string).collect(),
            },
            id: view.id,
            tenant: view.tenant,
            host: view.host,
            port: view.port,
            tls: view.tls.name(),
            use_tls: view.tls != TlsMode::None,
            user: view.user,
            on_limit: view.on_limit.name(),
            limit_behavior: view.on_limit.name(),
            priority: view.priority,
            source: match view.source {
                Source::Configuration => "configuration",
                Source::Api => "api",
            },
            usable: view.usable,
            paused: view.paused.map(|pause| AccountPauseShown {
                until: (!view.held).then_some(Moment(pause.until)),
                reason: pause.reason,
            }),
        }
    }
}

/// The number of a sliding limit over this period.
fn sliding(limit: &Limit, period: Span) -> Option<u64> {
    limit.sliding().filter(|sliding| sliding.period() == period).map(|sliding| sliding.max())
}
