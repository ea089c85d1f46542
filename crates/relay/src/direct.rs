//! Direct delivery: which hosts take mail for a domain (RFC 5321, RFC 7505).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::{Resolver, TokioResolver};

/// How many addresses are tried for one domain.
const MOST_HOSTS: usize = 10;

/// Delivers to the hosts that DNS names.
pub struct Direct {
    resolver: TokioResolver,
    /// How this relay calls itself: mail for such a host would come back.
    hostname: String,
    /// The port that mail servers listen on.
    pub(crate) port: u16,
}

/// Where mail for a domain goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the first of these that can be reached.
    Hosts(Vec<Host>),
    /// Nowhere, for good.
    Never {
        /// The enhanced status code.
        status: &'static str,
        /// Why.
        reason: String,
    },
    /// DNS gives no answer now.
    Later(String),
}

/// A host that takes mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// One of its addresses.
    pub address: IpAddr,
}

impl Direct {
    /// Asks the name servers of the system.
    pub fn new(hostname: &str) -> Result<Self, NetError> {
        let resolver = Resolver::builder_tokio()?.build()?;
        Ok(Self { resolver, hostname: normal(hostname), port: 25 })
    }

    /// Asks this name server, and connects to this port.
    pub fn with(hostname: &str, server: SocketAddr, port: u16) -> Result<Self, NetError> {
        let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
            let mut connection = ConnectionConfig::new(protocol);
            connection.port = server.port();
            connection
        });
        let servers = vec![NameServerConfig::new(server.ip(), true, connections.to_vec())];
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let resolver = Resolver::builder_with_config(config, TokioRuntimeProvider::default()).build()?;
        Ok(Self { resolver, hostname: normal(hostname), port })
    }

    /// Where mail for a domain goes now.
    pub async fn route(&self, domain: &str) -> Route {
        if let Some(literal) = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return self.literal(literal);
        }
        // The final dot keeps search domains of the system away.
        let records = match self.resolver.mx_lookup(format!("{domain}.")).await {
            Ok(lookup) => lookup
                .answers()
                .iter()
                .filter_map(|record| match &record.data {
                    RData::MX(mx) => Some((mx.preference, normal(&mx.exchange.to_utf8()))),
                    _ => None,
                })
                .collect(),
            Err(error) => match absence(&error) {
                Some(Absence::Records) => Vec::new(),
                Some(Absence::Name) => return never("5.1.2", format!("the domain {domain} does not exist")),
                None => return Route::Later(format!("cannot look up {domain}: {error}")),
            },
        };
        match choose(records, domain, &self.hostname) {
            Ok(names) => self.addresses(domain, names).await,
            Err(route) => route,
        }
    }

    fn literal(&self, literal: &str) -> Route {
        let bare = literal.strip_prefix("IPv6:").unwrap_or(literal);
        match bare.parse() {
            Ok(address) => Route::Hosts(vec![Host { name: literal.to_owned(), address }]),
            Err(_) => never("5.1.2", format!("[{literal}] is no address")),
        }
    }

    /// The addresses of these hosts, in their order.
    async fn addresses(&self, domain: &str, names: Vec<String>) -> Route {
        let (mut hosts, mut failed) = (Vec::new(), None);
        for name in names {
            match self.resolver.lookup_ip(format!("{name}.")).await {
                Ok(lookup) => {
                    hosts.extend(lookup.iter().map(|address| Host { name: name.clone(), address }));
                }
                Err(error) if absence(&error).is_some() => {}
                Err(error) => failed = Some(format!("cannot look up {name}: {error}")),
            }
        }
        hosts.truncate(MOST_HOSTS);
        match failed {
            _ if !hosts.is_empty() => Route::Hosts(hosts),
            Some(failed) => Route::Later(failed),
            None => never("5.4.4", format!("no host takes mail for {domain}")),
        }
    }
}

/// The names of the hosts to try, by preference. `records` may be empty: then the domain itself is the host.
fn choose(mut records: Vec<(u16, String)>, domain: &str, own: &str) -> Result<Vec<String>, Route> {
    if records.is_empty() {
        records.push((0, normal(domain)));
    }
    if records.iter().all(|(_, name)| name.is_empty()) {
        return Err(never("5.1.10", format!("{domain} takes no mail (null MX)")));
    }
    records.retain(|(_, name)| !name.is_empty());
    // Hosts of the same preference share the load.
    fastrand::shuffle(&mut records);
    records.sort_by_key(|(preference, _)| *preference);
    // Hosts that come after this relay would hand the mail back to it.
    if let Some((ours, _)) = records.iter().find(|(_, name)| name == own).cloned() {
        records.retain(|(preference, _)| *preference < ours);
        if records.is_empty() {
            return Err(never("5.4.6", format!("mail for {domain} would loop back to this relay")));
        }
    }
    Ok(records.into_iter().map(|(_, name)| name).collect())
}

enum Absence {
    /// The name does not exist.
    Name,
    /// The name has no such records.
    Records,
}

/// What an answer says is not there; `None` if it is no answer.
fn absence(error: &NetError) -> Option<Absence> {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return None };
    match none.response_code {
        ResponseCode::NXDomain => Some(Absence::Name),
        ResponseCode::NoError => Some(Absence::Records),
        _ => None,
    }
}

fn never(status: &'static str, reason: String) -> Route {
    Route::Never { status, reason }
}

fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("port", &self.port).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(of: &[(u16, &str)]) -> Vec<(u16, String)> {
        of.iter().map(|(preference, name)| (*preference, (*name).to_owned())).collect()
    }

    #[test]
    fn hosts_come_by_preference_and_end_before_this_relay() {
        let own = "relay.example";
        let chosen = |of: &[(u16, &str)]| choose(records(of), "there.example", own);
        assert_eq!(chosen(&[(20, "b"), (10, "a"), (30, "c")]).unwrap(), ["a", "b", "c"]);
        assert_eq!(chosen(&[]).unwrap(), ["there.example"], "without MX the domain itself");
        assert_eq!(chosen(&[(10, "a"), (20, own), (20, "b"), (30, "c")]).unwrap(), ["a"]);
        assert!(matches!(chosen(&[(10, own), (20, "b")]), Err(Route::Never { status: "5.4.6", .. })));
        assert!(matches!(chosen(&[(0, "")]), Err(Route::Never { status: "5.1.10", .. })));
    }
}
