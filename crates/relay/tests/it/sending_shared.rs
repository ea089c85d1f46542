//! Senders that share limits over Redis, counts that outlast a restart, and stores that fail.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::keeping::stand::{Limited, Setup, Stand, account, policies};
use crate::keeping::watched::Watched;
use crate::keeping::{START, clock, envelope, submit};
use tollgate_core::{Clock, OnOutage, Policies, Policy, Records, Rule, Span, Store};
use tollgate_engine::{Engine, Fallback, Parts};
use tollgate_redis::{RedisStore, Settings};
use tollgate_relay::accounts::{Account, OnLimit};
use tollgate_relay::lanes::Cause;
use tollgate_relay::queue::EventKind;
use tollgate_relay::queue::disk::Directory;
use tollgate_store::file::{FileOptions, Syncing};
use tollgate_store::{FileStore, ManualClock, MemoryStore};
use tollgate_testbed::{Server, Sink};

const HOUR: Span = Span::from_secs(3_600);

async fn engine(redis: &Server, clock: &Arc<ManualClock>, policies: Policies) -> Arc<Engine> {
    let settings = Settings {
        // A busy machine is not an outage.
        command_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        ..Settings::parse(&redis.url()).unwrap()
    };
    let shared = || Arc::clone(clock) as Arc<dyn Clock>;
    let store = Arc::new(RedisStore::start(settings).await.unwrap().with_clock(shared()));
    let parts = Parts {
        store: Arc::clone(&store) as Arc<dyn Store>,
        records: store as Arc<dyn Records>,
        fallback: Some(Fallback {
            store: Arc::new(MemoryStore::new(shared(), 1_000)),
            clock: shared(),
            probe_every: Span::from_millis(100),
        }),
    };
    Arc::new(Engine::start(policies, parts).await.unwrap())
}

/// The limits, with rules that deny while the store cannot be used.
fn denying(limited: Limited) -> Policies {
    let known = policies(limited);
    let rule = |rule: &Arc<Rule>| Arc::new(Rule { on_outage: OnOutage::Deny, ..Rule::clone(rule) });
    let rules: Vec<Arc<Rule>> = known.rules().iter().map(rule).collect();
    Policies::new(true, rules.clone(), vec![Policy::new("mail.deliver".into(), rules, false)])
}

fn deferrals(stand: &Stand, message: u128) -> usize {
    stand.show(message).events.iter().filter(|event| event.kind == EventKind::Deferred).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_keep_the_limit_of_one_account_through_a_restart_of_redis() {
    let (mut redis, sink, clock) = (Server::redis().append_only().start(), Sink::start(), clock());
    let limited = Limited { account: &["10/hour sliding"], ..Limited::default() };
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let engine = Some(engine(&redis, &clock, denying(limited)).await);
        let setup = Setup::new(limited, vec![account("main", sink.port(), 0)]);
        nodes.push(Stand::start_with(Setup { engine, clock: Arc::clone(&clock), ..setup }).await);
    }
    for id in 0..10 {
        for node in &nodes {
            submit(&node.queue, envelope(id, &[&format!("a@d{id}.example")]), b"x\r\n").await.unwrap();
        }
    }
    nodes[0].until("ten messages", |_| sink.count() >= 10).await;
    for node in &nodes {
        node.settle().await;
    }
    assert_eq!(sink.count(), 10, "ten of twenty, whichever node has them");
    redis.stop();
    redis.start();
    clock.set(START + HOUR - Span::from_micros(1));
    for node in &nodes {
        node.sender.nudge();
        node.settle().await;
    }
    assert_eq!(sink.count(), 10, "the restart reset no count");
    let sent = async {
        while sink.count() < 20 {
            for node in &nodes {
                node.engine.tend().await;
                node.advance(Span::from_millis(50));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(tollgate_testbed::PATIENCE, sent).await.expect("the others follow");
    assert_eq!(sink.count(), 20);
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_rejects_nothing_and_is_told_once() {
    let (mut redis, sink, clock) = (Server::redis().append_only().start(), Sink::start(), clock());
    let limited = Limited { account: &["10/hour sliding"], ..Limited::default() };
    let engine = engine(&redis, &clock, denying(limited)).await;
    let rejecting = Account { on_limit: OnLimit::Reject, ..account("main", sink.port(), 0) };
    let setup = Setup::new(limited, vec![rejecting]);
    let setup = Setup { engine: Some(Arc::clone(&engine)), clock: Arc::clone(&clock), ..setup };
    let stand = Stand::start_with(setup).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the first message", |_| sink.count() == 1).await;
    redis.kill9();
    submit(&stand.queue, envelope(2, &["a@there.example"]), b"x\r\n").await.unwrap();
    for _ in 0..10 {
        stand
            .until("the lane sleeps", |stand| stand.sender.lanes().iter().any(|lane| lane.sleep.is_some()))
            .await;
        stand.settle().await;
        let sleep = stand.sender.lanes()[0].sleep.clone().unwrap();
        assert_eq!(sleep.cause, Cause::Outage, "{sleep:?}");
        stand.advance(Span::from_secs(5));
    }
    stand.settle().await;
    assert_eq!((stand.queue.len(), deferrals(&stand, 2)), (1, 1), "{:?}", stand.show(2).events);
    let item = stand.show(2).items[0].1.clone();
    assert_eq!((item.attempts, item.spent), (0, Span::ZERO), "waiting for the store is no attempt");
    redis.start();
    let sent = async {
        while sink.count() < 2 {
            engine.tend().await;
            stand.advance(Span::from_millis(500));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(tollgate_testbed::PATIENCE, sent).await.expect("it is sent when the store is back");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_share_defers_and_rejects_nothing() {
    let (mut redis, sink, clock) = (Server::redis().start(), Sink::start(), clock());
    let limited = Limited { account: &["4/hour sliding"], ..Limited::default() };
    let engine = engine(&redis, &clock, policies(limited)).await;
    let rejecting = Account { on_limit: OnLimit::Reject, ..account("main", sink.port(), 0) };
    let setup = Setup::new(limited, vec![rejecting]);
    let stand = Stand::start_with(Setup { engine: Some(engine), clock, ..setup }).await;
    redis.kill9();
    for id in 0..4 {
        submit(&stand.queue, envelope(id, &["a@there.example"]), b"x\r\n").await.unwrap();
    }
    stand.until("half of the limit", |_| sink.count() == 2).await;
    stand
        .until("the lane sleeps", |stand| stand.sender.lanes().iter().any(|lane| lane.sleep.is_some()))
        .await;
    stand.settle().await;
    let finished = (0..4).filter(|id| stand.show(*id).kept.finished.is_some()).count();
    assert_eq!((sink.count(), finished), (2, 2), "the others wait, and are not returned to their sender");
    stand.stop().await;
}

async fn over_a_file(directory: &Path, clock: &Arc<ManualClock>, port: u16) -> (Stand, Arc<FileStore>) {
    let limited = Limited { account: &["2/hour sliding"], ..Limited::default() };
    let file = FileOptions {
        flush_interval: Span::from_secs(3_600),
        sync: Syncing::Interval,
        max_keys: 1_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let shared = Arc::clone(clock) as Arc<dyn Clock>;
    let (store, _) = FileStore::open(directory.join("counts.redb"), shared, file).unwrap();
    let store = Arc::new(store);
    let parts = Parts {
        store: Arc::clone(&store) as Arc<dyn Store>,
        records: Arc::clone(&store) as Arc<dyn Records>,
        fallback: None,
    };
    let engine = Arc::new(Engine::start(policies(limited), parts).await.unwrap());
    let setup = Setup::new(limited, vec![account("main", port, 0)]);
    let disk = Arc::new(Directory::open(&directory.join("queue")).unwrap());
    let stand =
        Stand::start_with(Setup { disk, engine: Some(engine), clock: Arc::clone(clock), ..setup }).await;
    (stand, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_resets_no_count_and_forgets_no_message() {
    let (sink, directory, clock) = (Sink::start(), tempfile::tempdir().unwrap(), clock());
    let (stand, store) = over_a_file(directory.path(), &clock, sink.port()).await;
    for id in 0..3 {
        submit(&stand.queue, envelope(id, &["a@there.example"]), b"x\r\n").await.unwrap();
    }
    stand.until("two messages", |_| sink.count() == 2).await;
    stand.settle().await;
    stand.stop().await;
    drop(store);
    clock.advance(Span::from_secs(60));
    let (stand, _store) = over_a_file(directory.path(), &clock, sink.port()).await;
    stand
        .until("the lane sleeps", |stand| stand.sender.lanes().iter().any(|lane| lane.sleep.is_some()))
        .await;
    stand.settle().await;
    assert_eq!((sink.count(), stand.sender.lanes()[0].sleep.as_ref().unwrap().until), (2, START + HOUR));
    stand.advance(HOUR);
    stand.until("the third message", |_| sink.count() == 3).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_panics_is_retried_and_marked_and_delays_no_other() {
    let sink = Sink::start();
    let limited = Limited { account: &["10/hour sliding"], ..Limited::default() };
    let setup = Setup::new(limited, vec![account("main", sink.port(), 0)]);
    let panics_once = |number| assert!(number > 1, "an attempt panics here, as the test wants");
    let store = Arc::new(Watched::new(&setup.clock, panics_once));
    let stand = Stand::start_with(setup.watched(&store).await).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand
        .until("the record of the fault", |stand| {
            stand.show(1).events.iter().any(|event| event.kind == EventKind::Unknown)
        })
        .await;
    submit(&stand.queue, envelope(2, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the other message", |_| sink.count() == 1).await;
    let item = stand.show(1).items[0].1.clone();
    assert!(item.possible_duplicate && item.due == START + Span::from_secs(120), "{item:?}");
    stand.advance(Span::from_secs(120));
    stand.until("the second attempt", |_| sink.count() == 2).await;
    stand.stop().await;
}
