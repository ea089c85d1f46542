//! One decision over and over, for profilers: `hot store|engine|admit|levels [COUNT]`.
//!
//! `valgrind --tool=callgrind` counts its instructions, which do not depend on the machine's mood.

#[path = "../contenders.rs"]
#[allow(dead_code, reason = "shared with the runner, which uses the rest")]
mod contenders;

use std::hint::black_box;
use std::sync::Arc;

use contenders::{admissions, admit, bucket_plan, decide, engine, store, take};

fn main() {
    let what = std::env::args().nth(1).unwrap_or_else(|| "engine".into());
    let count: u64 = std::env::args().nth(2).map_or(20_000_000, |count| count.parse().expect("a number"));
    let (store, plan, engine) = (store(), bucket_plan(), Arc::new(engine()));
    let admissions = admissions(&engine);
    let (pinned, door) = (engine.pin(), admissions.pin());
    let start = std::time::Instant::now();
    for _ in 0..count {
        let key = black_box("user-00000007");
        black_box(match what.as_str() {
            "store" => take(&store, &plan, key),
            "engine" => decide(&engine, &pinned, "api", &[("user", key)]),
            "admit" => admit(&door, "api", &[("user", key)]),
            _ => decide(&engine, &pinned, "mail", &[("domain", key), ("sender", key), ("ip", key), ("api_key", key)]),
        });
    }
    println!("{:.1} ns", start.elapsed().as_nanos() as f64 / count as f64);
}
