//! The options of a server.

use std::ffi::OsString;
use std::sync::Arc;

use super::Server;
use crate::binary::Flavour;
use crate::certificates::Certificates;

/// The user of the tests themselves, if there is an ACL file.
const TESTBED: &str = "testbed";

/// The options of a server. By default it stores nothing on disk, requires no password, and allows `DEBUG`.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) flavour: Flavour,
    pub(super) password: Option<String>,
    pub(super) users: Option<String>,
    /// Shared by servers with the same options, so that they trust each other.
    pub(super) tls: Option<Arc<Certificates>>,
    clients_show_certificates: bool,
    pub(super) cluster: bool,
    pub(super) ahead_secs: Option<i64>,
    /// A configuration file for Sentinel, which writes its state into it.
    pub(super) config: Option<String>,
    pub(super) extra: Vec<OsString>,
}

impl Options {
    pub(super) fn new(flavour: Flavour) -> Self {
        Self {
            flavour,
            password: None,
            users: None,
            tls: None,
            clients_show_certificates: false,
            cluster: false,
            ahead_secs: None,
            config: None,
            extra: Vec::new(),
        }
    }

    pub(crate) fn of(flavour: Flavour) -> Self {
        Self::new(flavour)
    }

    /// Sets a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets users, as lines of an ACL file: `user limiter on >secret ~tollgate:* +@all`.
    #[must_use]
    pub fn users(mut self, lines: &str) -> Self {
        self.users = Some(lines.to_owned());
        self
    }

    /// Uses TLS on its port, and has no port without. This build of Valkey has none.
    ///
    /// # Panics
    ///
    /// For Valkey.
    #[must_use]
    pub fn tls(mut self) -> Self {
        assert_eq!(self.flavour, Flavour::Redis, "this build of Valkey has no TLS");
        self.tls = Some(Arc::new(Certificates::make()));
        self
    }

    /// Uses TLS, and accepts only clients with a certificate by its authority, as Redis does by default.
    #[must_use]
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.clients_show_certificates = true;
        self.tls()
    }

    /// Sets a bound on its memory, as in `4mb`, and the policy when it is reached, as in `noeviction`.
    #[must_use]
    pub fn max_memory(self, memory: &str, policy: &str) -> Self {
        self.args(["--maxmemory", memory, "--maxmemory-policy", policy])
    }

    /// Enables the append-only log, synced before every response.
    #[must_use]
    pub fn append_only(self) -> Self {
        self.args(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts with a clock this many seconds ahead, which [`Server::shift_clock`] can move.
    #[must_use]
    pub fn faketime(mut self, ahead_secs: i64) -> Self {
        self.ahead_secs = Some(ahead_secs);
        self
    }

    /// Adds arguments, which come last and so take precedence.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.extra.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    pub(crate) fn config(mut self, text: String) -> Self {
        self.config = Some(text);
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not, with its log.
    #[must_use]
    pub fn start(self) -> Server {
        Server::first_start(self)
    }

    /// The ACL file, with the user of the tests.
    pub(super) fn users_file(&self) -> Option<String> {
        let lines = self.users.as_ref()?;
        Some(format!("{}\nuser {TESTBED} on nopass ~* &* +@all\n", lines.trim_end()))
    }

    /// The login of the tests themselves.
    pub(super) fn login(&self) -> Option<Vec<&str>> {
        match (&self.users, &self.password) {
            (Some(_), _) => Some(vec!["AUTH", TESTBED, TESTBED]),
            (None, Some(password)) => Some(vec!["AUTH", password]),
            (None, None) => None,
        }
    }

    pub(super) fn arguments(&self, server: &Server) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        if self.config.is_some() {
            add(&["server.conf", "--sentinel"]);
        } else {
            add(&["--save", "", "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"]);
        }
        let port = server.port().to_string();
        add(&["--bind", "127.0.0.1", "--unixsocket", "socket", "--daemonize", "no"]);
        if let Some(files) = &self.tls {
            add(&[
                "--port",
                "0",
                "--tls-port",
                &port,
                "--tls-auth-clients",
                if self.clients_show_certificates { "yes" } else { "no" },
                "--tls-replication",
                "yes",
            ]);
            for (name, file) in [
                ("--tls-ca-cert-file", &files.authority),
                ("--tls-cert-file", &files.certificate),
                ("--tls-key-file", &files.key),
            ] {
                arguments.extend([name.into(), file.clone().into()]);
            }
        } else {
            add(&["--port", &port]);
        }
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        if let Some(bus) = server.bus_port() {
            let bus = bus.to_string();
            add(&["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "1000"]);
            add(&["--tls-cluster", if self.tls.is_some() { "yes" } else { "no" }]);
            add(&["--cluster-config-file", "nodes.conf", "--cluster-replica-validity-factor", "0"]);
        }
        if let Some(password) = &self.password {
            add(&["--requirepass", password, "--masterauth", password]);
        }
        if self.users.is_some() {
            add(&["--aclfile", "users.acl"]);
        }
        arguments.extend(self.extra.iter().cloned());
        arguments
    }
}
