//! One bucket on a keyed rule: straight from the store, through the engine, and through the entry point of the doors.

use std::hint::black_box;
use std::sync::Arc;

use crate::contenders::{admissions, admit, bucket_plan, decide, engine, governor, store, take};
use crate::draws;
use crate::rounds::{line, measure};

pub fn run() {
    let governor = governor();
    let (store, plan) = (store(), bucket_plan());
    let engine = Arc::new(engine());
    let admissions = admissions(&engine);
    for n in 0..draws::KEYS {
        let key = draws::key(n);
        let _ = governor.check_key(&key);
        take(&store, &plan, &key);
        decide(&engine, &engine.pin(), "api", &[("user", &key)]);
    }
    let cases = [
        ("uniform over 1,000,000 keys", draws::uniform(), "≤ 0.60"),
        ("Zipf over 1,000,000 keys", draws::zipf(), "≤ 0.70"),
        ("one hot key", draws::hot(), "≤ 3.00"),
    ];
    for (what, keys, bound) in cases {
        let times = measure(
            15,
            &mut [
                &mut || keys.iter().filter(|key| black_box(governor.check_key(key)).is_ok()).count(),
                &mut || keys.iter().filter(|key| black_box(take(&store, &plan, key))).count(),
                &mut || {
                    let pinned = engine.pin();
                    keys.iter().filter(|key| black_box(decide(&engine, &pinned, "api", &[("user", key)]))).count()
                },
                &mut || {
                    let pinned = admissions.pin();
                    keys.iter().filter(|key| black_box(admit(&pinned, "api", &[("user", key)]))).count()
                },
            ],
        );
        let peer = format!("governor keyed {:.0} ns", times.nanos(0));
        let ways = [("store", ""), ("`Engine::decide`", bound), ("`Pinned::admit`", "")];
        for (way, (name, bound)) in (1..).zip(ways) {
            let (what, measured) = (format!("{what}, {name}"), format!("{:.0} ns", times.nanos(way)));
            line(&what, &measured, &peer, times.ratio(way, 0), bound);
        }
    }
}
