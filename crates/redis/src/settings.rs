//! How to reach the servers.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where the servers are and how to speak to them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which servers, and how they stand to each other.
    pub topology: Topology,
    /// How the connection is kept private, if it is.
    pub tls: Option<Tls>,
    /// The user to log in as; the default user if there is none.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Password>,
    /// The number of the database.
    pub database: u32,
    /// What every key begins with.
    pub prefix: String,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a command may take.
    pub command_timeout: Duration,
    /// How many connections are kept to each server.
    pub connections: usize,
    /// Hash tags of rules: in a cluster, keys of one tag live together.
    pub tags: HashMap<String, String>,
}

/// How the servers stand to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Address),
    /// One master that sentinels know.
    Sentinel {
        /// Where the sentinels are.
        sentinels: Vec<Address>,
        /// The name under which they watch the master.
        service: String,
    },
    /// A cluster.
    Cluster {
        /// Where some of its nodes are.
        seeds: Vec<Address>,
    },
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// At a port.
    Tcp {
        /// Name or address of the host.
        host: String,
        /// The port.
        port: u16,
    },
    /// At a socket in the file system.
    Unix(PathBuf),
}

/// How the server proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of authorities to trust instead of the system's, in PEM.
    pub authorities: Option<PathBuf>,
    /// Take any certificate. For tests of others, never for use.
    pub unverified: bool,
}

/// A password that prints as nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl Settings {
    /// The defaults for servers that stand like this.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            tls: None,
            user: None,
            password: None,
            database: 0,
            prefix: "tollgate".into(),
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_millis(50),
            connections: 2,
            tags: HashMap::new(),
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
