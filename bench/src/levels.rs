//! Five rules with an hour and a day window each, one of them shared by all, taken all or none.

use std::collections::HashMap;
use std::hint::black_box;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit};

use crate::contenders::{decide, engine};
use crate::draws;
use crate::rounds::{line, measure};

pub fn run() {
    let engine = engine();
    let limitador = RateLimiter::new(8_000_000);
    for (name, field) in [("global", None), ("domain", Some("domain")), ("sender", Some("sender")), ("ip", Some("ip")), ("api_key", Some("api_key"))] {
        let variables = field.map(|field| field.try_into().unwrap());
        let mut limit = Limit::new("mail", 1_000_000_000, 3_600, Vec::<limitador::limit::Predicate>::new(), variables);
        limit.set_name(name.into());
        limitador.add_limit(limit);
    }
    let mail = "mail".into();
    let keys = draws::uniform();
    let times = measure(
        5,
        &mut [
            &mut || {
                let few = &keys[..50_000];
                few.iter()
                    .filter(|key| {
                        let values: HashMap<String, String> =
                            ["domain", "sender", "ip", "api_key"].iter().map(|name| ((*name).into(), (*key).clone())).collect();
                        let context: Context<'_> = values.into();
                        !black_box(limitador.check_rate_limited_and_update(&mail, &context, 1).unwrap().limited)
                    })
                    .count()
            },
            &mut || {
                let pinned = engine.pin();
                keys.iter()
                    .filter(|key| {
                        let fields = [("domain", key.as_str()), ("sender", key), ("ip", key), ("api_key", key)];
                        black_box(decide(&engine, &pinned, "mail", &fields))
                    })
                    .count()
            },
            &mut || {
                let pinned = engine.pin();
                keys.iter().filter(|key| black_box(decide(&engine, &pinned, "api", &[("user", key)]))).count()
            },
        ],
    );
    let own = format!("{:.0} ns", times.nanos(1));
    line("five rules, ten limits, `Engine::decide`", &own, &format!("limitador, five limits {:.0} ns", times.nanos(0)), times.ratio(1, 0), "≤ 0.13");
    line("five rules, ten limits, `Engine::decide`", &own, &format!("one rule, one bucket {:.0} ns", times.nanos(2)), times.ratio(1, 2), "≤ 6");
}
