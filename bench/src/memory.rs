//! Bytes for each key at 1,000,000 keys, and allocations for each decision.

use stats_alloc::Region;

use crate::ALLOCATOR;
use crate::contenders::{bucket_plan, decide, engine, governor, store, take};
use crate::draws::{KEYS, key};
use crate::rounds::line;

pub fn run() {
    let governor = governor();
    let peer = bytes_per_key(|key| assert!(governor.check_key(&key.to_owned()).is_ok()));
    let (store, plan) = (store(), bucket_plan());
    let own = bytes_per_key(|key| assert!(take(&store, &plan, key)));
    let beside = format!("governor {peer:.0} B");
    line("memory for each key, one bucket", &format!("{own:.0} B"), &beside, own / peer, "≤ 96 B, aim 66 B");

    let windows = ["1000000/hour", "10000000/day"].map(|limit| limit.parse().unwrap()).to_vec();
    let plan = std::sync::Arc::new(tollgate_core::Plan::new("mail".into(), windows).unwrap());
    let store = crate::contenders::store();
    let own = bytes_per_key(|key| assert!(take(&store, &plan, key)));
    line("memory for each key, hour and day window", &format!("{own:.0} B"), &beside, own / peer, "≤ 160 B");

    let engine = engine();
    let pinned = engine.pin();
    for (what, policy, names) in
        [("one rule", "api", &["user"][..]), ("five rules", "mail", &["domain", "sender", "ip", "api_key"])]
    {
        let fields: Vec<(&str, &str)> = names.iter().map(|name| (*name, "a-user")).collect();
        for _ in 0..1_000 {
            decide(&engine, &pinned, policy, &fields);
        }
        let region = Region::new(ALLOCATOR);
        for _ in 0..100_000 {
            decide(&engine, &pinned, policy, &fields);
        }
        let each = region.change().allocations as f64 / 100_000.0;
        line(&format!("allocations for each allowed decision, {what}"), &format!("{each:.4}"), "", each, "aim 0; the journal samples");
    }
}

fn bytes_per_key(take: impl Fn(&str)) -> f64 {
    let region = Region::new(ALLOCATOR);
    for n in 0..KEYS {
        take(&key(n));
    }
    let change = region.change();
    // What grows in place is counted as reallocated, not as allocated.
    (change.bytes_allocated as f64 - change.bytes_deallocated as f64 + change.bytes_reallocated as f64) / KEYS as f64
}
