//! Inspects topologies: Sentinels and their master, the nodes of a Cluster and their slots.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::facts::{Facts, Trouble};
use super::gather::{Gatherer, pairs};
use super::words::count;
use super::{Finding, Inspection};
use crate::resp::Reply;
use crate::settings::Address;

/// The number of slots.
const SLOTS: u16 = 16_384;

/// The report of a Sentinel.
struct Knowledge {
    master: Address,
    quorum: Option<u64>,
    others: Option<u64>,
    down: bool,
    /// Why a failover is impossible, if it is.
    no_quorum: Option<String>,
}

/// Inspects the Sentinels, and the master that the first one to answer names.
pub(super) async fn sentinels(gatherer: &Gatherer<'_>, sentinels: &[Address], service: &str) -> Inspection {
    let mut findings = Vec::new();
    let mut master: Option<Address> = None;
    let mut answered = 0;
    for sentinel in sentinels {
        match ask_sentinel(gatherer, sentinel, service).await {
            Ok(known) => {
                answered += 1;
                findings.extend(about_sentinel(sentinel, service, &known, master.as_ref()));
                master.get_or_insert(known.master);
            }
            Err(reason) => findings.push(
                Finding::warning("sentinel", format!("Sentinel {sentinel}: {reason}"))
                    .remedy("bring it back, or correct the address in `store`"),
            ),
        }
    }
    let Some(master) = master else {
        let words =
            format!("none of {} knows a master called {service}", count(sentinels.len() as u64, "Sentinel"));
        let remedy = "start the Sentinels, or correct their addresses or the name in `store`";
        findings.push(Finding::problem("sentinel", words).remedy(remedy));
        return Inspection { findings, servers: Vec::new() };
    };
    let words = format!("{answered} of {} answer", count(sentinels.len() as u64, "Sentinel"));
    findings.push(Finding::fine("sentinel", words));
    Inspection { findings, servers: vec![gatherer.report(&master, None).await] }
}

async fn ask_sentinel(
    gatherer: &Gatherer<'_>,
    sentinel: &Address,
    service: &str,
) -> Result<Knowledge, String> {
    // The inspection does not log in to Sentinels, because the store does not either.
    let mut talk = gatherer.open(sentinel).await?;
    let reply = talk.ask(&["SENTINEL", "MASTER", service]).await.map_err(|silence| silence.0)?;
    if let Reply::Error(error) = &reply {
        return Err(error.clone());
    }
    let facts = pairs(&reply);
    let number = |name: &str| facts.get(name).and_then(|text| text.parse().ok());
    let port = facts.get("port").and_then(|port| port.parse().ok());
    let (host, port) = facts.get("ip").cloned().zip(port).ok_or("it names no master")?;
    let quorum = talk.ask(&["SENTINEL", "CKQUORUM", service]).await.map_err(|silence| silence.0)?;
    Ok(Knowledge {
        master: Address::Tcp { host, port },
        quorum: number("quorum"),
        others: number("num-other-sentinels"),
        down: facts.get("flags").is_some_and(|flags| flags.contains("down")),
        no_quorum: if let Reply::Error(error) = quorum { Some(error) } else { None },
    })
}

fn about_sentinel(
    sentinel: &Address,
    service: &str,
    known: &Knowledge,
    before: Option<&Address>,
) -> Vec<Finding> {
    let mut words = format!("Sentinel {sentinel} says that {service} is {}", known.master);
    if let (Some(quorum), Some(others)) = (known.quorum, known.others) {
        words.push_str(&format!("; quorum {quorum} of {}", others + 1));
    }
    let mut findings = vec![Finding::fine("sentinel", words)];
    if before.is_some_and(|before| *before != known.master) {
        findings.push(
            Finding::warning("sentinel", format!("Sentinel {sentinel} names another master than the first"))
                .remedy("a failover is in progress, or the Sentinels do not see each other: look again"),
        );
    }
    if known.down {
        findings.push(
            Finding::warning("sentinel", format!("Sentinel {sentinel} holds the master for down"))
                .remedy("a failover is in progress, or the Sentinel cannot reach the master"),
        );
    }
    if let Some(reason) = &known.no_quorum {
        findings.push(
            Finding::warning("sentinel", format!("Sentinel {sentinel} could not fail over: {reason}"))
                .remedy("bring the other Sentinels back, or lower the quorum"),
        );
    }
    findings
}

/// Inspects the nodes of a Cluster that own slots.
pub(super) async fn cluster(gatherer: &Gatherer<'_>, seeds: &[Address]) -> Inspection {
    let mut findings = Vec::new();
    let mut masters: Option<BTreeMap<Address, Vec<RangeInclusive<u16>>>> = None;
    for seed in seeds {
        match ask_seed(gatherer, seed).await {
            Ok(seen) => masters = masters.or(Some(seen)),
            Err(finding) => findings.push(finding),
        }
    }
    let Some(masters) = masters else {
        findings.push(
            Finding::problem("cluster", "no node of the Cluster says which slots are where")
                .remedy("start the nodes, or correct their addresses in `store`"),
        );
        return Inspection { findings, servers: Vec::new() };
    };
    findings.push(about_slots(&masters));
    let mut servers = Vec::new();
    for (address, slots) in &masters {
        servers.push(gatherer.report(address, Some(slots)).await);
    }
    Inspection { findings, servers }
}

/// Asks a configured node for the owners of the slots.
async fn ask_seed(
    gatherer: &Gatherer<'_>,
    seed: &Address,
) -> Result<BTreeMap<Address, Vec<RangeInclusive<u16>>>, Finding> {
    let warn = |reason: &str| {
        Finding::warning("cluster", format!("the node {seed}: {reason}"))
            .remedy("bring it back, or take its address out of `store`")
    };
    let mut talk = gatherer.log_in(seed, &mut Facts::default()).await.map_err(|trouble| match trouble {
        Trouble::Unreachable(reason) | Trouble::Silent(reason) | Trouble::Refusing(reason) => warn(&reason),
        Trouble::LoginRefused(error) => {
            Finding::problem("cluster", format!("the node {seed} refuses the login: {error}"))
                .remedy("check user and password in `store`")
        }
    })?;
    let reply = talk.ask(&["CLUSTER", "SLOTS"]).await.map_err(|silence| warn(&silence.0))?;
    match &reply {
        Reply::Error(error) if error.contains("cluster support disabled") => {
            Err(Finding::problem("cluster", format!("{seed} is no node of a Cluster"))
                .remedy("write `redis://` in `store` instead of `redis+cluster://`"))
        }
        Reply::Error(error) if error.starts_with("NOPERM") => {
            let user = gatherer.settings.user.as_deref().unwrap_or("default");
            Err(Finding::problem("cluster", format!("user {user} may not ask {seed} for its slots"))
                .remedy(format!("ACL SETUSER {user} +cluster|slots")))
        }
        Reply::Error(error) => Err(warn(error)),
        reply => Ok(read_slots(reply, seed)),
    }
}

fn read_slots(reply: &Reply, seed: &Address) -> BTreeMap<Address, Vec<RangeInclusive<u16>>> {
    let range = |range: &Reply| {
        let [first, last, master, ..] = range.list()? else { return None };
        let [host, port, ..] = master.list()? else { return None };
        let slot = |number: &Reply| u16::try_from(number.number()?).ok().filter(|slot| *slot < SLOTS);
        let host = match (host.text().unwrap_or_default(), seed) {
            // A node that does not know its own host is at the host that was asked.
            ("" | "?", Address::Tcp { host, .. }) => host.clone(),
            (host, _) => host.to_owned(),
        };
        let address = Address::Tcp { host, port: u16::try_from(port.number()?).ok()? };
        Some((address, slot(first)?..=slot(last)?))
    };
    let mut masters: BTreeMap<Address, Vec<RangeInclusive<u16>>> = BTreeMap::new();
    for (address, range) in reply.list().unwrap_or_default().iter().filter_map(range) {
        masters.entry(address).or_default().push(range);
    }
    masters
}

fn about_slots(masters: &BTreeMap<Address, Vec<RangeInclusive<u16>>>) -> Finding {
    let mut ranges: Vec<&RangeInclusive<u16>> = masters.values().flatten().collect();
    ranges.sort_by_key(|range| *range.start());
    let (mut next, mut missing, mut gaps) = (0, 0, Vec::new());
    for (start, end) in ranges.iter().map(|range| (*range.start(), *range.end())).chain([(SLOTS, SLOTS)]) {
        if start > next {
            missing += start - next;
            gaps.push(format!("{next}-{}", start - 1));
        }
        next = next.max(end + 1);
    }
    if gaps.is_empty() {
        let words = format!("all {SLOTS} slots are covered by {}", count(masters.len() as u64, "master"));
        return Finding::fine("cluster", words);
    }
    gaps.truncate(5);
    let words = format!("{missing} of {SLOTS} slots have no node: {}", gaps.join(", "));
    Finding::problem("cluster", words)
        .remedy("`redis-cli --cluster check` shows why, and `--cluster fix` assigns them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Grade;

    #[test]
    fn unassigned_slots_are_found_wherever_they_are() {
        let node = |port| Address::Tcp { host: "h".into(), port };
        let whole = BTreeMap::from([(node(1), vec![0..=99, 200..=16_383]), (node(2), vec![100..=199])]);
        assert_eq!(about_slots(&whole).grade, Grade::Fine);
        let holes = BTreeMap::from([(node(1), vec![10..=99, 200..=16_000])]);
        let finding = about_slots(&holes);
        assert_eq!(finding.grade, Grade::Problem);
        assert_eq!(finding.message, "493 of 16384 slots have no node: 0-9, 100-199, 16001-16383");
    }
}
