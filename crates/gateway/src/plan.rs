//! Checked settings, in the form that workers use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderName;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tollgate_web::path;

use crate::h1::lines::{Kind, kind_of};
use crate::route::{Shadowed, Table};
use crate::settings::{
    Bounds, GuardSettings, ListenerSettings, Rewrite, RouteSettings, Segment, Settings, UpstreamSettings,
};
use crate::tls;
use crate::upstream::Upstream;

/// The settings in force, shared by all workers.
pub(crate) struct Plan {
    /// Unique among the plans of this process.
    pub(crate) number: u64,
    pub(crate) settings: Settings,
    pub(crate) table: Table,
    pub(crate) routes: Vec<Route>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// For each listener its TLS configuration, if it has one.
    pub(crate) proofs: Vec<Option<Arc<ServerConfig>>>,
    /// The header with clients' addresses, if it is not one of those that the gateway always handles.
    pub(crate) forwarding_header: Option<HeaderName>,
}

/// The number of the next plan.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The settings of a route.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    /// The index of its upstream.
    pub(crate) upstream: usize,
    pub(crate) policy: Option<Arc<str>>,
    pub(crate) guard: Option<Arc<GuardSettings>>,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) response_timeout: Duration,
    pub(crate) body_bytes: u64,
}

/// What is wrong with settings. The operator's fault; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSettings {
    /// There is no listener.
    NoListeners,
    /// A listener's certificate or key cannot be used.
    BadListener {
        /// Its address.
        address: std::net::SocketAddr,
        /// What is wrong with it.
        reason: String,
    },
    /// An upstream has no address.
    NoAddresses {
        /// Its name.
        upstream: String,
    },
    /// An upstream's TLS settings cannot be used.
    BadUpstream {
        /// Its name.
        upstream: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A route names an upstream that does not exist.
    UnknownUpstream {
        /// The route.
        route: String,
        /// The name of the missing upstream.
        upstream: String,
    },
    /// Two routes, or two upstreams, have the same name.
    SameName {
        /// The name.
        name: String,
    },
    /// A path of a route is not in its normal form, so no request could match it.
    NotNormal {
        /// The route.
        route: String,
        /// The path.
        path: String,
    },
    /// A route could never match.
    Shadowed(Shadowed),
    /// A bound on heads is larger than the gateway supports.
    HeadTooLong,
}

impl Plan {
    /// Checks settings. Unchanged TLS configurations and upstreams are taken over from the earlier plan.
    pub(crate) fn new(settings: Settings, earlier: Option<&Self>) -> Result<Self, BadSettings> {
        if settings.listeners.is_empty() {
            return Err(BadSettings::NoListeners);
        }
        let Bounds { head_bytes, head_lines, .. } = settings.bounds;
        if head_bytes > Bounds::MOST_HEAD_BYTES || head_lines > Bounds::MOST_HEAD_LINES {
            return Err(BadSettings::HeadTooLong);
        }
        let proofs = settings.listeners.iter().enumerate().map(|(place, listener)| {
            let same = |plan: &&Self| plan.settings.listeners.get(place) == Some(listener);
            earlier.filter(same).map_or_else(|| proof(listener), |plan| Ok(plan.proofs[place].clone()))
        });
        let proofs = proofs.collect::<Result<Vec<_>, _>>()?;
        check_names(settings.upstreams.iter().map(|upstream| &upstream.name))?;
        check_names(settings.routes.iter().map(|route| &route.name))?;
        let upstreams = settings.upstreams.iter().map(|upstream| {
            let same = |known: &&Arc<Upstream>| known.settings == *upstream;
            let known = earlier.and_then(|plan| plan.upstreams.iter().find(same));
            known.map_or_else(|| ready(upstream.clone()), |known| Ok(Arc::clone(known)))
        });
        let upstreams = upstreams.collect::<Result<Vec<_>, _>>()?;
        let routes = settings.routes.iter().map(|route| Route::new(route, &settings, &upstreams));
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        let table = Table::new(&settings.routes).map_err(BadSettings::Shadowed)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let header = settings.trusted_proxies.header();
        let plain = kind_of(header.as_str().as_bytes()) == Kind::Plain;
        let forwarding_header = plain.then(|| header.clone());
        Ok(Self { number, table, routes, upstreams, proofs, forwarding_header, settings })
    }
}

fn proof(listener: &ListenerSettings) -> Result<Option<Arc<ServerConfig>>, BadSettings> {
    let ListenerSettings { address, tls, http2 } = listener;
    let proof = tls.as_ref().map(|tls| tls::server(tls, *http2)).transpose();
    proof.map_err(|reason| BadSettings::BadListener { address: *address, reason })
}

impl Route {
    fn new(route: &RouteSettings, all: &Settings, upstreams: &[Arc<Upstream>]) -> Result<Self, BadSettings> {
        let name = route.name.to_string();
        let upstream = upstreams.iter().position(|upstream| upstream.settings.name == route.upstream);
        let Some(upstream) = upstream else {
            return Err(BadSettings::UnknownUpstream { route: name, upstream: route.upstream.to_string() });
        };
        for pattern in &route.paths {
            let plain = pattern.segments.iter().map(|segment| match segment {
                Segment::Literal(text) => format!("/{text}"),
                Segment::Parameter(_) => "/x".to_owned(),
            });
            let written: String = plain.collect();
            let normal = written.is_empty() || path::normal(&written).is_ok_and(|normal| normal == written);
            if !normal {
                return Err(BadSettings::NotNormal { route: name, path: pattern.to_string() });
            }
        }
        let timeout = route.response_timeout.unwrap_or(upstreams[upstream].settings.response_timeout);
        Ok(Self {
            name: Arc::clone(&route.name),
            upstream,
            policy: route.policy.clone(),
            guard: route.guard.clone().map(Arc::new),
            rewrite: route.rewrite.clone(),
            response_timeout: timeout,
            body_bytes: route.body_bytes.or(all.bounds.body_bytes).unwrap_or(u64::MAX),
        })
    }
}

fn check_names<'n>(names: impl Iterator<Item = &'n Arc<str>>) -> Result<(), BadSettings> {
    let mut known = std::collections::BTreeSet::new();
    for name in names {
        if !known.insert(name) {
            return Err(BadSettings::SameName { name: name.to_string() });
        }
    }
    Ok(())
}

fn ready(settings: UpstreamSettings) -> Result<Arc<Upstream>, BadSettings> {
    let upstream = settings.name.to_string();
    if settings.addresses.is_empty() {
        return Err(BadSettings::NoAddresses { upstream });
    }
    let tls = match &settings.tls {
        None => None,
        Some(tls) => {
            let bad = |reason: String| BadSettings::BadUpstream { upstream: upstream.clone(), reason };
            let name = tls.server_name.clone().map(ServerName::try_from).transpose();
            let name = name.map_err(|error| bad(error.to_string()))?;
            Some((tls::client(tls, settings.protocol).map_err(bad)?, name))
        }
    };
    Ok(Arc::new(Upstream { settings, tls }))
}

impl std::fmt::Display for BadSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoListeners => f.write_str("there is nowhere to listen"),
            Self::BadListener { address, reason } => write!(f, "listener {address}: {reason}"),
            Self::NoAddresses { upstream } => write!(f, "upstream `{upstream}` has no address"),
            Self::BadUpstream { upstream, reason } => write!(f, "upstream `{upstream}`: {reason}"),
            Self::UnknownUpstream { route, upstream } => {
                write!(f, "route `{route}` passes to upstream `{upstream}`, which does not exist")
            }
            Self::SameName { name } => write!(f, "the name `{name}` is given twice"),
            Self::NotNormal { route, path } => {
                write!(
                    f,
                    "the path `{path}` of route `{route}` is not in its normal form, so no request has it"
                )
            }
            Self::Shadowed(shadowed) => shadowed.fmt(f),
            Self::HeadTooLong => {
                let (bytes, lines) = (Bounds::MOST_HEAD_BYTES, Bounds::MOST_HEAD_LINES);
                write!(f, "heads of requests can be at most {bytes} bytes long, and have {lines} lines")
            }
        }
    }
}

impl std::error::Error for BadSettings {}
