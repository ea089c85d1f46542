//! The relay in words and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use tollgate_relay::accounts::{Account, OnLimit};
use tollgate_relay::client::TlsMode;
use tollgate_relay::server::Kind;

use crate::config::{RelayConfig, memory};

pub(super) fn print(relay: &RelayConfig, out: &mut dyn Write) -> io::Result<()> {
    let (settings, server, terms) = (&relay.settings, &relay.settings.server, &relay.settings.accept);
    let listeners: Vec<String> = relay.listeners.iter().map(ToString::to_string).collect();
    writeln!(out, "\nrelay {} on {}", terms.hostname, listeners.join(", "))?;
    let policy =
        |name: Option<&str>| name.map_or_else(|| "no policy".to_owned(), |name| format!("policy {name}"));
    writeln!(out, "  connections are checked against {}", policy(server.connect.as_deref()))?;
    writeln!(out, "  messages are checked against {}", policy(terms.policy.as_deref()))?;
    writeln!(out, "  deliveries are checked against {}", policy(Some(&settings.deliver)))?;
    if let Some(guard) = &server.guard {
        writeln!(out, "  logins are guarded by {guard}")?;
    }
    writeln!(
        out,
        "  takes messages of up to {} with up to {} recipients",
        memory::in_words(terms.max_size),
        terms.max_recipients
    )?;
    let free = memory::in_words(settings.queue.min_free);
    writeln!(
        out,
        "  keeps up to {} messages in {}, and {free} of its disk free",
        settings.queue.max_messages,
        settings.directory.display()
    )?;
    writeln!(out, "  retries failed deliveries for {}", settings.retry.lifetime)?;
    for network in &server.networks {
        writeln!(out, "  {network} may send without a login, as tenant {}", server.network_tenant)?;
    }
    if !server.users.is_empty() {
        writeln!(out, "  users may send after a login with TLS")?;
    }
    for account in &settings.accounts {
        writeln!(out, "  {}", in_words(account))?;
    }
    match &settings.direct {
        Some(_) => writeln!(out, "  other mail is delivered to MX hosts"),
        None => writeln!(out, "  other mail waits for an account"),
    }
}

fn in_words(account: &Account) -> String {
    let to = &account.destination;
    let tls = match to.tls {
        TlsMode::None => "without TLS",
        TlsMode::StartTls => "with STARTTLS",
        TlsMode::Implicit => "over TLS",
        TlsMode::Opportunistic => "over TLS if it is offered",
    };
    let user = to.login.as_ref().map_or_else(String::new, |login| format!(", as user {}", login.user));
    let beyond = match account.on_limit {
        OnLimit::Defer => "",
        OnLimit::Reject => "; beyond its limits, mail is returned",
    };
    format!(
        "account {}/{} sends through {}:{} {tls}{user}{beyond}",
        account.tenant, account.id, to.host, to.port
    )
}

pub(super) fn as_json(relay: &RelayConfig) -> Value {
    let (settings, server) = (&relay.settings, &relay.settings.server);
    let listeners = relay.listeners.iter().map(
        |listener| json!({ "address": listener.address.to_string(), "smtps": listener.kind == Kind::Smtps }),
    );
    let accounts = settings.accounts.iter().map(|account| {
        json!({
            "tenant": account.tenant,
            "id": account.id,
            "host": account.destination.host,
            "port": account.destination.port,
            "user": account.destination.login.as_ref().map(|login| &login.user),
            "priority": account.priority,
        })
    });
    json!({
        "hostname": settings.accept.hostname,
        "listeners": listeners.collect::<Vec<_>>(),
        "tls": server.tls.is_some(),
        "connect": server.connect.as_deref(),
        "accept": settings.accept.policy.as_deref(),
        "deliver": &*settings.deliver,
        "guard": server.guard.as_deref(),
        "networks": server.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "queue": {
            "dir": settings.directory.display().to_string(),
            "max_messages": settings.queue.max_messages,
            "min_free_bytes": settings.queue.min_free,
            "lifetime": settings.retry.lifetime.to_string(),
        },
        "accounts": accounts.collect::<Vec<_>>(),
        "direct": settings.direct.is_some(),
    })
}
