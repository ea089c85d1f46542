//! Collects the facts about one server.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::time::Instant;
use tollgate_core::Clock;

use super::facts::{ClockOffset, Facts, KeyCount, Memory, Persistence, RoundTrip, Trouble};
use super::probe::Probe;
use super::talk::{Silence, Talk};
use super::{ServerReport, commands, judge};
use crate::dial::Dialer;
use crate::name::Names;
use crate::resp::Reply;
use crate::settings::{Address, Settings};

/// The least time-out of a reply.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of round trips to measure.
const PINGS: usize = 20;
/// The number of times that the server's time is read.
const TIMES: usize = 5;
/// The most keys that are sampled.
const MOST_KEYS: u64 = 10_000;

/// Connects to the servers and collects their facts.
pub(super) struct Gatherer<'c> {
    pub(super) settings: Arc<Settings>,
    dialer: Dialer,
    names: Names,
    clock: &'c dyn Clock,
}

impl From<Silence> for Trouble {
    fn from(Silence(reason): Silence) -> Self {
        Self::Silent(reason)
    }
}

impl<'c> Gatherer<'c> {
    pub(super) fn new(settings: Arc<Settings>, tls: Option<Arc<ClientConfig>>, clock: &'c dyn Clock) -> Self {
        let dialer = Dialer::new(&settings, tls, None);
        let names = Names::new(&settings);
        Self { settings, dialer, names, clock }
    }

    /// Inspects one server, which owns these slots or all keys.
    pub(super) async fn report(
        &self,
        address: &Address,
        slots: Option<&[RangeInclusive<u16>]>,
    ) -> ServerReport {
        let mut facts = Facts::default();
        facts.trouble = self.look(address, slots, &mut facts).await.err();
        let findings = judge::server(&facts, &self.settings);
        ServerReport { address: address.clone(), facts, findings }
    }

    /// Opens a connection without logging in.
    pub(super) async fn open(&self, address: &Address) -> Result<Talk, String> {
        let patience = self.settings.command_timeout.max(PATIENCE);
        Talk::open(&self.dialer, address, self.settings.connect_timeout, patience).await
    }

    /// Opens a connection and logs in as the store does.
    pub(super) async fn log_in(&self, address: &Address, facts: &mut Facts) -> Result<Talk, Trouble> {
        let start = Instant::now();
        let mut talk = self.open(address).await.map_err(Trouble::Unreachable)?;
        facts.connected_in = Some(start.elapsed());
        let settings = &self.settings;
        let login = match (&settings.user, &settings.password) {
            (Some(user), Some(password)) => Some(vec!["AUTH", user, &password.0]),
            (None, Some(password)) => Some(vec!["AUTH", &password.0]),
            (_, None) => None,
        };
        if let Some(words) = login
            && let Reply::Error(error) = talk.ask(&words).await?
        {
            return Err(Trouble::LoginRefused(short(&error)));
        }
        let database = settings.database.to_string();
        let first: &[&str] = if settings.database == 0 { &["PING"] } else { &["SELECT", &database] };
        for words in [first, &["PING"]] {
            match talk.ask(words).await? {
                Reply::Error(error) if error.starts_with("NOAUTH") => {
                    return Err(Trouble::LoginRefused(error));
                }
                Reply::Error(error) => return Err(Trouble::Refusing(short(&error))),
                _ => {}
            }
        }
        facts.user = Some(settings.user.clone().unwrap_or_else(|| "default".to_owned()));
        Ok(talk)
    }

    async fn look(
        &self,
        address: &Address,
        slots: Option<&[RangeInclusive<u16>]>,
        facts: &mut Facts,
    ) -> Result<(), Trouble> {
        let mut talk = self.log_in(address, facts).await?;
        learn_identity(&mut talk, facts).await?;
        if facts.mode.as_deref() == Some("sentinel") {
            // This server has none of the commands to try.
            return Ok(());
        }
        facts.round_trip = Some(measure(&mut talk).await?);
        facts.clock = self.compare_clocks(&mut talk).await?;
        learn_setup(&mut talk, facts).await?;
        facts.keys = self.count_keys(&mut talk).await?;
        if let Some(probe) = Probe::new(&self.names, slots) {
            facts.scripts = probe.run_all(&mut talk).await?;
            let keys = [&*probe.spare(), &*self.names.probe(0)];
            commands::try_all(&mut talk, keys, &self.settings.topology, facts).await?;
        }
        Ok(())
    }

    /// Reads the server's time. The fastest reply is the most precise.
    async fn compare_clocks(&self, talk: &mut Talk) -> Result<Option<ClockOffset>, Silence> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..TIMES {
            let before = self.clock.now().as_micros();
            let reply = talk.ask(&["TIME"]).await?;
            let after = self.clock.now().as_micros();
            let number = |index: usize| reply.list()?.get(index)?.text()?.parse::<u64>().ok();
            let Some((seconds, micros)) = number(0).zip(number(1)) else { return Ok(None) };
            let half = after.saturating_sub(before).div_ceil(2);
            let ahead_micros = (seconds * 1_000_000 + micros).cast_signed() - (before + half).cast_signed();
            let offset = ClockOffset { ahead_micros, uncertainty_micros: half };
            if best.is_none_or(|best| offset.uncertainty_micros < best.uncertainty_micros) {
                best = Some(offset);
            }
        }
        Ok(best)
    }

    /// Counts tollgate's keys in a sample.
    async fn count_keys(&self, talk: &mut Talk) -> Result<Option<KeyCount>, Silence> {
        let Some(total) = talk.ask(&["DBSIZE"]).await?.number() else { return Ok(None) };
        let mut count = KeyCount { ours: 0, looked_at: 0, total: total.unsigned_abs() };
        let prefix = self.names.pattern(None);
        let prefix = prefix.trim_end_matches("{*");
        let mut cursor = String::from("0");
        while count.looked_at < MOST_KEYS {
            let reply = talk.ask(&["SCAN", &cursor, "COUNT", "100"]).await?;
            let Some([next, found]) = reply.list() else { return Ok(None) };
            for key in found.list().unwrap_or_default().iter().filter_map(Reply::bytes) {
                count.looked_at += 1;
                count.ours += u64::from(key.starts_with(prefix.as_bytes()));
            }
            cursor = next.text().unwrap_or("0").to_owned();
            if cursor == "0" {
                // Keys that came and went meanwhile are no reason to say `about`.
                count.total = count.looked_at;
                break;
            }
        }
        Ok(Some(count))
    }
}

/// Reads the identity, which every server reports to a logged-in client.
async fn learn_identity(talk: &mut Talk, facts: &mut Facts) -> Result<(), Silence> {
    let reply = talk.ask(&["HELLO"]).await?;
    let pairs = pairs(&reply);
    let fact = |name: &str| pairs.get(name).cloned();
    (facts.flavour, facts.version) = (fact("server"), fact("version"));
    (facts.mode, facts.role) = (fact("mode"), fact("role"));
    if let Some(user) = talk.ask(&["ACL", "WHOAMI"]).await?.text() {
        facts.user = Some(user.to_owned());
    }
    Ok(())
}

async fn measure(talk: &mut Talk) -> Result<RoundTrip, Silence> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = Instant::now();
        talk.ask(&["PING"]).await?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(RoundTrip { count: PINGS, min: times[0], median: times[PINGS / 2], max: times[PINGS - 1] })
}

/// Reads the configuration: from `CONFIG` if permitted, else from `INFO`, which has less.
async fn learn_setup(talk: &mut Talk, facts: &mut Facts) -> Result<(), Silence> {
    let reply = talk.ask(&["INFO"]).await?;
    let info = facts_of_info(reply.text().unwrap_or_default());
    if info.is_empty() {
        facts.unread.push("INFO");
    }
    let number = |name: &str| info.get(name).and_then(|text| text.parse::<u64>().ok());
    let text = |name: &str| info.get(name).map(|text| (*text).to_owned());
    let wanted = ["maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save"];
    let reply = talk.ask(&[&["CONFIG", "GET"][..], &wanted].concat()).await?;
    let config = pairs(&reply);
    if config.is_empty() {
        facts.unread.push("CONFIG");
    }
    let set = |name: &str| config.get(name).cloned();
    facts.replicas = number("connected_slaves");
    let memory = Memory {
        used: number("used_memory"),
        max: set("maxmemory").and_then(|max| max.parse().ok()).or_else(|| number("maxmemory")),
        policy: set("maxmemory-policy").or_else(|| text("maxmemory_policy")),
        evicted: number("evicted_keys"),
    };
    facts.memory = Some(memory).filter(|memory| *memory != Memory::default());
    let append_only = set("appendonly").map(|word| word == "yes");
    let persistence = Persistence {
        append_only: append_only.or_else(|| number("aof_enabled").map(|enabled| enabled == 1)),
        fsync: set("appendfsync"),
        save: set("save"),
    };
    facts.persistence = Some(persistence).filter(|persistence| *persistence != Persistence::default());
    Ok(())
}

fn facts_of_info(text: &str) -> HashMap<&str, &str> {
    text.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

/// The `maxmemory-policy` in the reply to `INFO memory`.
pub(crate) fn policy_of_info(text: &str) -> Option<String> {
    facts_of_info(text).get("maxmemory_policy").map(|policy| (*policy).to_owned())
}

/// The start of an error, long enough to be useful.
pub(super) fn short(error: &str) -> String {
    error.chars().take(200).collect()
}

/// A flat list of names and texts as a map.
pub(super) fn pairs(reply: &Reply) -> HashMap<String, String> {
    let list = reply.list().unwrap_or_default();
    let pair = |pair: &[Reply]| {
        let [name, value] = pair else { return None };
        Some((name.text()?.to_owned(), value.text()?.to_owned()))
    };
    list.chunks(2).filter_map(pair).collect()
}
