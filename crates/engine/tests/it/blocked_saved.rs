//! Over a store that has to be saved, no entry applies that a crash could undo. Entries become known in the
//! order in which they are saved, whichever caller learns first that they are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use crate::support::{START, decide, policies, rule};
use futures_lite::future::{block_on, poll_once};
use tollgate_core::{Author, Clock, Records, Stance, Store};
use tollgate_engine::{Engine, ListFault, Parts, Wish};
use tollgate_store::faulty::{Call, FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};

/// Records that are saved when a test says so: a call is answered once all changes up to it are saved.
fn slow_disk(clock: Arc<dyn Clock>, saved: Arc<AtomicU64>) -> Arc<dyn Records> {
    let entered = AtomicU64::new(0);
    let inner = Arc::new(MemoryStore::new(clock, 1_000));
    Arc::new(FaultyStore::with_records(inner, move |call| {
        let number = match call {
            Call::Change(_) => entered.fetch_add(1, Ordering::SeqCst) + 1,
            Call::Changes(_) => entered.load(Ordering::SeqCst),
            _ => return Meeting::Pass,
        };
        let saved = Arc::clone(&saved);
        let is_saved = move || saved.load(Ordering::SeqCst) >= number;
        Meeting::answered_after(poll_fn(move |_| if is_saved() { Poll::Ready(()) } else { Poll::Pending }))
    }))
}

struct Stand {
    engine: Engine,
    saved: Arc<AtomicU64>,
}

impl Stand {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(START));
        let saved = Arc::new(AtomicU64::new(0));
        let parts = Parts {
            store: Arc::new(MemoryStore::new(Arc::clone(&clock), 1_000)) as Arc<dyn Store>,
            records: slow_disk(clock, Arc::clone(&saved)),
            fallback: None,
        };
        let rules = policies(vec![rule::rejecting("ip", &["ip"], &["1000/hour"])], &[("api", &["ip"])]);
        Self { engine: block_on(Engine::start(rules, parts)).unwrap(), saved }
    }

    async fn block(&self, ip: &str) -> Result<(), ListFault> {
        let wish = Wish {
            target: self.engine.lists.target(ip).unwrap(),
            stance: Stance::Block,
            lasts: None,
            reason: "spam".into(),
            show_reason: false,
            author: Author::Key("ops".into()),
        };
        self.engine.lists.put(vec![wish]).await.map(drop)
    }

    async fn unblock(&self, ip: &str) -> Result<(), ListFault> {
        self.engine.lists.remove(&self.engine.lists.target(ip).unwrap()).await.map(drop)
    }

    fn save_upto(&self, number: u64) {
        self.saved.store(number, Ordering::SeqCst);
    }

    fn blocks(&self, ip: &str) -> bool {
        decide(&self.engine, &self.engine.pin(), "api", &[("ip", ip)]).unwrap().blocked().is_some()
    }
}

#[test]
fn an_entry_holds_once_it_is_saved_and_not_before() {
    let stand = Stand::new();
    let mut set = pin!(stand.block("192.0.2.1"));
    assert_eq!(block_on(poll_once(&mut set)), None);
    assert!(!stand.blocks("192.0.2.1"));
    stand.save_upto(1);
    assert_eq!(block_on(poll_once(&mut set)), Some(Ok(())));
    assert!(stand.blocks("192.0.2.1"));
}

#[test]
fn an_entry_takes_effect_even_if_its_caller_does_not_wait() {
    let stand = Stand::new();
    {
        let mut set = pin!(stand.block("192.0.2.1"));
        assert_eq!(block_on(poll_once(&mut set)), None);
    }
    assert!(!stand.blocks("192.0.2.1"), "it is not saved yet");
    stand.save_upto(1);
    block_on(stand.engine.tend());
    assert!(stand.blocks("192.0.2.1"));
}

#[test]
fn a_removed_entry_stays_removed_whichever_call_is_polled_first() {
    let stand = Stand::new();
    let mut set = pin!(stand.block("192.0.2.1"));
    assert_eq!(block_on(poll_once(&mut set)), None);
    let mut removed = pin!(stand.unblock("192.0.2.1"));
    assert_eq!(block_on(poll_once(&mut removed)), None);
    stand.save_upto(2);
    assert_eq!(block_on(poll_once(&mut removed)), Some(Ok(())));
    assert_eq!(block_on(poll_once(&mut set)), Some(Ok(())));
    assert!(!stand.blocks("192.0.2.1"));
}
