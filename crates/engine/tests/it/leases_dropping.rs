//! Leases that are dropped while their holds are being renewed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{policies, rule};
use futures_lite::future::block_on;
use parking_lot::Mutex;
use tollgate_core::store::{Counter, HoldsOrder, Store};
use tollgate_core::{Attempt, Clock, Span, Timestamp};
use tollgate_engine::{Engine, Lease, Leases, Parts};
use tollgate_store::faulty::{Call, Faults, FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};

/// A store that drops a lease just before it executes an order on holds.
struct Meddled {
    memory: Arc<MemoryStore>,
    meddling: Mutex<Option<(Before, Lease)>>,
}

/// The order before which the lease is dropped.
enum Before {
    Renewal,
    Claim,
}

impl Faults for Meddled {
    fn store(&self) -> &dyn Store {
        &*self.memory
    }

    fn meet(&self, call: Call<'_>) -> Meeting<'_> {
        let mut meddling = self.meddling.lock();
        let meets = matches!(
            (call, &*meddling),
            (Call::Holds(HoldsOrder::RenewMany(_)), Some((Before::Renewal, _)))
                | (Call::Holds(HoldsOrder::Claim(..)), Some((Before::Claim, _)))
        );
        let dropped = if meets { meddling.take() } else { None };
        drop(meddling);
        drop(dropped);
        Meeting::Pass
    }

    fn answers_at_once(&self) -> bool {
        true
    }
}

struct Keeper {
    clock: Arc<ManualClock>,
    store: Arc<Meddled>,
    engine: Arc<Engine>,
    leases: Leases,
}

impl Keeper {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000_000_000)));
        let memory = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 1_000));
        let store = Arc::new(Meddled { memory: Arc::clone(&memory), meddling: Mutex::new(None) });
        let rules = vec![rule::rejecting("ip", &["ip"], &["2 at once for 30s"])];
        let parts =
            Parts { store: Arc::new(FaultyStore(Arc::clone(&store))), records: memory, fallback: None };
        let engine = block_on(Engine::start(policies(rules, &[("connect", &["ip"])]), parts)).unwrap();
        let engine = Arc::new(engine);
        let leases = Leases::new(Arc::clone(&engine), Arc::clone(&clock) as Arc<dyn Clock>);
        Self { clock, store, engine, leases }
    }

    fn connect(&self) -> Lease {
        let (pinned, id) = (self.engine.pin(), self.leases.fresh_id());
        let fields = [("ip", "192.0.2.1")];
        let attempt = Attempt { policy: "connect", fields: &fields, cost: 1, id: Some(&id) };
        let decision = block_on(self.engine.decide(&pinned, &attempt)).unwrap();
        assert!(decision.allowed());
        self.leases.keep(&decision, &id)
    }

    fn tend_after(&self, secs: u64) {
        self.clock.advance(Span::from_secs(secs));
        block_on(self.leases.tend());
    }

    fn held(&self) -> usize {
        let pinned = self.engine.pin();
        let plan = pinned.policies.rule("ip").unwrap().plan_at("192.0.2.1");
        block_on(self.engine.counters.holds(&Counter { plan, key: "192.0.2.1" }, HoldsOrder::List))
            .unwrap()
            .holds
            .len()
    }
}

#[test]
fn a_lease_dropped_just_before_its_renewal_is_neither_lost_nor_held_again() {
    let keeper = Keeper::new();
    let (_stays, goes) = (keeper.connect(), keeper.connect());
    keeper.tend_after(1);
    *keeper.store.meddling.lock() = Some((Before::Renewal, goes));
    keeper.tend_after(10);
    assert!(keeper.store.meddling.lock().is_none(), "it was renewed");
    assert_eq!((keeper.held(), keeper.leases.meters().lost(), keeper.leases.meters().live()), (1, 0, 1));
    keeper.tend_after(10);
    assert_eq!((keeper.held(), keeper.leases.meters().lost()), (1, 0));
}

#[test]
fn a_lease_dropped_while_it_is_taken_again_is_released_the_next_time() {
    let keeper = Keeper::new();
    let goes = keeper.connect();
    keeper.tend_after(1);
    *keeper.store.meddling.lock() = Some((Before::Claim, goes));
    keeper.tend_after(60);
    assert!(keeper.store.meddling.lock().is_none(), "it had run out, and was claimed");
    assert_eq!(keeper.leases.meters().lost(), 1);
    keeper.tend_after(1);
    assert_eq!(keeper.held(), 0);
}
