//! The layer: which policy holds, and what it needs to know of requests.

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
    /// Whether somebody looks after the leases: else what ends by itself, or has to be released
    /// elsewhere, cannot be kept.
    pub(crate) tended: bool,
    pub(crate) policy: Arc<str>,
    pub(crate) route: Arc<str>,
    pub(crate) answers: Answers,
    pub(crate) proxies: TrustedProxies,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) aliases: Aliases,
    pub(crate) peer: Option<FindPeer>,
}

/// The clock of what never ends by itself.
struct Timeless;

impl Clock for Timeless {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }
}

/// Finds who is connected, in what the server put into the extensions of a request.
type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

impl TollgateLayer {
    /// Requests pass this policy. The field `route` is the policy's name unless something else is said.
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

    /// What the field `route` is: one counter for each route, where several share a rule.
    #[must_use]
    pub fn route(self, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        self.with(|setup| setup.route = name)
    }

    /// How to find who is connected, in the extensions of a request. The field `ip` needs it.
    #[must_use]
    pub fn peer(self, find: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|setup| setup.peer = Some(Arc::new(find)))
    }

    /// The proxies whose word on the client's address is taken. Nobody's is unless this is said.
    #[must_use]
    pub fn trusted_proxies(self, proxies: TrustedProxies) -> Self {
        self.with(|setup| setup.proxies = proxies)
    }

    /// How clients prove who they are: API keys and tokens.
    #[must_use]
    pub fn credentials(self, credentials: impl Into<Arc<Credentials>>) -> Self {
        let credentials = credentials.into();
        self.with(|setup| setup.credentials = credentials)
    }

    /// Other names for what rules can count by.
    #[must_use]
    pub fn fields(self, aliases: Aliases) -> Self {
        self.with(|setup| setup.aliases = aliases)
    }

    /// How decisions are said.
    #[must_use]
    pub fn answers(self, answers: Answers) -> Self {
        self.with(|setup| setup.answers = answers)
    }

    /// Who looks after what requests hold by rules with `at once`. Whoever made it has it
    /// [run](Leases::run); several layers may share it. Without, a policy may only have `at once` without
    /// `for`, on a store of this process: there is nothing to renew, and releasing waits for nobody. A
    /// request of any other that holds something is answered with 500, since its place might be free
    /// before it ends, or never.
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
