//! The Postfix policy service in words and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::config::PostfixConfig;

pub(super) fn print(postfix: &PostfixConfig, out: &mut dyn Write) -> io::Result<()> {
    let settings = &postfix.settings;
    writeln!(out, "\nPostfix policy service on {}", postfix.address)?;
    writeln!(out, "  requests are checked against policy {}", settings.policy)?;
    for (context, policy) in &settings.contexts {
        writeln!(out, "  requests with policy_context={context} are checked against policy {policy}")?;
    }
    for (port, policy) in &settings.ports {
        writeln!(out, "  requests about clients of port {port} are checked against policy {policy}")?;
    }
    writeln!(out, "  takes up to {} connections", settings.max_connections)
}

pub(super) fn as_json(postfix: &PostfixConfig) -> Value {
    let settings = &postfix.settings;
    json!({
        "listen": postfix.address.to_string(),
        "policy": &*settings.policy,
        "contexts": settings.contexts.iter().map(|(context, policy)| (context.clone(), json!(&**policy))).collect::<serde_json::Map<_, _>>(),
        "ports": settings.ports.iter().map(|(port, policy)| (port.to_string(), json!(&**policy))).collect::<serde_json::Map<_, _>>(),
        "max_connections": settings.max_connections,
    })
}
