//! A slot that moves from one node to another, as slowly as a test wants.

use super::{Cluster, Node};
use crate::patience::wait_until;
use crate::reply::Reply;

/// A slot that moves. Keys that have not moved are served by the old owner; for all others it answers `ASK`.
/// It stays so until [`Migration::finish`].
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    pub(super) fn begin(cluster: &'a Cluster, slot: u16, from: usize, to: usize) -> Self {
        assert_ne!(from, to, "the slot is there already");
        let migration = Self { cluster, slot, from, to };
        let (source, target) = (migration.source(), migration.target());
        migration.set(target, &["IMPORTING", &source.id]);
        migration.set(source, &["MIGRATING", &target.id]);
        migration
    }

    fn source(&self) -> &'a Node {
        &self.cluster.nodes[self.from]
    }

    fn target(&self) -> &'a Node {
        &self.cluster.nodes[self.to]
    }

    fn set(&self, node: &Node, what: &[&str]) {
        let slot = self.slot.to_string();
        let order = [&["CLUSTER", "SETSLOT", &slot], what].concat();
        let _ = node.server.command(&order).ok();
    }

    /// Moves the keys that are in the slot now. Returns their number.
    ///
    /// # Panics
    ///
    /// If one of them cannot be moved.
    pub fn move_keys(&self) -> usize {
        let keys = self
            .source()
            .server
            .command(&["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), "100000"])
            .ok();
        let target = &self.target().server;
        let port = target.port().to_string();
        let password = self.cluster.password.as_deref();
        for key in keys.parts() {
            let Reply::Bulk(key) = key else { panic!("a key is bytes, not {key:?}") };
            let mut order: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), key, b"0", b"5000"];
            if let Some(password) = password {
                order.extend([&b"AUTH"[..], password.as_bytes()]);
            }
            let _ = self.source().server.command(&order).ok();
        }
        keys.parts().len()
    }

    /// Moves the remaining keys and tells every node the new owner.
    pub fn finish(self) {
        self.move_keys();
        let owner = ["NODE", &self.target().id];
        // The target first, so that the slot has an owner at every moment.
        self.set(self.target(), &owner);
        self.set(self.source(), &owner);
        let others = self.cluster.nodes.iter().enumerate();
        for (_, node) in others.filter(|(number, _)| ![self.from, self.to].contains(number)) {
            if node.is_master() {
                self.set(node, &owner);
            }
        }
        for node in self.cluster.running() {
            wait_until("every node knows where the slot is", || {
                self.cluster.owner_seen_by(node, self.slot) == Some(self.to)
            });
        }
    }
}
