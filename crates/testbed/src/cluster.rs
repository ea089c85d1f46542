//! A Cluster of Redis or Valkey: masters that share the slots, replicas if wanted, and slots that
//! move between them.

mod migration;

pub use migration::Migration;

use crate::binary::Flavour;
use crate::patience::wait_until;
use crate::server::{Options, Server};
use crate::slot::slot_of;

const SLOTS: usize = 16_384;

/// A Cluster. Its nodes end when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    masters: usize,
    password: Option<String>,
}

/// One of its servers, by its number: masters first, then the replica of each in the same order.
#[derive(Debug)]
pub struct Node {
    /// The server.
    pub server: Server,
    /// What the Cluster calls it.
    pub id: String,
}

/// What a Cluster is made of. Without more: Redis, and no replicas.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    masters: usize,
    replicas: bool,
    options: Options,
    password: Option<String>,
}

impl ClusterOptions {
    /// So many masters.
    #[must_use]
    pub fn masters(masters: usize, flavour: Flavour) -> Self {
        let options = Options::of(flavour).cluster();
        Self { masters, replicas: false, options, password: None }
    }

    /// With a replica of each master.
    #[must_use]
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self
    }

    /// With a password for everybody.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.options = self.options.password(password);
        self.password = Some(password.to_owned());
        self
    }

    /// With TLS for everybody, between the nodes too. Valkey's build here has none.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.options = self.options.tls();
        self
    }

    /// With more arguments for every node.
    #[must_use]
    pub fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.options = self.options.args(args);
        self
    }

    /// Starts it and waits until it serves all slots.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[must_use]
    pub fn start(self) -> Cluster {
        let count = if self.replicas { self.masters * 2 } else { self.masters };
        let nodes = (0..count).map(|_| Node::start(self.options.clone())).collect();
        let cluster = Cluster { nodes, masters: self.masters, password: self.password };
        cluster.join();
        cluster
    }
}

impl Node {
    fn start(options: Options) -> Self {
        let server = options.start();
        let id = server.command(&["CLUSTER", "MYID"]).text();
        Self { server, id }
    }

    /// Whether it says that the Cluster works.
    fn is_content(&self, nodes: usize) -> bool {
        let info = self.server.command(&["CLUSTER", "INFO"]).text();
        info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{nodes}\r"))
    }

    /// Whether it is a master.
    fn is_master(&self) -> bool {
        self.server.is_running()
            && self.server.command(&["INFO", "replication"]).text().contains("role:master")
    }
}

impl Cluster {
    /// So many masters of Redis.
    ///
    /// # Panics
    ///
    /// If they do not become a Cluster.
    #[must_use]
    pub fn start(masters: usize) -> Self {
        ClusterOptions::masters(masters, Flavour::Redis).start()
    }

    fn join(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            // Each with an epoch of its own: nothing is left to settle when they meet.
            let epoch = (number + 1).to_string();
            let _ = node.server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).ok();
            if number < self.masters {
                let first = (SLOTS * number / self.masters).to_string();
                let last = (SLOTS * (number + 1) / self.masters - 1).to_string();
                let _ = node.server.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).ok();
            }
        }
        let first = &self.nodes[0].server;
        let (port, bus) = (first.port().to_string(), first.bus_port().expect("a node has a bus").to_string());
        for node in &self.nodes[1..] {
            let _ = node.server.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).ok();
        }
        self.wait_until_ok();
        for (number, node) in self.nodes[self.masters..].iter().enumerate() {
            let master = &self.nodes[number].id;
            wait_until("the replica follows its master", || {
                !node.server.command(&["CLUSTER", "REPLICATE", master]).is_error()
            });
        }
        for node in &self.nodes[self.masters..] {
            wait_until("the replica has what its master has", || {
                node.server.command(&["INFO", "replication"]).text().contains("master_link_status:up")
            });
        }
        // A failover needs the votes of masters that know whose replica this is.
        for node in &self.nodes {
            wait_until("everybody knows the replicas", || {
                let known = node.server.command(&["CLUSTER", "NODES"]).text();
                known.matches(" slave ").count() + known.matches("myself,slave ").count()
                    == self.nodes.len() - self.masters
            });
        }
    }

    /// Waits until every node that runs says that the Cluster works.
    pub fn wait_until_ok(&self) {
        for node in self.running() {
            wait_until("the cluster works", || node.is_content(self.nodes.len()));
        }
    }

    /// All nodes: masters first, then the replica of each in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node's server, to be stopped and started.
    pub fn server(&mut self, number: usize) -> &mut Server {
        &mut self.nodes[number].server
    }

    /// Its address as the configuration writes it: all nodes as seeds.
    #[must_use]
    pub fn url(&self) -> String {
        let first = &self.nodes[0].server;
        let seeds: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.server.port())).collect();
        format!("{}+cluster://{}{}", first.scheme(), first.login(), seeds.join(","))
    }

    /// The number of the node that owns a key's slot, as the first node that runs sees it.
    ///
    /// # Panics
    ///
    /// If nobody owns it.
    #[must_use]
    pub fn owner_of(&self, key: &str) -> usize {
        self.owner_of_slot(slot_of(key))
    }

    /// The number of the node that owns a slot, as the first node that runs sees it.
    ///
    /// # Panics
    ///
    /// If nobody owns it.
    #[must_use]
    pub fn owner_of_slot(&self, slot: u16) -> usize {
        let first = self.running().next().expect("a node runs");
        self.owner_seen_by(first, slot).unwrap_or_else(|| panic!("somebody owns slot {slot}"))
    }

    fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.server.is_running())
    }

    fn owner_seen_by(&self, node: &Node, slot: u16) -> Option<usize> {
        let ranges = node.server.command(&["CLUSTER", "SLOTS"]);
        let slot = i64::from(slot);
        let range = ranges
            .parts()
            .iter()
            .find(|range| (range.parts()[0].number()..=range.parts()[1].number()).contains(&slot))?;
        let id = range.parts()[2].parts()[2].text();
        self.nodes.iter().position(|node| node.id == id)
    }

    /// Begins to move a slot to a node. What it says to those who ask is `ASK` from now on, for
    /// every key that is not there.
    #[must_use]
    pub fn migrate(&self, slot: u16, to: usize) -> Migration<'_> {
        Migration::begin(self, slot, self.owner_of_slot(slot), to)
    }

    /// Kills a node.
    pub fn kill(&mut self, number: usize) {
        self.nodes[number].server.kill9();
    }

    /// Makes a master's replica the master, while both run, and waits until all know it.
    ///
    /// # Panics
    ///
    /// If there are no replicas.
    pub fn fail_over(&self, master: usize) {
        let replica = &self.nodes[self.masters + master];
        let _ = replica.server.command(&["CLUSTER", "FAILOVER"]).ok();
        self.wait_for_failover(master);
    }

    /// Waits until a killed master's replica has taken its place and all know it.
    pub fn wait_for_failover(&self, master: usize) {
        let replica = &self.nodes[self.masters + master];
        wait_until("the replica is the master", || replica.is_master());
        for node in self.running() {
            wait_until("every node knows the new master", || {
                let nodes = node.server.command(&["CLUSTER", "NODES"]).text();
                let line = nodes.lines().find(|line| line.starts_with(&replica.id));
                // The last words of a line are the slots that the node owns.
                line.is_some_and(|line| line.contains("master") && !line.ends_with("connected"))
            });
        }
        self.wait_until_ok();
    }
}
