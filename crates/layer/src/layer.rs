//! The layer: its policy, and how it finds the fields of requests.

use std::net::IpAddr;
use std::sync::Arc;

use http::Extensions;
use tollgate_core::{Clock, Timestamp};
use tollgate_engine::{Admissions, Engine, Leases};
use tollgate_web::{Aliases, Answers, Credentials, TrustedProxies};
use tower::Layer;

use crate::service::Tollgate;

/// Limits a service by a policy.
#[derive(Clone)]
pub struct TollgateLayer {
    pub(crate) setup: Arc<Setup>,
}

/// What the layer and all its services share.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) admissions: Admissions,
    /// Whether the caller runs the leases. Otherwise no hold can be kept that expires or is in a shared
    /// store.
    pub(crate) tended: bool,
    pub(crate) policy: Arc<str>,
    pub(crate) route: Arc<str>,
    pub(crate) answers: Answers,
    pub(crate) proxies: TrustedProxies,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) aliases: Aliases,
    pub(crate) peer: Option<FindPeer>,
}

/// A stopped clock, for holds that never expire.
struct Timeless;

impl Clock for Timeless {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }
}

/// Finds the peer's address in the extensions of a request, where the server put it.
type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

impl TollgateLayer {
    /// Limits requests by this policy. The field `route` is the policy's name unless [`Self::route`] sets it.
    pub fn new(engine: Arc<Engine>, policy: impl Into<Arc<str>>) -> Self {
        let policy = policy.into();
        let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::new(Timeless)));
        Self {
            setup: Arc::new(Setup {
                admissions: Admissions { engine, pacer: None, leases },
                tended: false,
                route: Arc::clone(&policy),
                policy,
                answers: Answers::default(),
                proxies: TrustedProxies::none(),
                credentials: Arc::default(),
                aliases: Aliases::default(),
                peer: None,
            }),
        }
    }

    /// Sets the field `route`, so that layers that share a rule count separately.
    #[must_use]
    pub fn route(self, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        self.with(|setup| setup.route = name)
    }

    /// Sets how to find the peer's address in the extensions of a request. The field `ip` needs it.
    #[must_use]
    pub fn peer(self, find: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|setup| setup.peer = Some(Arc::new(find)))
    }

    /// Sets the proxies that may name the client's address. By default no proxy is trusted.
    #[must_use]
    pub fn trusted_proxies(self, proxies: TrustedProxies) -> Self {
        self.with(|setup| setup.proxies = proxies)
    }

    /// Sets how clients prove who they are: API keys and tokens.
    #[must_use]
    pub fn credentials(self, credentials: impl Into<Arc<Credentials>>) -> Self {
        let credentials = credentials.into();
        self.with(|setup| setup.credentials = credentials)
    }

    /// Sets other names for the fields of a request.
    #[must_use]
    pub fn fields(self, aliases: Aliases) -> Self {
        self.with(|setup| setup.aliases = aliases)
    }

    /// How denials are written.
    #[must_use]
    pub fn answers(self, answers: Answers) -> Self {
        self.with(|setup| setup.answers = answers)
    }

    /// Sets the leases that renew and release holds of rules with `at once`. The caller must
    /// [run](Leases::run) them; several layers may share them. Without leases, only `at once` without `for`
    /// on a store of this process works: it needs no renewal. With any other `at once` limit, requests get
    /// 500, because their holds could expire before they end, or never.
    #[must_use]
    pub fn leases(self, leases: Arc<Leases>) -> Self {
        self.with(|setup| {
            setup.admissions.leases = leases;
            setup.tended = true;
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Setup)) -> Self {
        change(Arc::make_mut(&mut self.setup));
        self
    }
}

impl<S> Layer<S> for TollgateLayer {
    type Service = Tollgate<S>;

    fn layer(&self, inner: S) -> Tollgate<S> {
        Tollgate { inner, setup: Arc::clone(&self.setup) }
    }
}

impl std::fmt::Debug for TollgateLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TollgateLayer").field("policy", &self.setup.policy).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("policy", &self.policy).finish_non_exhaustive()
    }
}
