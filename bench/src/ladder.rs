//! A ladder beside a bucket: one rule, one key, straight from the store.

use std::hint::black_box;
use std::sync::Arc;

use tollgate_core::Plan;

use crate::contenders::{bucket_plan, store, take};
use crate::draws;
use crate::rounds::{line, measure};

pub fn run() {
    // Guesses at a million accounts: at first they count, and more and more have to wait.
    compare("ladder, uniform over 1,000,000 keys", "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify", &draws::uniform());
    compare("ladder, one hot key that is locked", "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify", &draws::hot());
    // A thousand failures in a row, and all forgotten a microsecond later.
    compare("ladder, one hot key that fails", "ladder 1000 lock 1us forget 1us", &draws::hot());
}

fn compare(what: &str, ladder: &str, keys: &[String]) {
    let (store, bucket) = (store(), bucket_plan());
    let ladder = Arc::new(Plan::new("ladder".into(), vec![ladder.parse().unwrap()]).unwrap());
    for n in 0..draws::KEYS {
        let key = draws::key(n);
        take(&store, &bucket, &key);
        take(&store, &ladder, &key);
    }
    let times = measure(
        15,
        &mut [
            &mut || {
                keys.iter().for_each(|key| _ = black_box(take(&store, &bucket, key)));
                keys.len()
            },
            &mut || {
                keys.iter().for_each(|key| _ = black_box(take(&store, &ladder, key)));
                keys.len()
            },
        ],
    );
    line(what, &format!("{:.0} ns", times.nanos(1)), &format!("bucket {:.0} ns", times.nanos(0)), times.ratio(1, 0), "");
}
