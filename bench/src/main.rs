//! scratch
use std::sync::Arc;
use std::time::Instant;
use std::num::NonZeroU32;
use tollgate_core::*;
use tollgate_store::*;

fn take(s: &MemoryStore, c: &Charges<'_>) -> bool { let mut o = Outcome::default(); match s.take(c, &mut o) { Answer::Ready(Some(Ok(()))) => {}, _ => panic!() }; o.allowed }

fn main() {
    if std::env::args().nth(1).as_deref() == Some("hot") {
        let plan = Arc::new(Plan::new("api".into(), vec!["100000000/s burst 100000000".parse().unwrap()]).unwrap());
        let store = MemoryStore::new(Arc::new(SystemClock::new()), 4_000_000);
        let k = String::from("user-00000007");
        let t = Instant::now();
        for _ in 0..60_000_000u64 { let mut c = Charges::new(Ticket(1), 1, None); c.push(&plan, std::hint::black_box(&k), true); std::hint::black_box(take(&store, &c)); }
        println!("{:.1} ns", t.elapsed().as_nanos() as f64 / 60e6);
        return;
    }
    let n = 1_000_000usize;
    let keys: Vec<String> = (0..n).map(|i| format!("user-{i:08}")).collect();
    let mut x = 88172645463325252u64;
    let order: Vec<u32> = (0..4_000_000).map(|_| { x ^= x << 13; x ^= x >> 7; x ^= x << 17; (x % n as u64) as u32 }).collect();
    let drawn: Vec<String> = order.iter().map(|i| keys[*i as usize].clone()).collect();
    let gov = governor::RateLimiter::<String, _, _>::keyed(governor::Quota::per_second(NonZeroU32::new(100000000).unwrap()).allow_burst(NonZeroU32::new(100000000).unwrap()));
    let limit: Limit = "100000000/s burst 100000000".parse().unwrap();
    let plan = Arc::new(Plan::new("api".into(), vec![limit]).unwrap());
    let store = MemoryStore::new(Arc::new(SystemClock::new()), 4_000_000);
    let w: Vec<Limit> = vec!["1000000/hour".parse().unwrap(), "10000000/day".parse().unwrap()];
    let plans: Vec<Arc<Plan>> = ["global","domain","sender","ip","api_key"].iter().map(|r| Arc::new(Plan::new((*r).into(), w.clone()).unwrap())).collect();
    for k in &keys { let _ = gov.check_key(k); let mut c = Charges::new(Ticket(1), 1, None); c.push(&plan, k, true); take(&store, &c); }
    let clock = SystemClock::new();
    let mode = std::env::args().nth(1);
    if let Some(m) = mode { let t = Instant::now(); for _ in 0..5 { for d in &drawn { let k = if m == "hot" { &keys[7] } else { d }; let mut c = Charges::new(Ticket(1), 1, None); c.push(&plan, k, true); std::hint::black_box(take(&store, &c)); } } println!("{} ns", t.elapsed().as_nanos() as f64 / 20e6); return; }
    for round in 0..3 {
        let t = Instant::now(); for k in &drawn { std::hint::black_box(gov.check_key(k).is_ok()); } let g = t.elapsed().as_nanos() as f64 / order.len() as f64;
        let t = Instant::now(); for k in &drawn { let mut c = Charges::new(Ticket(1), 1, None); c.push(&plan, k, true); std::hint::black_box(take(&store, &c)); } let o = t.elapsed().as_nanos() as f64 / order.len() as f64;
        let t = Instant::now(); for _ in &order { std::hint::black_box(gov.check_key(&keys[7]).is_ok()); } let gh = t.elapsed().as_nanos() as f64 / order.len() as f64;
        let t = Instant::now(); for _ in &order { let mut c = Charges::new(Ticket(1), 1, None); c.push(&plan, &keys[7], true); std::hint::black_box(take(&store, &c)); } let oh = t.elapsed().as_nanos() as f64 / order.len() as f64;
        let t = Instant::now(); for k in &drawn { let mut c = Charges::new(Ticket(1), 1, None);
            c.push(&plans[0], "global", true); for p in &plans[1..] { c.push(p, k, true); }
            std::hint::black_box(take(&store, &c)); } let f = t.elapsed().as_nanos() as f64 / order.len() as f64;
        let t = Instant::now(); for _ in &order { std::hint::black_box(clock.now()); } let c = t.elapsed().as_nanos() as f64 / order.len() as f64;
        println!("round {round}: uniform gov {g:.0} ours {o:.0} = {:.2}; hot gov {gh:.0} ours {oh:.0} = {:.2}; five {f:.0} = {:.1}x; clock {c:.0}", o/g, oh/gh, f/o);
    }
}
