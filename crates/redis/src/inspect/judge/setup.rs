//! Findings about the configuration of a server: what it keeps, and what it loses.

use crate::inspect::Finding;
use crate::inspect::facts::Facts;
use crate::inspect::words::{bytes, count};

/// The percentage of memory above which it is nearly full.
const NEARLY_FULL: u64 = 90;

/// The finding about memory use.
pub(super) fn memory(facts: &Facts) -> Option<Finding> {
    let memory = facts.memory.as_ref()?;
    let used = memory.used?;
    Some(match memory.max? {
        0 => Finding::note("memory", format!("{} used, without a bound", bytes(used)))
            .remedy("set `maxmemory`, so that keys cannot fill the machine's memory"),
        max if used.saturating_mul(100) >= max.saturating_mul(NEARLY_FULL) => {
            let words = format!("{} used of {}: nearly full", bytes(used), bytes(max));
            Finding::warning("memory", words)
                .remedy("raise `maxmemory`, or take away what else is kept there")
        }
        max => Finding::fine("memory", format!("{} used of {}", bytes(used), bytes(max))),
    })
}

/// The finding about eviction.
pub(super) fn eviction(facts: &Facts) -> Option<Finding> {
    let memory = facts.memory.as_ref()?;
    let policy = memory.policy.as_deref()?;
    let evicted = memory.evicted.filter(|evicted| *evicted > 0).map_or_else(String::new, |evicted| {
        format!("; it has thrown {} out since it started", count(evicted, "key"))
    });
    let Some((consequence, remedy)) = consequence_of_eviction(policy) else {
        let words = format!("{policy}: nothing is forgotten when memory is full{evicted}");
        return Some(Finding::fine("eviction", words));
    };
    Some(Finding::warning("eviction", format!("{policy} {consequence}{evicted}")).remedy(remedy))
}

/// The effect of a `maxmemory-policy` on limits, and the remedy; `None` if it does no harm.
pub(crate) fn consequence_of_eviction(policy: &str) -> Option<(&'static str, &'static str)> {
    let consequence = if policy.starts_with("allkeys") {
        "evicts counters when memory is full, also those of denied keys, and overrides too"
    } else if policy.starts_with("volatile") {
        "evicts counters when memory is full, because every counter has an expiry"
    } else {
        return None;
    };
    let remedy = "CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration; what \
                  is a cache too goes to another server";
    Some((consequence, remedy))
}

/// The finding about what a restart loses.
pub(super) fn persistence(facts: &Facts) -> Option<Finding> {
    let persistence = facts.persistence.as_ref()?;
    let snapshots = persistence.save.as_deref().map(str::trim);
    if persistence.append_only? {
        let forgets = match persistence.fsync.as_deref() {
            Some("always") => "a crash forgets nothing",
            Some("everysec") => "a crash forgets about a second",
            Some(_) => "a crash forgets what the system had not written yet",
            None => "a crash loses changes that were not synced yet",
        };
        return Some(Finding::fine("persistence", format!("append-only file: {forgets}")));
    }
    let remedy = "CONFIG SET appendonly yes, and the same in the server's configuration, if limits are to \
                  outlive it";
    Some(match snapshots {
        Some("") => Finding::note(
            "persistence",
            "none: a restart of the server forgets every limit, override and receipt",
        )
        .remedy(remedy),
        Some(_) => {
            Finding::note("persistence", "snapshots: a crash of the server loses counts since the last one")
                .remedy(remedy)
        }
        None => Finding::note(
            "persistence",
            "no append-only file: a crash of the server loses everything that is in no snapshot",
        )
        .remedy(remedy),
    })
}

/// The finding about what could not be read.
pub(super) fn unread(facts: &Facts) -> Option<Finding> {
    let user = facts.user.as_deref().unwrap_or("default");
    let remedy = format!("ACL SETUSER {user} +info +config|get, or look as another user");
    let words = match facts.unread.as_slice() {
        [] => return None,
        ["CONFIG"] => "CONFIG is not permitted, so this is what INFO says",
        ["INFO"] => "INFO is not permitted, so how much memory is used is not known",
        _ => "neither INFO nor CONFIG is permitted: memory, eviction and persistence are not known",
    };
    Some(Finding::note("setup", words).remedy(remedy))
}
