//! Prints on standard output once the server listens: its configuration file, its store, its listeners, and a
//! first request to try.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use serde::{Serialize, Serializer};
use tollgate_core::Policy;
use tollgate_core::key::FieldKind;
use tollgate_gateway::Gateway;
use tollgate_postfix::PolicyAddress;

use crate::cli::store_in_words;
use crate::command::plain;
use crate::config::{Config, RelayListener};

/// Where the server listens.
pub(crate) struct Listening<'l> {
    pub(crate) api: SocketAddr,
    pub(crate) gateway: Option<&'l Gateway>,
    pub(crate) relay: &'l [RelayListener],
    pub(crate) postfix: Option<&'l PolicyAddress>,
}

/// Prints the configuration file, the store, the listeners and a first request to try.
pub(crate) fn greet(
    out: &mut dyn Write,
    (file, config): (Option<&Path>, &Config),
    listening: Listening<'_>,
) -> io::Result<()> {
    let Listening { api: address, gateway, relay, postfix } = listening;
    match file {
        Some(file) => writeln!(out, "reads the configuration {}", plain(&file.display().to_string()))?,
        None => writeln!(out, "reads the built-in starter configuration: there is no tollgate.yaml here")?,
    }
    writeln!(out, "keeps counters {}", plain(&store_in_words(&config.store)))?;
    let listeners = config.gateway.iter().flat_map(|settings| &settings.listeners);
    for (listener, address) in listeners.zip(gateway.iter().flat_map(|gateway| gateway.addresses())) {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        writeln!(out, "the gateway listens on {scheme}://{address}")?;
    }
    for listener in relay {
        writeln!(out, "the relay listens on {listener}")?;
    }
    if let Some(address) = postfix {
        writeln!(out, "the Postfix policy service listens on {}", plain(&address.to_string()))?;
    }
    writeln!(out, "tollgate {} listens on http://{address}", env!("CARGO_PKG_VERSION"))?;
    if let Some(policy) = config.policies.iter().next() {
        let token = if config.keys.is_empty() { "" } else { " -H \"Authorization: Bearer $TOLLGATE_TOKEN\"" };
        let attempt = attempt(policy);
        writeln!(out, "try: curl -i http://{address}/api/v1/check{token} -d '{attempt}'")?;
    }
    out.flush()
}

/// An attempt, as the API takes it.
#[derive(Serialize)]
struct Attempt<'p> {
    policy: &'p str,
    #[serde(serialize_with = "write_in_order")]
    fields: Vec<(&'p str, &'static str)>,
}

fn write_in_order<S: Serializer>(fields: &[(&str, &str)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().copied())
}

/// An attempt to which every rule of the policy applies.
fn attempt(policy: &Policy) -> String {
    let mut fields = Vec::new();
    for field in policy.rules.iter().flat_map(|rule| rule.by.iter()) {
        let example = (&*field.name, example_of(field.kind));
        if !fields.contains(&example) {
            fields.push(example);
        }
    }
    let attempt = Attempt { policy: &policy.name, fields };
    serde_json::to_string(&attempt).expect("texts can be written as JSON")
}

fn example_of(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Ip { .. } => "192.0.2.7",
        FieldKind::Address => "user@example.com",
        FieldKind::Domain => "example.com",
        FieldKind::Text => "ada",
    }
}
