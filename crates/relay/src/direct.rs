//! Direct delivery: which hosts take mail for a domain (RFC 5321, RFC 7505).

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

/// How many addresses are tried for one domain, and how many of one host.
const MOST_HOSTS: usize = 5;
const MOST_OF_HOST: usize = 2;
/// How many hosts of one domain are looked up.
const MOST_NAMES: usize = 10;
/// How long DNS may take for one domain.
const MOST_LOOKING: Duration = Duration::from_secs(30);

/// Delivers to the hosts that DNS names.
pub struct Direct {
    resolver: TokioResolver,
    /// How this relay calls itself: mail for such a host would come back.
    hostname: String,
    /// The port that mail servers listen on.
    port: u16,
    /// The special addresses that mail may go to. Anybody's DNS can name any address.
    allowed: Vec<Net>,
    /// Where this relay listens: mail for such an address would come back.
    own: RwLock<Vec<SocketAddr>>,
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
    /// Its preference: lower ones come first.
    pub preference: u16,
    /// One of its addresses.
    pub address: IpAddr,
}

impl Direct {
    /// Asks the name servers of the system, or the one that is named.
    pub fn new(hostname: &str, settings: &DirectSettings) -> Result<Self, NetError> {
        let DirectSettings { name_server, port, allow } = settings;
        let resolver = match name_server {
            None => Resolver::builder_tokio()?.build()?,
            Some(server) => asking(*server)?,
        };
        let (hostname, allowed) = (normal(hostname), allow.clone());
        Ok(Self { resolver, hostname, port: *port, allowed, own: RwLock::default() })
    }

    /// Delivers nothing to an address where this relay listens.
    pub fn avoid(&self, listener: SocketAddr) {
        self.own.write().push(listener);
    }

    /// Where mail for a domain goes now.
    pub async fn route(&self, domain: &str) -> Route {
        let late = || Route::Later(format!("cannot look up {domain}: DNS takes too long"));
        match timeout(MOST_LOOKING, self.look_up(domain)).await.unwrap_or_else(|_| late()) {
            Route::Hosts(hosts) => self.reachable(domain, hosts),
            route => route,
        }
    }

    /// The hosts as accounts of a tenant, which are tried one after another. No rule about accounts applies to them.
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

    /// The hosts without those that lead back to this relay or into this machine.
    fn reachable(&self, domain: &str, mut hosts: Vec<Host>) -> Route {
        // Hosts that come after this relay would hand the mail back to it.
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
            // Only addresses of this machine can be bound.
            ip == address || ip.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
        })
    }

    /// Whether mail may go to an address: to a public one, or to one that the operator allows.
    fn may_be_reached(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address) || is_host(address) && self.allowed.iter().any(|net| net.contains(address))
    }

    async fn look_up(&self, domain: &str) -> Route {
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
            Ok(address) => Route::Hosts(vec![Host { name: literal.to_owned(), preference: 0, address }]),
            Err(_) => never("5.1.2", format!("[{literal}] is not an IP address")),
        }
    }

    /// The addresses of these hosts, in their order.
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

/// Whether an address can be a host's at all.
fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

/// Asks one name server.
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

/// The names of the hosts to try, by preference. `records` may be empty: then the domain itself is the host.
fn choose(mut records: Vec<(u16, String)>, domain: &str, own: &str) -> Result<Vec<(u16, String)>, Route> {
    if records.is_empty() {
        records.push((0, normal(domain)));
    }
    if records.iter().all(|(_, name)| name.is_empty()) {
        return Err(never("5.1.10", format!("556 5.1.10 {domain} accepts no mail (null MX)")));
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
    Ok(records)
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
