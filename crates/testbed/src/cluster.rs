//! A Cluster of Redis or Valkey: masters that share the slots, optional replicas, and slots that move between
//! them.

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

/// One of its servers, by its index: masters first, then the replica of each in the same order.
#[derive(Debug)]
pub struct Node {
    /// The server.
    pub server: Server,
    /// Its id in the Cluster.
    pub id: String,
}

/// The options of a Cluster. By default Redis, without replicas.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    masters: usize,
    replicas: bool,
    options: Options,
    password: Option<String>,
}

impl ClusterOptions {
    /// A Cluster with this many masters.
    #[must_use]
    pub fn masters(masters: usize, flavour: Flavour) -> Self {
        let options = Options::of(flavour).cluster();
        Self { masters, replicas: false, options, password: None }
    }

    /// Adds a replica of each master.
    #[must_use]
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self
    }

    /// Sets a password on all nodes.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.options = self.options.password(password);
        self.password = Some(password.to_owned());
        self
    }

    /// Uses TLS, also between the nodes. This build of Valkey has none.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.options = self.options.tls();
        self
    }

    /// Adds arguments for every node.
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

    /// Whether the node reports that the Cluster works.
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
    /// A Cluster with this many masters of Redis.
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
            // Each has its own epoch, so that nothing must be resolved when they meet.
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
        // A failover needs the votes of masters that know this replica.
        for node in &self.nodes {
            wait_until("everybody knows the replicas", || {
                let known = node.server.command(&["CLUSTER", "NODES"]).text();
                known.matches(" slave ").count() + known.matches("myself,slave ").count()
                    == self.nodes.len() - self.masters
            });
        }
    }

    /// Waits until every running node reports that the Cluster works.
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

    /// A node's server, which can be stopped and started.
    pub fn server(&mut self, number: usize) -> &mut Server {
        &mut self.nodes[number].server
    }

    /// Its URL for the configuration: all nodes as seeds.
    #[must_use]
    pub fn url(&self) -> String {
        let first = &self.nodes[0].server;
        let seeds: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.server.port())).collect();
        format!("{}+cluster://{}{}", first.scheme(), first.login(), seeds.join(","))
    }

    /// The index of the node that owns a key's slot, according to the first running node.
    ///
    /// # Panics
    ///
    /// If no node owns it.
    #[must_use]
    pub fn owner_of(&self, key: &str) -> usize {
        self.owner_of_slot(slot_of(key))
    }

    /// The index of the node that owns a slot, according to the first running node.
    ///
    /// # Panics
    ///
    /// If no node owns it.
    #[must_use]
    pub fn owner_of_slot(&self, slot: u16) -> usize {
        let first = self.running().next().expect("a node runs");
        self.owner_seen_by(first, slot).unwrap_or_else(|| panic!("slot {slot} has no owner"))
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

    /// Begins to move a slot to a node. From now on its owner answers `ASK` for every key that it does not
    /// have.
    #[must_use]
    pub fn migrate(&self, slot: u16, to: usize) -> Migration<'_> {
        Migration::begin(self, slot, self.owner_of_slot(slot), to)
    }

    /// Kills a node.
    pub fn kill(&mut self, number: usize) {
        self.nodes[number].server.kill9();
    }

    /// Makes a master's replica the master while both run, and waits until all nodes know it.
    ///
    /// # Panics
    ///
    /// If there are no replicas.
    pub fn fail_over(&self, master: usize) {
        let replica = &self.nodes[self.masters + master];
        let _ = replica.server.command(&["CLUSTER", "FAILOVER"]).ok();
        self.wait_for_failover(master);
    }

    /// Waits until a killed master's replica has replaced it and all nodes know it.
    pub fn wait_for_failover(&self, master: usize) {
        let replica = &self.nodes[self.masters + master];
        wait_until("the replica is the master", || replica.is_master());
        for node in self.running() {
            wait_until("every node knows the new master", || {
                let nodes = node.server.command(&["CLUSTER", "NODES"]).text();
                let line = nodes.lines().find(|line| line.starts_with(&replica.id));
                // The last words of a line are the node's slots.
                line.is_some_and(|line| line.contains("master") && !line.ends_with("connected"))
            });
        }
        self.wait_until_ok();
    }
}
