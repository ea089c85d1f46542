//! Direct delivery: finds the hosts that accept mail for a domain (RFC 5321, RFC 7505).

mod public;

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::{Resolver, TokioResolver};
use parking_lot::RwLock;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_core::Net;

use crate::accounts::{Account, OnLimit};
use crate::client::{Destination, TlsMode};
use crate::relay::DirectSettings;
use public::is_public;

/// The most addresses that are tried for one domain, and for one host.
const MOST_HOSTS: usize = 5;
const MOST_OF_HOST: usize = 2;
/// The most hosts of one domain that are looked up.
const MOST_NAMES: usize = 10;
/// The time-out of DNS for one domain.
const MOST_LOOKING: Duration = Duration::from_secs(30);

/// Delivers to the hosts that DNS names.
pub struct Direct {
    resolver: TokioResolver,
    /// This relay's own name. Mail for a host of this name would come back.
    hostname: String,
    /// The port that mail servers listen on.
    port: u16,
    /// The addresses that are not public and that the operator allows. The owner of a domain can make its DNS
    /// name any address.
    allowed: Vec<Net>,
    /// The addresses at which this relay listens. Mail for such an address would come back.
    own: RwLock<Vec<SocketAddr>>,
}

/// The hosts for mail to a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Deliver to the first of these hosts that can be reached.
    Hosts(Vec<Host>),
    /// Mail to the domain can never be delivered.
    Never {
        /// The enhanced status code.
        status: &'static str,
        reason: String,
    },
    /// DNS does not answer now.
    Later(String),
}

/// A host that takes mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// Its preference: lower ones come first.
    pub preference: u16,
    /// One of its addresses.
    pub address: IpAddr,
}

impl Direct {
    /// Makes a resolver that asks the name servers of the system, or the configured one.
    pub fn new(hostname: &str, settings: &DirectSettings) -> Result<Self, NetError> {
        let DirectSettings { name_server, port, allow } = settings;
        let resolver = match name_server {
            None => Resolver::builder_tokio()?.build()?,
            Some(server) => asking(*server)?,
        };
        let (hostname, allowed) = (normal(hostname), allow.clone());
        Ok(Self { resolver, hostname, port: *port, allowed, own: RwLock::default() })
    }

    /// Excludes an address at which this relay listens.
    pub fn avoid(&self, listener: SocketAddr) {
        self.own.write().push(listener);
    }

    /// The hosts for mail to a domain, as DNS names them now.
    pub async fn route(&self, domain: &str) -> Route {
        let late = || Route::Later(format!("cannot look up {domain}: DNS takes too long"));
        match timeout(MOST_LOOKING, self.look_up(domain)).await.unwrap_or_else(|_| late()) {
            Route::Hosts(hosts) => self.reachable(domain, hosts),
            route => route,
        }
    }

    /// Represents the hosts as accounts of a tenant, which are tried in order. Rules about accounts do not
    /// apply to them.
    pub(crate) fn as_accounts(&self, tenant: &str, hosts: &[Host]) -> Vec<Arc<Account>> {
        let account = |host: &Host| {
            Arc::new(Account {
                tenant: tenant.to_owned(),
                id: String::new(),
                destination: Destination {
                    host: host.address.to_string(),
                    port: self.port,
                    tls: TlsMode::Opportunistic,
                    login: None,
                },
                on_limit: OnLimit::Defer,
                priority: 0,
            })
        };
        hosts.iter().map(account).collect()
    }

    /// Removes the hosts whose addresses belong to this relay or to a network that mail may not go to.
    fn reachable(&self, domain: &str, mut hosts: Vec<Host>) -> Route {
        // Hosts after this relay in the order of preference would deliver the mail to this relay again.
        if let Some(ours) =
            hosts.iter().filter(|host| self.is_own(host.address)).map(|host| host.preference).min()
        {
            hosts.retain(|host| host.preference < ours);
            if hosts.is_empty() {
                return never("5.4.6", format!("mail for {domain} would loop back to this relay"));
            }
        }
        hosts.retain(|host| self.may_be_reached(host.address));
        hosts.truncate(MOST_HOSTS);
        match hosts.is_empty() {
            false => Route::Hosts(hosts),
            true => never("5.4.4", format!("the hosts for {domain} have no public address")),
        }
    }

    /// Whether this relay listens at an address.
    fn is_own(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.own.read().iter().filter(|listener| listener.port() == self.port).any(|listener| {
            let ip = listener.ip().to_canonical();
            // Only an address of this machine can be bound.
            ip == address || ip.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
        })
    }

    /// Whether mail may go to an address: it is public, or the operator allows it.
    fn may_be_reached(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address) || is_host(address) && self.allowed.iter().any(|net| net.contains(address))
    }

    async fn look_up(&self, domain: &str) -> Route {
        if let Some(literal) = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return self.literal(literal);
        }
        // The final dot prevents the system's search domains from being added.
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
            Ok(address) => Route::Hosts(vec![Host { name: literal.to_owned(), preference: 0, address }]),
            Err(_) => never("5.1.2", format!("[{literal}] is not an IP address")),
        }
    }

    /// Looks up the addresses of these hosts, in their order.
    async fn addresses(&self, domain: &str, names: Vec<(u16, String)>) -> Route {
        let mut looking = JoinSet::new();
        for (place, (preference, name)) in names.into_iter().take(MOST_NAMES).enumerate() {
            let resolver = self.resolver.clone();
            looking.spawn(async move {
                let found = resolver.lookup_ip(format!("{name}.")).await;
                let host = |address| Host { name: name.clone(), preference, address };
                let found = found.map(|found| found.iter().take(MOST_OF_HOST).map(host).collect::<Vec<_>>());
                (
                    place,
                    found.map_err(|error| {
                        (absence(&error).is_some(), format!("cannot look up {name}: {error}"))
                    }),
                )
            });
        }
        let mut answers = looking.join_all().await;
        answers.sort_by_key(|(place, _)| *place);
        let (mut hosts, mut failed) = (Vec::new(), None);
        for (_, answer) in answers {
            match answer {
                Ok(found) => hosts.extend(found),
                Err((true, _)) => {}
                Err((false, reason)) => failed = Some(reason),
            }
        }
        match failed {
            _ if !hosts.is_empty() => Route::Hosts(hosts),
            Some(failed) => Route::Later(failed),
            None => never("5.4.4", format!("no host accepts mail for {domain}")),
        }
    }
}

/// Whether an address can belong to a host at all.
fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

/// Makes a resolver that asks this name server.
fn asking(server: SocketAddr) -> Result<TokioResolver, NetError> {
    let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = server.port();
        connection
    });
    let servers = vec![NameServerConfig::new(server.ip(), true, connections.to_vec())];
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    Resolver::builder_with_config(config, TokioRuntimeProvider::default()).build()
}

/// Orders the names of the hosts to try by preference. If `records` is empty, the domain itself is the host.
fn choose(mut records: Vec<(u16, String)>, domain: &str, own: &str) -> Result<Vec<(u16, String)>, Route> {
    if records.is_empty() {
        records.push((0, normal(domain)));
    }
    if records.iter().all(|(_, name)| name.is_empty()) {
        return Err(never("5.1.10", format!("556 5.1.10 {domain} accepts no mail (null MX)")));
    }
    records.retain(|(_, name)| !name.is_empty());
    // Hosts of equal preference share the load, so their order is random.
    fastrand::shuffle(&mut records);
    records.sort_by_key(|(preference, _)| *preference);
    // Hosts after this relay in the order of preference would deliver the mail to this relay again.
    if let Some((ours, _)) = records.iter().find(|(_, name)| name == own).cloned() {
        records.retain(|(preference, _)| *preference < ours);
        if records.is_empty() {
            return Err(never("5.4.6", format!("mail for {domain} would loop back to this relay")));
        }
    }
    Ok(records)
}

enum Absence {
    /// The name does not exist.
    Name,
    /// The name has no such records.
    Records,
}

/// The kind of absence that an error of DNS reports; `None` if it is another error.
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
        let chosen = |of: &[(u16, &str)]| {
            let names = choose(records(of), "there.example", own)?;
            Ok(names.into_iter().map(|(_, name)| name).collect::<Vec<String>>())
        };
        assert_eq!(chosen(&[(20, "b"), (10, "a"), (30, "c")]).unwrap(), ["a", "b", "c"]);
        assert_eq!(chosen(&[]).unwrap(), ["there.example"], "without MX the domain itself");
        assert_eq!(chosen(&[(10, "a"), (20, own), (20, "b"), (30, "c")]).unwrap(), ["a"]);
        assert!(matches!(chosen(&[(10, own), (20, "b")]), Err(Route::Never { status: "5.4.6", .. })));
        assert!(matches!(chosen(&[(0, "")]), Err(Route::Never { status: "5.1.10", .. })));
    }
}
