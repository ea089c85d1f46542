//! A master and two replicas, watched by three Sentinels that promote a replica when the master fails.

use crate::binary::Flavour;
use crate::patience::wait_until;
use crate::server::{Options, Server};

/// The Sentinels' name for the master.
const SERVICE: &str = "main";

/// A master, two replicas and three Sentinels. Dropping it stops all of them.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

/// The options of the servers. By default Redis, without a password.
#[derive(Clone, Debug)]
pub struct SentinelOptions {
    options: Options,
    password: Option<String>,
}

impl SentinelOptions {
    /// Servers of this kind.
    #[must_use]
    pub fn of(flavour: Flavour) -> Self {
        Self { options: Options::of(flavour), password: None }
    }

    /// Sets a password for the servers; the Sentinels themselves have none.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Uses TLS, for the Sentinels too. This build of Valkey has none.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.options = self.options.tls();
        self
    }

    /// Starts them and waits until the Sentinels know each other and all servers.
    ///
    /// # Panics
    ///
    /// If they do not.
    #[must_use]
    pub fn start(self) -> Sentinel {
        let mut options = self.options.clone();
        if let Some(password) = &self.password {
            options = options.password(password);
        }
        let master = options.clone().start();
        let port = master.port().to_string();
        let replica = options.args(["--replicaof", &format!("127.0.0.1 {port}")]);
        let replicas = [replica.clone().start(), replica.start()];
        for replica in &replicas {
            wait_until("the replica has what its master has", || {
                replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
            });
        }
        let config = self.config(&port);
        let sentinels = (0..3).map(|_| self.options.clone().config(config.clone()).start()).collect();
        let servers = [master].into_iter().chain(replicas).collect();
        let sentinel = Sentinel { servers, sentinels };
        sentinel.wait_until_known();
        sentinel
    }

    fn config(&self, port: &str) -> String {
        let mut config = format!(
            "sentinel monitor {SERVICE} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {SERVICE} 1000\n\
             sentinel failover-timeout {SERVICE} 3000\n\
             sentinel parallel-syncs {SERVICE} 2\n"
        );
        if let Some(password) = &self.password {
            config.push_str(&format!("sentinel auth-pass {SERVICE} {password}\n"));
        }
        config
    }
}

impl Sentinel {
    /// Starts a master, two replicas and three Sentinels of Redis.
    ///
    /// # Panics
    ///
    /// If they do not find each other.
    #[must_use]
    pub fn start() -> Self {
        SentinelOptions::of(Flavour::Redis).start()
    }

    fn wait_until_known(&self) {
        for sentinel in &self.sentinels {
            // Their default intervals of a few seconds are too slow for tests.
            let hurry =
                ["SENTINEL", "DEBUG", "INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "200"];
            let _ = sentinel.command(&hurry).ok();
        }
        for sentinel in &self.sentinels {
            wait_until("the sentinels know everybody", || {
                let known = sentinel.command(&["SENTINEL", "MASTER", SERVICE]).ok();
                let fact = |name: &str| {
                    let mut pairs = known.parts().chunks(2);
                    pairs.find(|pair| pair[0].text() == name).map(|pair| pair[1].text())
                };
                fact("num-slaves").as_deref() == Some("2")
                    && fact("num-other-sentinels").as_deref() == Some("2")
                    && fact("flags").as_deref() == Some("master")
            });
        }
    }

    /// Its URL for the configuration.
    #[must_use]
    pub fn url(&self) -> String {
        let sentinels: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        let first = &self.servers[0];
        format!("{}+sentinel://{}{}/{SERVICE}", first.scheme(), first.login(), sentinels.join(","))
    }

    /// The servers: the first master, and its replicas.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The port of the master, according to the first Sentinel.
    ///
    /// # Panics
    ///
    /// If it knows none.
    #[must_use]
    pub fn master_port(&self) -> u16 {
        let address = self.sentinels[0].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok();
        address.parts()[1].text().parse().expect("a port is a number")
    }

    /// The master, according to the first Sentinel.
    ///
    /// # Panics
    ///
    /// If it is none of the servers.
    pub fn master(&mut self) -> &mut Server {
        let port = self.master_port();
        self.servers.iter_mut().find(|server| server.port() == port).expect("the master is one of these")
    }

    /// Kills the master.
    pub fn kill_master(&mut self) {
        self.master().kill9();
    }

    /// Waits until another server is the master for every Sentinel and accepts writes. Returns its port.
    #[must_use]
    pub fn wait_for_failover(&self, from: u16) -> u16 {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        for sentinel in &self.sentinels {
            wait_until("the sentinels agree on another master", || {
                sentinel.command(&ask).ok().parts()[1].text() != from.to_string()
            });
        }
        let port = self.master_port();
        let master = self.servers.iter().find(|server| server.port() == port);
        let master = master.expect("the master is one of these");
        wait_until("the new master takes writes", || {
            master.command(&["INFO", "replication"]).text().contains("role:master")
        });
        port
    }
}
