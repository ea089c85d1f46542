//! A Redis Cluster: which node owns which slot, and what to do when that changes.
//!
//! A node that does not own a key says so and runs nothing, so the command can be sent to the right node. No
//! other failure is retried. A library's cluster client would retry more than that, and an attempt could count
//! twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::pool::{Invocation, Pool, Way};
use crate::resp::{Reply, write_command};
use crate::settings::{Address, Settings};
use crate::wire::Failure;

/// The number of slots.
const SLOTS: usize = 16_384;
/// One command is redirected at most this often.
const MAX_REDIRECTS: usize = 8;
/// The reason why a call fails while its keys are on two nodes.
const KEYS_MOVE: &str = "the keys are being moved to another node of the Cluster (TRYAGAIN)";
/// The pause before a retry while keys are being migrated.
const MOVING: Duration = Duration::from_millis(3);

/// The nodes of a cluster.
pub(crate) struct Cluster {
    settings: Arc<Settings>,
    tls: Option<Arc<ClientConfig>>,
    seeds: Vec<Address>,
    runtime: Handle,
    nodes: Mutex<HashMap<Address, Arc<Pool>>>,
    owners: RwLock<Vec<Option<Arc<Pool>>>>,
    refreshing: AtomicBool,
}

/// A redirection by a Redis node.
enum Redirect {
    Moved(Address),
    Asked(Address),
    Moving,
}

impl Cluster {
    /// Starts to connect to the seeds.
    pub(crate) fn start(
        settings: &Arc<Settings>,
        tls: Option<Arc<ClientConfig>>,
        seeds: &[Address],
        runtime: &Handle,
    ) -> Arc<Self> {
        let cluster = Self {
            settings: Arc::clone(settings),
            tls,
            seeds: seeds.to_vec(),
            runtime: runtime.clone(),
            nodes: Mutex::new(HashMap::new()),
            owners: RwLock::new(vec![None; SLOTS]),
            refreshing: AtomicBool::new(false),
        };
        seeds.iter().for_each(|seed| drop(cluster.node(seed)));
        Arc::new(cluster)
    }

    /// The connections to a node; starts them if there are none.
    fn node(&self, address: &Address) -> Arc<Pool> {
        let mut nodes = self.nodes.lock();
        let pool = nodes.entry(address.clone()).or_insert_with(|| {
            Arc::new(Pool::start(&self.settings, self.tls.clone(), Some(address.clone()), &self.runtime))
        });
        Arc::clone(pool)
    }

    /// Every node that owns slots, once.
    pub(crate) fn masters(&self) -> Vec<Arc<Pool>> {
        let mut masters: Vec<Arc<Pool>> = Vec::new();
        for owner in self.owners.read().iter().flatten() {
            if !masters.iter().any(|known| Arc::ptr_eq(known, owner)) {
                masters.push(Arc::clone(owner));
            }
        }
        masters
    }

    /// Whether every slot has a node with a connection that is up; the error says why not.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        if self.unowned() > 0 {
            return Err(Failure::NotSent("some slots of the cluster have no node".into()));
        }
        self.masters().iter().try_for_each(|master| master.ready())
    }

    /// The number of slots without a node.
    pub(crate) fn unowned(&self) -> usize {
        self.owners.read().iter().filter(|owner| owner.is_none()).count()
    }

    /// The first of `name(0)`, `name(1)` and so on whose slot this Redis node owns.
    pub(crate) fn key_at(&self, node: &Arc<Pool>, name: impl Fn(usize) -> String) -> Option<String> {
        let is_there = |key: &String| self.owner_of(key).is_some_and(|owner| Arc::ptr_eq(&owner, node));
        (0..SLOTS).map(name).find(is_there)
    }

    /// The owner of a key, if it is known.
    pub(crate) fn owner_of(&self, key: &str) -> Option<Arc<Pool>> {
        self.owners.read()[usize::from(slot_of(key))].clone()
    }

    /// Runs a command or script on the owner of a key.
    pub(crate) async fn run(
        self: &Arc<Self>,
        key: &str,
        invocation: Invocation<'_>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let slot = usize::from(slot_of(key));
        let (mut target, mut way) = (self.owner(slot).await?, Way::Direct);
        let mut moving = false;
        for _ in 0..MAX_REDIRECTS {
            let reply = self.run_at(&target, way, invocation, deadline).await?;
            let Reply::Error(error) = &reply else { return Ok(reply) };
            let Some(redirect) = self.redirect(error) else { return Ok(reply) };
            moving = matches!(redirect, Redirect::Moving);
            match redirect {
                Redirect::Moved(address) => {
                    (target, way) = (self.node(&address), Way::Direct);
                    self.owners.write()[slot] = Some(Arc::clone(&target));
                    self.refresh_soon();
                }
                Redirect::Asked(address) => (target, way) = (self.node(&address), Way::Asking),
                Redirect::Moving if Instant::now() + MOVING >= deadline => break,
                Redirect::Moving => self.pause().await,
            }
            target.wait_until_up(deadline).await;
        }
        // The other slots work, so this is no outage of the store.
        if moving { Err(Failure::Part(KEYS_MOVE.into())) } else { Err(Failure::TimedOut) }
    }

    /// Runs a command or script on one node. If the node fails while others work, only its keys cannot be reached.
    async fn run_at(
        self: &Arc<Self>,
        target: &Arc<Pool>,
        way: Way,
        invocation: Invocation<'_>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let seen = target.standing.seen();
        let answer = if target.standing.is_suspended() {
            Err(Failure::NotSent("it failed a moment ago; it is used again when it answers probes".into()))
        } else {
            target.run(way, invocation, deadline).await
        };
        match answer {
            Ok(reply) => {
                target.standing.answered();
                Ok(reply)
            }
            Err(failure) => {
                target.standing.failed(seen);
                self.refresh_soon();
                Err(self.part_of(target, failure))
            }
        }
    }

    /// Turns a failure of one node into [`Failure::Part`] if another node works.
    fn part_of(&self, failed: &Arc<Pool>, failure: Failure) -> Failure {
        let is_well = |node: &Arc<Pool>| {
            !Arc::ptr_eq(node, failed) && !node.standing.is_suspended() && node.ready().is_ok()
        };
        if !self.nodes.lock().values().any(is_well) {
            return failure;
        }
        let words = failure.words();
        match &failed.address {
            Some(address) => Failure::Part(format!("the node {address}: {words}").into()),
            None => Failure::Part(words),
        }
    }

    /// The location of the key, if the error is a redirection.
    fn redirect(&self, error: &str) -> Option<Redirect> {
        let mut words = error.split(' ');
        let kind = words.next()?;
        if kind == "TRYAGAIN" {
            return Some(Redirect::Moving);
        }
        let address = || {
            let (host, port) = error.split(' ').nth(2)?.rsplit_once(':')?;
            Some(Address::Tcp { host: self.host(host), port: port.parse().ok()? })
        };
        match kind {
            "MOVED" => address().map(Redirect::Moved),
            "ASK" => address().map(Redirect::Asked),
            _ => None,
        }
    }

    /// The host of a node. For a node that does not report its host, the host of the first seed.
    fn host(&self, host: &str) -> String {
        match (host, self.seeds.first()) {
            ("" | "?", Some(Address::Tcp { host, .. })) => host.clone(),
            _ => host.to_owned(),
        }
    }

    async fn pause(&self) {
        let timer = {
            let _context = self.runtime.enter();
            tokio::time::sleep(MOVING)
        };
        timer.await;
    }

    async fn owner(self: &Arc<Self>, slot: usize) -> Result<Arc<Pool>, Failure> {
        let owners = self.owners.read();
        if let Some(owner) = &owners[slot] {
            return Ok(Arc::clone(owner));
        }
        let unknown = owners.iter().all(Option::is_none);
        drop(owners);
        self.refresh_soon();
        Err(match unknown {
            true => Failure::NotSent("it is not known yet which node has which keys".into()),
            false => Failure::Part(format!("slot {slot} has no node").into()),
        })
    }

    /// Reads the slots again in the background, unless a task already does.
    pub(crate) fn refresh_soon(self: &Arc<Self>) {
        if !self.refreshing.swap(true, Ordering::AcqRel) {
            let cluster = Arc::clone(self);
            self.runtime.spawn(async move {
                cluster.refresh().await;
                // Limits refreshes while the cluster is broken.
                tokio::time::sleep(Duration::from_millis(100)).await;
                cluster.refreshing.store(false, Ordering::Release);
            });
        }
    }

    /// Asks the nodes in turn for the owners of the slots, until one answers.
    pub(crate) async fn refresh(&self) {
        let mut known: Vec<Arc<Pool>> = self.nodes.lock().values().cloned().collect();
        known.extend(self.seeds.iter().map(|seed| self.node(seed)));
        let mut command = Vec::new();
        write_command(&mut command, &[b"CLUSTER", b"SLOTS"]);
        for node in known {
            let deadline = Instant::now() + self.settings.connect_timeout;
            if let Ok(reply) = node.run(Way::Direct, Invocation::Command(&command), deadline).await
                && let Some(ranges) = self.read_slots(&reply)
            {
                self.learn(&ranges);
                return;
            }
        }
    }

    fn read_slots(&self, reply: &Reply) -> Option<Vec<(usize, usize, Address)>> {
        let range = |range: &Reply| {
            let [first, last, master, ..] = range.list()? else { return None };
            let [host, port, ..] = master.list()? else { return None };
            let slot = |number: &Reply| usize::try_from(number.number()?).ok().filter(|slot| *slot < SLOTS);
            let host = self.host(host.text().unwrap_or_default());
            let address = Address::Tcp { host, port: u16::try_from(port.number()?).ok()? };
            Some((slot(first)?, slot(last)?, address))
        };
        let ranges: Option<Vec<_>> = reply.list()?.iter().map(range).collect();
        ranges.filter(|ranges| !ranges.is_empty())
    }

    fn learn(&self, ranges: &[(usize, usize, Address)]) {
        let mut owners = vec![None; SLOTS];
        for (first, last, address) in ranges {
            let pool = self.node(address);
            owners.iter_mut().take(last + 1).skip(*first).for_each(|owner| *owner = Some(Arc::clone(&pool)));
        }
        *self.owners.write() = owners;
        // Closes the connections to nodes that own nothing any more.
        self.nodes.lock().retain(|address, _| {
            self.seeds.contains(address) || ranges.iter().any(|(.., owner)| owner == address)
        });
    }
}

/// The slot of a key: by the text in its first braces, or by all of it.
pub(crate) fn slot_of(key: &str) -> u16 {
    let bytes = key.as_bytes();
    let tag = bytes.iter().position(|byte| *byte == b'{').and_then(|open| {
        let length = bytes[open + 1..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &bytes[open + 1..open + 1 + length])
    });
    checksum(tag.unwrap_or(bytes)) % SLOTS as u16
}

/// CRC-16 (XMODEM).
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let mut crc = crc ^ (u16::from(*byte) << 8);
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(checksum(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("tollgate:{foo}{ip:1}"), 12_182);
        assert_eq!(slot_of("{}foo"), slot_of("{}foo"));
    }
}
