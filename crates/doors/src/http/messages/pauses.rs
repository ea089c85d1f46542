//! What operators paused: mail and accounts, also those for which nothing waits.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_relay::Relay;
use tollgate_relay::accounts::Pausable;
use tollgate_relay::lanes::Scope;

use super::super::App;
use crate::http::endpoint::{Answered, Ask};
use crate::http::shown::json;

/// Everything that is paused.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pauses")]
pub(super) struct PausesShown {
    /// The pauses. Of all mail first, then of tenants, domains and accounts.
    pauses: Vec<MailPauseShown>,
}

/// A pause.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MailPause")]
pub(in crate::http) struct MailPauseShown {
    /// What is paused: `all`, `tenant`, `domain` or `account`.
    what: &'static str,
    /// The tenant; null if all mail is paused.
    tenant: Option<String>,
    /// The recipient domain, or the account.
    name: Option<String>,
}

impl MailPauseShown {
    /// The pauses of a relay that a caller may see: those of its own tenant, and of all mail.
    pub(in crate::http) fn all(relay: Option<&Arc<Relay>>, tenant: Option<&str>) -> Vec<Self> {
        let pauses = relay.map(|relay| relay.account_registry().pauses()).unwrap_or_default();
        let seen =
            |pause: &Self| tenant.is_none() || pause.tenant.is_none() || pause.tenant.as_deref() == tenant;
        pauses.iter().map(Self::of).filter(seen).collect()
    }

    fn of(pause: &Pausable) -> Self {
        let (what, tenant, name) = match pause {
            Pausable::Mail(Scope::Queue) => ("all", None, None),
            Pausable::Mail(Scope::Tenant(tenant)) => ("tenant", Some(tenant.to_string()), None),
            Pausable::Mail(Scope::Domain { tenant, domain }) => {
                ("domain", Some(tenant.to_string()), Some(domain.to_string()))
            }
            Pausable::Account { tenant, id } => ("account", Some(tenant.clone()), Some(id.clone())),
        };
        Self { what, tenant, name }
    }
}

pub(super) async fn show_pauses(app: Arc<App>, ask: Ask) -> Answered {
    let relay = app.relay()?;
    let tenant = ask.tenant_filter("tenant")?;
    Ok(json(&PausesShown { pauses: MailPauseShown::all(Some(relay), tenant.as_deref()) }))
}
