//! Single decisions under criterion, for watching a change: `cargo bench --manifest-path
//! bench/Cargo.toml`. The table of ratios comes from the runner.

#[path = "../src/contenders.rs"]
#[allow(dead_code, reason = "shared with the runner, which uses the rest")]
mod contenders;

use std::hint::black_box;

use contenders::{bucket_plan, decide, engine, governor, store, take};
use criterion::{Criterion, criterion_group, criterion_main};

fn one_bucket(criterion: &mut Criterion) {
    let key = String::from("user-00000007");
    let mut group = criterion.benchmark_group("one bucket, one key");
    let peer = governor();
    group.bench_function("governor", |bencher| bencher.iter(|| peer.check_key(black_box(&key)).is_ok()));
    let (store, plan) = (store(), bucket_plan());
    group.bench_function("store", |bencher| bencher.iter(|| take(&store, &plan, black_box(&key))));
    let engine = engine();
    let pinned = engine.pin();
    group.bench_function("engine", |bencher| {
        bencher.iter(|| decide(&engine, &pinned, "api", &[("user", black_box(&key))]))
    });
    group.finish();
}

fn five_rules(criterion: &mut Criterion) {
    let engine = engine();
    let pinned = engine.pin();
    criterion.bench_function("five rules, ten limits, one key", |bencher| {
        bencher.iter(|| {
            let key = black_box("somebody");
            decide(&engine, &pinned, "mail", &[("domain", key), ("sender", key), ("ip", key), ("api_key", key)])
        })
    });
}

criterion_group!(benches, one_bucket, five_rules);
criterion_main!(benches);
