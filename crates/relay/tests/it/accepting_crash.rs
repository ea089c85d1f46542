//! kill -9 while messages are accepted: neither an acknowledged message nor its charge is missing afterwards.
//!
//! The counts are saved every ten seconds, so all that survives was saved because a message waited for it.
//! `TOLLGATE_LONG=1` crashes more often.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use crate::keeping::{options, text_of};
use tokio::runtime::Runtime;
use tollgate_core::{Attempt, Clock, Policies, Policy, Records, Rule, Span, Store};
use tollgate_engine::{Admissions, Engine, Leases, Parts};
use tollgate_relay::acceptance::{AcceptTerms, Acceptance, Acceptances, Submission, Via};
use tollgate_relay::lanes::Priority;
use tollgate_relay::message::{Notify, Recipient, ReportWish};
use tollgate_relay::queue::Queue;
use tollgate_relay::queue::disk::Directory;
use tollgate_relay::session::Identity;
use tollgate_store::SystemClock;
use tollgate_store::file::{FileOptions, FileStore, Syncing};

const CHILD: &str = "TOLLGATE_RELAY_ACCEPTING_CHILD";
const NAME: &str = "kill_9_forgets_no_charge_of_an_acknowledged_message";
const LIMIT: u64 = 1_000_000;
/// How many messages come at the same time.
const TOGETHER: usize = 4;

/// An engine over a file that is saved every ten seconds, unless a caller waits for it.
async fn engine(directory: &Path, clock: &Arc<dyn Clock>) -> Arc<Engine> {
    let file = FileOptions {
        flush_interval: Span::from_secs(10),
        sync: Syncing::Interval,
        max_keys: 1_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let (store, _) = FileStore::open(directory.join("counts.redb"), Arc::clone(clock), file).unwrap();
    let store = Arc::new(store);
    let limit = format!("{LIMIT} in total").parse().unwrap();
    let rule = Arc::new(Rule::new("tenant", &["tenant"], vec![limit]).unwrap());
    let policy = Policy::new("accept".into(), vec![Arc::clone(&rule)], false);
    let parts = Parts {
        store: Arc::clone(&store) as Arc<dyn Store>,
        records: store as Arc<dyn Records>,
        fallback: None,
    };
    Arc::new(Engine::start(Policies::new(true, vec![rule], vec![policy]), parts).await.unwrap())
}

fn submission() -> Submission {
    let (address, domain) = ("b@y.test".to_owned(), "y.test".to_owned());
    Submission {
        identity: Identity { user: None, api_key: None, tenant: "acme".into(), senders: Arc::new([]) },
        client: IpAddr::from([192, 0, 2, 1]),
        sender: None,
        recipients: vec![Recipient { address, domain, notify: Notify::default(), original: None }],
        account: None,
        priority: Priority::Normal,
        utf8: false,
        report: ReportWish::default(),
        idempotency: None,
        via: Via { client_name: None, protocol: "HTTP".to_owned() },
        correlation: None,
    }
}

/// Accepts messages for ever, and tells on its output when one is.
fn accept_and_tell(directory: &Path) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let engine = engine(directory, &clock).await;
        let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::clone(&clock)));
        let disk = Arc::new(Directory::open(&directory.join("queue")).unwrap());
        let (queue, _opened) = Queue::open(disk, Arc::clone(&clock), options()).unwrap();
        let terms = AcceptTerms { policy: Some("accept".into()), ..AcceptTerms::new("relay.test") };
        let admissions = Admissions { engine, pacer: None, leases };
        let doors = Arc::new(Acceptances::new(terms, admissions, Arc::new(queue), clock));
        let one = async || {
            for number in 0.. {
                let mut acceptance = Acceptance::begin(&doors, submission(), None).await.unwrap();
                let size = if number % 5 == 0 { 40_000 } else { 300 };
                acceptance.write(&text_of(number, size)).await.unwrap();
                acceptance.finish().await.unwrap();
                let mut out = std::io::stdout().lock();
                out.write_all(b"accepted\n").unwrap();
                out.flush().unwrap();
            }
        };
        tokio::join!(one(), one(), one(), one());
    });
}

/// How many messages were charged, and how many are in the queue.
fn charged_and_kept(directory: &Path) -> (u64, u64) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Runtime::new().unwrap().block_on(async {
        let engine = engine(directory, &clock).await;
        let look = Attempt { policy: "accept", fields: &[("tenant", "acme")], cost: 0, id: None };
        let left = engine.peek(&engine.pin(), &look).await.unwrap().outcome.readings[0].remaining;
        let disk = Arc::new(Directory::open(&directory.join("queue")).unwrap());
        let (queue, _opened) = Queue::open(disk, clock, options()).unwrap();
        (LIMIT - left, queue.len())
    })
}

#[test]
fn kill_9_forgets_no_charge_of_an_acknowledged_message() {
    if let Some((_, path)) = std::env::vars_os().find(|(name, _)| name == CHILD) {
        return accept_and_tell(Path::new(&path));
    }
    let rounds = if std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG") { 50 } else { 5 };
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0_u64;
    for round in 0..rounds {
        let mut child = tollgate_testbed::rerun(module_path!(), NAME)
            .env(CHILD, directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut left = fastrand::Rng::with_seed(round).usize(10..100);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if line.unwrap() != "accepted" {
                continue;
            }
            acknowledged += 1;
            left = left.saturating_sub(1);
            if left == 0 {
                // What the pipe still holds was acknowledged too.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert_eq!(left, 0, "the process accepted until it was killed");
        let (charged, kept) = charged_and_kept(directory.path());
        let in_flight = (round + 1) * TOGETHER as u64;
        assert!(kept >= acknowledged, "{acknowledged} messages were acknowledged, and {kept} are there");
        assert!(charged >= acknowledged, "{acknowledged} messages were acknowledged, and {charged} charged");
        assert!(charged <= acknowledged + in_flight, "{charged} charged for {acknowledged}");
    }
}
