//! The settings of a server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tollgate_core::Net;

use super::users::Users;
use crate::acceptance::AcceptTerms;
use crate::session::{Identity, Terms};

/// The settings of a server. Those that all doors share are in [`AcceptTerms`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The certificate, if there is one.
    pub tls: Option<Arc<ServerConfig>>,
    /// The policy over `ip` that every connection passes.
    pub connect: Option<Arc<str>>,
    /// The guard over `ip` and `user` of failed logins.
    pub guard: Option<Arc<str>>,
    /// The networks whose clients may send without a login.
    pub networks: Vec<Net>,
    /// The tenant that mail from these networks belongs to.
    pub network_tenant: Arc<str>,
    /// The trusted proxies: each must send a PROXY header, which names the client.
    pub proxies: Vec<Net>,
    /// The users who may log in.
    pub users: Arc<Users>,
    /// The most connections that are open at once, whatever the policy says.
    pub max_connections: usize,
    /// The time-outs of clients.
    pub timeouts: Timeouts,
}

/// The time-outs of clients.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the PROXY header, and for each TLS handshake.
    pub handshake: Duration,
    /// For one command, and for reading our replies.
    pub command: Duration,
    /// Between two pieces of a text.
    pub piece: Duration,
    /// For a whole text.
    pub message: Duration,
}

impl Default for Timeouts {
    /// RFC 5321 asks for five minutes for a command and three for a piece.
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(30),
            command: Duration::from_secs(300),
            piece: Duration::from_secs(180),
            message: Duration::from_secs(3_600),
        }
    }
}

impl Default for Settings {
    /// No client may send yet: there are no networks and no users.
    fn default() -> Self {
        Self {
            tls: None,
            connect: None,
            guard: None,
            networks: Vec::new(),
            network_tenant: "default".into(),
            proxies: Vec::new(),
            users: Arc::default(),
            max_connections: 10_000,
            timeouts: Timeouts::default(),
        }
    }
}

impl Settings {
    /// The terms of sessions.
    pub(super) fn terms(&self, terms: &AcceptTerms) -> Terms {
        Terms {
            hostname: terms.hostname.clone(),
            max_size: terms.max_size,
            max_recipients: terms.max_recipients,
            tls: self.tls.is_some(),
            users: !self.users.is_empty(),
        }
    }

    /// The identity of a client at this address, if clients of its network may send without a login.
    pub(super) fn network_identity(&self, client: IpAddr) -> Option<Identity> {
        let known = self.networks.iter().any(|net| net.contains(client));
        let tenant = || Arc::clone(&self.network_tenant);
        known.then(|| Identity { user: None, api_key: None, tenant: tenant(), senders: Arc::new([]) })
    }

    /// Whether a peer is a trusted proxy.
    pub(super) fn trusts(&self, peer: IpAddr) -> bool {
        self.proxies.iter().any(|net| net.contains(peer))
    }
}
