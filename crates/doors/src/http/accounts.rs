//! Accounts of the mail relay: `/api/v1/accounts`, and `/account` as genro-mail-proxy has it.

mod shape;

use std::sync::Arc;

use axum::http::header::LOCATION;
use axum::http::{HeaderValue, Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_relay::accounts::{AccountFault, AccountView, Existing, Pausable, Put};

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body;
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::messages::PauseChanged;
use super::overrides::Removed;
use super::page::{self, Page};
use super::path;
use super::problem::Problem;
use super::shown::json;
use shape::{AccountBody, AccountShown};

const ALL: &str = "/api/v1/accounts";
const ONE: &str = "/api/v1/accounts/{tenant}/{id}";
const PAUSE: &str = "/api/v1/accounts/{tenant}/{id}/pause";
const RESUME: &str = "/api/v1/accounts/{tenant}/{id}/resume";
const LEGACY: &str = "/account";

#[derive(Serialize, JsonSchema)]
struct AccountPage {
    /// Accounts by tenant and id.
    accounts: Vec<AccountShown>,
    /// The value of `after` for the next page; null on the last one.
    next: Option<String>,
}

/// An account that was written.
#[derive(Serialize, JsonSchema)]
struct AccountWritten {
    /// Always true.
    ok: bool,
    #[serde(flatten)]
    account: AccountShown,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let (read, admin) = (Some(Role::Read), Some(Role::Admin));
    let media = "application/json";
    let list = Operation::new(ALL, "List the accounts that mail is sent through")
        .query(QUERY)
        .answers::<AccountPage>();
    let make = Operation::new(ALL, "Add an account; the server generates a missing `id`")
        .takes::<AccountBody<'_>>()
        .also::<AccountShown>(201, media);
    let look = Operation::new(ONE, "Show an account, without its password").answers::<AccountShown>();
    let write =
        Operation::new(ONE, "Add or replace an account; if `password` is missing, the stored one is kept")
            .takes::<AccountBody<'_>>()
            .answers::<AccountShown>()
            .also::<AccountShown>(201, media);
    let remove = Operation::new(ONE, "Remove an account that was added over the API").answers::<Removed>();
    let legacy = Operation::new(LEGACY, "Add an account, or replace it, as genro-mail-proxy does")
        .takes::<AccountBody<'_>>()
        .answers::<AccountWritten>();
    let pause = Operation::new(
        PAUSE,
        "Pause an account on all nodes; the relay uses the tenant's other accounts, or mail waits",
    )
    .answers::<PauseChanged>();
    let resume = Operation::new(RESUME, "Resume an account that was paused, or whose login failed")
        .answers::<PauseChanged>();
    vec![
        Endpoint::new(Method::POST, PAUSE, admin, pause_one).serves_tenants().does(pause),
        Endpoint::new(Method::POST, RESUME, admin, resume_one).serves_tenants().does(resume),
        Endpoint::new(Method::GET, ALL, read, show_page).serves_tenants().does(list),
        Endpoint::new(Method::POST, ALL, admin, make_one).does(make),
        Endpoint::new(Method::GET, ONE, read, show_one).serves_tenants().does(look),
        Endpoint::new(Method::PUT, ONE, admin, write_one).does(write),
        Endpoint::new(Method::DELETE, ONE, admin, remove_one).does(remove),
        Endpoint::new(Method::POST, LEGACY, admin, write_legacy).does(legacy),
    ]
}

const QUERY: &[(&str, &str)] = &[
    ("tenant", "only accounts of this tenant"),
    page::QUERY[0],
    ("after", "`next` of the previous page: its last account, as `tenant/id`"),
];

async fn show_page(app: Arc<App>, ask: Ask) -> Answered {
    let (relay, page) = (app.relay()?, Page::of(&ask)?);
    let tenant = ask.tenant_filter("tenant")?;
    let after = page.after.as_deref().map(|after| after.split_once('/').unwrap_or((after, "")));
    let found = relay.account_registry().list(tenant.as_deref(), after, page.limit + 1);
    let names: Vec<String> = found.iter().map(name).collect();
    let (mut accounts, next) = page.cut(found.into_iter().zip(names).collect(), |(_, name)| name);
    let accounts = accounts.drain(..).map(|(view, _)| AccountShown::of(view)).collect();
    Ok(json(&AccountPage { accounts, next }))
}

async fn show_one(app: Arc<App>, ask: Ask) -> Answered {
    let (tenant, id) = named(&ask)?;
    let view = app.relay()?.account_registry().view(&tenant, &id);
    let view = view.ok_or_else(|| AccountFault::Unknown { name: format!("{tenant}/{id}") })?;
    Ok(json(&AccountShown::of(view)))
}

async fn make_one(app: Arc<App>, ask: Ask) -> Answered {
    let body: AccountBody<'_> = body::read(&ask.body)?;
    let (view, _) = write(&app, &ask, &body, None, Existing::Refuse).await?;
    Ok(created(view))
}

async fn write_one(app: Arc<App>, ask: Ask) -> Answered {
    let body: AccountBody<'_> = body::read(&ask.body)?;
    let name = named(&ask)?;
    Ok(match write(&app, &ask, &body, Some(name), Existing::Replace).await? {
        (view, Put::Created) => created(view),
        (view, Put::Replaced) => json(&AccountShown::of(view)),
    })
}

async fn write_legacy(app: Arc<App>, ask: Ask) -> Answered {
    let body: AccountBody<'_> = body::read(&ask.body)?;
    let (view, _) = write(&app, &ask, &body, None, Existing::Replace).await?;
    Ok(json(&AccountWritten { ok: true, account: AccountShown::of(view) }))
}

async fn remove_one(app: Arc<App>, ask: Ask) -> Answered {
    let (tenant, id) = named(&ask)?;
    let registry = app.relay()?.account_registry();
    let before = registry.view(&tenant, &id).map(|view| in_words(&view));
    match registry.remove(&tenant, &id).await {
        Ok(()) => {
            let what = format!("{tenant}/{id}");
            // A new account of this name must not be paused. If the pause cannot be ended now, an operator can end it.
            let _ = registry.resume(&Pausable::Account { tenant, id }).await;
            Change { action: "account.remove", what: &what, before, ..Change::default() }.record(&ask);
            Ok(json(&Removed { removed: true }))
        }
        Err(AccountFault::Unknown { .. }) => Ok(json(&Removed { removed: false })),
        Err(fault) => Err(fault.into()),
    }
}

async fn pause_one(app: Arc<App>, ask: Ask) -> Answered {
    let (tenant, id) = named(&ask)?;
    let what = Pausable::Account { tenant, id };
    let changed = app.relay()?.account_registry().pause(&what).await?;
    if changed {
        Change { action: "account.pause", what: &what.to_string(), ..Change::default() }.record(&ask);
    }
    Ok(json(&PauseChanged { paused: true, changed }))
}

async fn resume_one(app: Arc<App>, ask: Ask) -> Answered {
    let (tenant, id) = named(&ask)?;
    let what = Pausable::Account { tenant, id };
    let changed = app.relay()?.account_registry().resume(&what).await?;
    if changed {
        Change { action: "account.resume", what: &what.to_string(), ..Change::default() }.record(&ask);
    }
    Ok(json(&PauseChanged { paused: false, changed }))
}

/// Writes an account, and logs it without its password.
async fn write(
    app: &App,
    ask: &Ask,
    body: &AccountBody<'_>,
    name: Option<(String, String)>,
    existing: Existing,
) -> Result<(AccountView, Put), Problem> {
    let draft = body.draft(name)?;
    ask.check_tenant(&draft.tenant)?;
    let registry = app.relay()?.account_registry();
    let (tenant, id) = (draft.tenant.clone(), draft.id.clone());
    let before = registry.view(&tenant, &id).map(|view| in_words(&view));
    let put = registry.put(draft, existing).await?;
    let view = registry.view(&tenant, &id);
    let view = view.ok_or_else(|| AccountFault::Contended { name: format!("{tenant}/{id}") })?;
    let after = Some(in_words(&view));
    let action = if put == Put::Created { "account.create" } else { "account.change" };
    Change { action, what: &format!("{tenant}/{id}"), before, after }.record(ask);
    Ok((view, put))
}

/// The account that the path names, if the caller may look at its tenant.
fn named(ask: &Ask) -> Result<(String, String), Problem> {
    let (tenant, id) = path::rest(&ask.uri);
    let id = id.strip_suffix("/pause").or_else(|| id.strip_suffix("/resume")).unwrap_or(id);
    let (tenant, id) = (path::decode(tenant)?, path::decode(id)?);
    ask.check_tenant(&tenant)?;
    Ok((tenant, id))
}

fn created(view: AccountView) -> axum::response::Response {
    // Names of accounts need no encoding.
    let location = HeaderValue::try_from(format!("{ALL}/{}", name(&view))).ok();
    let mut response = json(&AccountShown::of(view));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().extend(location.map(|location| (LOCATION, location)));
    response
}

fn name(view: &AccountView) -> String {
    format!("{}/{}", view.tenant, view.id)
}

/// An account for the audit log.
fn in_words(view: &AccountView) -> String {
    let limits: Vec<String> = view.limits.iter().map(ToString::to_string).collect();
    let limits = if limits.is_empty() { "unlimited".to_owned() } else { limits.join(", ") };
    let user = view.user.as_deref().map_or_else(String::new, |user| format!(" as {user}"));
    let (host, port, tls, on_limit) = (&view.host, view.port, view.tls.name(), view.on_limit.name());
    format!("{host}:{port} {tls}{user}; {limits}; {on_limit}; priority {}", view.priority)
}

impl From<AccountFault> for Problem {
    fn from(fault: AccountFault) -> Self {
        let detail = fault.to_string();
        match fault {
            AccountFault::Invalid { .. } => Self::bad_request(detail),
            AccountFault::Unknown { .. } => Self::not_found(detail),
            AccountFault::Configured { .. }
            | AccountFault::Exists { .. }
            | AccountFault::NoKey
            | AccountFault::NoRule
            | AccountFault::Contended { .. } => Self::conflict(detail),
            AccountFault::Limits(fault) => fault.into(),
            AccountFault::Store(error) => error.into(),
        }
    }
}
