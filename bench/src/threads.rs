//! Two threads on uniform keys beside one.

use std::hint::black_box;

use crate::contenders::{bucket_plan, decide, engine, store, take};
use crate::draws;
use crate::rounds::{line, measure};

pub fn run() {
    let (store, plan) = (store(), bucket_plan());
    let engine = engine();
    let keys = draws::uniform();
    let half = keys.len() / 2;
    let through_store = |keys: &[String]| keys.iter().filter(|key| black_box(take(&store, &plan, key))).count();
    let through_engine = |keys: &[String]| {
        let pinned = engine.pin();
        keys.iter().filter(|key| black_box(decide(&engine, &pinned, "api", &[("user", key)]))).count()
    };
    through_store(&keys);
    through_engine(&keys);
    let both = |work: &(dyn Fn(&[String]) -> usize + Sync)| {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| work(&keys[half..]));
            work(&keys[..half]) + other.join().unwrap()
        })
    };
    let times = measure(
        15,
        &mut [
            &mut || through_store(&keys),
            &mut || both(&through_store),
            &mut || through_engine(&keys),
            &mut || both(&through_engine),
        ],
    );
    for (what, one) in [("store", 0), ("`Engine::decide`", 2)] {
        let rate = |at: usize| format!("{:.1} M/s", 1e3 / times.nanos(at));
        line(&format!("two threads, {what}"), &rate(one + 1), &format!("one thread {}", rate(one)), times.ratio(one, one + 1), "≥ 1.70");
    }
}
