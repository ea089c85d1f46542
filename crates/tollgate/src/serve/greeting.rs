//! Prints on standard output once the server listens: its configuration file, its store, its listeners, the address of
//! the console, and a first request to try.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::{Serialize, Serializer};
use tollgate_core::key::FieldKind;
use tollgate_core::{Policy, Stance, Target, Ticket};
use tollgate_gateway::Gateway;
use tollgate_postfix::PolicyAddress;

use crate::cli::store_in_words;
use crate::command::plain;
use crate::config::{Config, RelayListener};

/// Addresses for examples (RFC 5737).
const ADDRESSES: [&str; 3] = ["192.0.2.7", "198.51.100.7", "203.0.113.7"];

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
    writeln!(out, "the console is at http://{address}/")?;
    if let Some(Request { path, body }) = first_request(config) {
        let token = if config.keys.is_empty() { "" } else { " -H \"Authorization: Bearer $TOLLGATE_TOKEN\"" };
        writeln!(out, "try: curl -i http://{address}/api/v1/{path}{token} -d '{body}'")?;
    }
    out.flush()
}

/// A request to try.
struct Request {
    path: String,
    body: String,
}

/// An attempt, as the API takes it.
#[derive(Serialize)]
struct Attempt<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'p str>,
    #[serde(serialize_with = "write_in_order")]
    fields: Vec<(&'p str, &'static str)>,
}

fn write_in_order<S: Serializer>(fields: &[(&str, &str)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().copied())
}

/// A check against the first policy for which there is an attempt that its rules understand; or the begin of a login, if
/// guards have all policies.
fn first_request(config: &Config) -> Option<Request> {
    let guards = config.policies.guards();
    let is_guarded = |policy: &Policy| guards.iter().any(|guard| guard.policy == policy.name);
    let own = config.policies.iter().filter(|policy| !is_guarded(policy));
    let checks = own.map(|policy| (policy, "check".to_owned(), Some(&*policy.name)));
    let logins = guards.iter().filter_map(|guard| {
        let policy = config.policies.find(&guard.policy).ok()?;
        Some((policy, format!("guards/{}/begin", guard.name), None))
    });
    checks.chain(logins).find_map(|(policy, path, named)| {
        let fields = fields_of(policy, free_address(config));
        let attempt = tollgate_core::Attempt { policy: &policy.name, fields: &fields, cost: 1, id: None };
        policy.charges(&attempt, Ticket(0)).ok()?;
        let body = serde_json::to_string(&Attempt { policy: named, fields });
        Some(Request { path, body: body.expect("texts can be written as JSON") })
    })
}

/// Fields by which every rule of the policy applies: those of their keys, and the numbers that they count.
fn fields_of<'p>(policy: &'p Policy, address: &'static str) -> Vec<(&'p str, &'static str)> {
    let mut fields: Vec<(&str, &'static str)> = Vec::new();
    let of_keys = policy.rules.iter().flat_map(|rule| rule.by.iter());
    for field in of_keys {
        if fields.iter().all(|(name, _)| *name != &*field.name) {
            fields.push((&field.name, example_of(field.kind, address)));
        }
    }
    fields.extend(policy.numbers().map(|name| (name, "1")));
    fields
}

/// The first of the addresses for examples that the blocklist of the configuration does not block.
fn free_address(config: &Config) -> &'static str {
    let blocked = |address: &IpAddr| {
        config.policies.roster().listings().iter().any(|listing| match &listing.target {
            Target::Net(net) => listing.stance == Stance::Block && net.contains(*address),
            Target::Values(_) => false,
        })
    };
    let free = |text: &&str| text.parse().is_ok_and(|address| !blocked(&address));
    ADDRESSES.into_iter().find(free).unwrap_or(ADDRESSES[0])
}

fn example_of(kind: FieldKind, address: &'static str) -> &'static str {
    match kind {
        FieldKind::Ip { .. } => address,
        FieldKind::Address => "user@example.com",
        FieldKind::Domain => "example.com",
        FieldKind::Text => "ada",
    }
}
