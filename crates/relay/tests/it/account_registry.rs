//! Accounts that are made while the relay runs: they are used at once on every node, and keep their passwords secret.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::keeping::forgetful::Forgetful;
use crate::keeping::script::{Scripted, with};
use crate::keeping::stand::{Limited, account, admissions, policies};
use crate::keeping::{clock, envelope, open, patient_options, submit, text_of};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Clock, Limit, Records, Store};
use tollgate_engine::{Engine, Parts};
use tollgate_relay::accounts::{
    AccountDraft, AccountFault, AccountRegistry, Accounts, Existing, OnLimit, Put, Secret, SecretKey, Source,
};
use tollgate_relay::client::{Client, TlsMode};
use tollgate_relay::lanes::{LaneOptions, Retry};
use tollgate_relay::limits::Limits;
use tollgate_relay::meters::RelayMeters;
use tollgate_relay::queue::Queue;
use tollgate_relay::sender::{RecipientLog, Sender, SenderParts};
use tollgate_store::faulty::{Call, FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_testbed::PATIENCE;

const KEY: SecretKey = SecretKey([7; 32]);

/// One of several nodes that share a store.
struct Node {
    engine: Arc<Engine>,
    accounts: Arc<Accounts>,
    sender: Arc<Sender>,
    registry: Arc<AccountRegistry>,
    queue: Queue,
    _stop: (oneshot::Sender<()>, oneshot::Sender<()>),
}

impl Node {
    async fn start(clock: &Arc<ManualClock>, store: &Arc<MemoryStore>, key: Option<&SecretKey>) -> Self {
        Self::over(clock, store, Arc::clone(store) as Arc<dyn Records>, key).await
    }

    async fn over(
        clock: &Arc<ManualClock>,
        store: &Arc<MemoryStore>,
        records: Arc<dyn Records>,
        key: Option<&SecretKey>,
    ) -> Self {
        let parts = Parts { store: Arc::clone(store) as Arc<dyn Store>, records, fallback: None };
        let engine = Arc::new(Engine::start(policies(Limited::default()), parts).await.unwrap());
        let (queue, opened) = open(Arc::new(Forgetful::new()), clock);
        let accounts = Arc::new(Accounts::default());
        let sender = Arc::new(Sender::new(SenderParts {
            queue: queue.clone(),
            client: Client::new(patient_options(rustls::RootCertStore::empty())),
            limits: Limits::new(admissions(&engine, Arc::clone(clock) as Arc<dyn Clock>), "mail.deliver"),
            accounts: Arc::clone(&accounts),
            direct: None,
            clock: Arc::clone(clock) as Arc<dyn Clock>,
            retry: Retry::default(),
            lanes: LaneOptions::default(),
            most_recipients: 100,
            meters: RelayMeters::new(),
            recipient_log: RecipientLog::default(),
        }));
        let (stop_sender, stopped) = oneshot::channel::<()>();
        tokio::spawn(Arc::clone(&sender).run(opened, async { drop(stopped.await) }));
        let registry = Arc::new(AccountRegistry::new(
            Arc::clone(&engine),
            Arc::clone(&sender),
            Arc::clone(&accounts),
            key,
        ));
        let (stop_book, stopped) = oneshot::channel::<()>();
        let running = Arc::clone(&registry);
        tokio::spawn(async move { running.run(async { drop(stopped.await) }).await });
        Self { engine, accounts, sender, registry, queue, _stop: (stop_sender, stop_book) }
    }

    async fn until(&self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !so(self) {
                self.engine.tend().await;
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "waited in vain for: {what}");
    }

    fn password_of(&self, id: &str) -> Option<String> {
        let account = self.accounts.of("acme", Some(id)).pop()?;
        account.destination.login.as_ref().map(|login| login.password.clone())
    }
}

/// Records that another node changes first: just before an account is written, it writes its own edits, once.
fn racing(store: &Arc<MemoryStore>, other: &Arc<Mutex<Vec<Edit>>>) -> Arc<dyn Records> {
    let (inner, other) = (Arc::clone(store), Arc::clone(other));
    Arc::new(FaultyStore::with_records(Arc::clone(store), move |call| match call {
        Call::Change(space @ Namespace::Accounts) => {
            let (inner, edits) = (Arc::clone(&inner), std::mem::take(&mut *other.lock()));
            Meeting::after(async move { drop(inner.change(space, &edits).await.unwrap()) })
        }
        _ => Meeting::Pass,
    }))
}

fn shared() -> (Arc<ManualClock>, Arc<MemoryStore>) {
    let clock = clock();
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 100_000));
    (clock, store)
}

fn draft(id: &str, port: u16) -> AccountDraft {
    AccountDraft {
        tenant: "acme".to_owned(),
        id: id.to_owned(),
        host: "127.0.0.1".to_owned(),
        port,
        tls: TlsMode::None,
        user: None,
        password: None,
        limits: Vec::new(),
        on_limit: OnLimit::Defer,
        priority: 0,
    }
}

fn with_password(id: &str, password: &str) -> AccountDraft {
    let (user, password) = (Some("u".to_owned()), Some(Secret(password.to_owned())));
    AccountDraft { user, password, ..draft(id, 25) }
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_waits_for_an_account_is_sent_as_soon_as_it_exists_and_under_its_limits() {
    let (clock, store) = shared();
    let node = Node::start(&clock, &store, Some(&KEY)).await;
    for id in 1..=3 {
        submit(&node.queue, envelope(id, &["a@there.example"]), &text_of(id, 100)).await.unwrap();
    }
    node.until("the lane sleeps", |node| node.sender.lanes().iter().any(|lane| lane.sleep.is_some())).await;
    let server = Scripted::start(with(&[])).await;
    let limits = vec!["2/hour sliding".parse().unwrap()];
    let made = AccountDraft { limits, ..draft("main", server.port) };
    assert_eq!(node.registry.put(made.clone(), Existing::Refuse).await, Ok(Put::Created));
    node.until("two messages are sent", |_| server.texts.lock().len() == 2).await;
    node.until("the third waits for the limit", |node| {
        node.sender
            .lanes()
            .iter()
            .any(|lane| lane.sleep.as_ref().is_some_and(|sleep| sleep.reason == "account acme,main"))
    })
    .await;
    let raised = AccountDraft { limits: Vec::new(), ..made };
    assert_eq!(node.registry.put(raised, Existing::Require).await, Ok(Put::Replaced));
    node.until("the third is sent", |_| server.texts.lock().len() == 3).await;
    let taken = node.registry.put(draft("main", 1), Existing::Refuse).await.unwrap_err();
    assert_eq!(taken, AccountFault::Exists { name: "acme/main".to_owned() });
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_follows_and_only_those_with_the_key_know_a_password() {
    let (clock, store) = shared();
    let one = Node::start(&clock, &store, Some(&KEY)).await;
    let two = Node::start(&clock, &store, Some(&KEY)).await;
    let blind = Node::start(&clock, &store, None).await;
    let limits = vec!["10/min sliding".parse().unwrap()];
    let made = AccountDraft { limits: limits.clone(), ..with_password("main", "top secret") };
    assert!(!format!("{made:?}").contains("top secret"));
    one.registry.put(made, Existing::Refuse).await.unwrap();
    two.until("the account comes", |node| node.password_of("main").as_deref() == Some("top secret")).await;
    assert_eq!(two.registry.view("acme", "main").unwrap().limits, limits);
    blind.until("the record comes", |node| node.registry.view("acme", "main").is_some()).await;
    assert!(!blind.registry.view("acme", "main").unwrap().usable && blind.accounts.all().is_empty());
    let records = store.changes(Namespace::Accounts, None).await.unwrap().entries;
    assert!(!records.iter().any(|(_, value)| {
        String::from_utf8_lossy(value.as_deref().unwrap_or_default()).contains("top secret")
    }));
    two.registry.put(with_password("main", "another"), Existing::Replace).await.unwrap();
    one.until("the new password comes", |node| node.password_of("main").as_deref() == Some("another")).await;
    one.registry.remove("acme", "main").await.unwrap();
    two.until("the account goes", |node| node.accounts.all().is_empty()).await;
    assert_eq!(two.sender.limits().of_account("acme", "main"), [], "its limits went with it");
    let gone = two.registry.remove("acme", "main").await.unwrap_err();
    assert_eq!(gone, AccountFault::Unknown { name: "acme/main".to_owned() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_kept_for_the_same_server_only() {
    let (clock, store) = shared();
    let node = Node::start(&clock, &store, Some(&KEY)).await;
    node.registry.put(with_password("main", "top secret"), Existing::Refuse).await.unwrap();
    let kept = AccountDraft { password: None, priority: 5, ..with_password("main", "x") };
    node.registry.put(kept.clone(), Existing::Require).await.unwrap();
    assert_eq!(node.password_of("main").as_deref(), Some("top secret"));
    let elsewhere = AccountDraft { host: "127.0.0.2".to_owned(), ..kept };
    let refused = node.registry.put(elsewhere, Existing::Require).await.unwrap_err();
    assert!(matches!(refused, AccountFault::Invalid { .. }), "{refused}");
    let bare = AccountDraft { host: "smtp.example.com".to_owned(), ..with_password("other", "x") };
    let refused = node.registry.put(bare, Existing::Refuse).await.unwrap_err();
    assert!(refused.to_string().contains("starttls"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_a_password_is_refused_and_the_configuration_beats_a_record() {
    let (clock, store) = shared();
    let node = Node::start(&clock, &store, None).await;
    let refused = node.registry.put(with_password("main", "x"), Existing::Refuse).await.unwrap_err();
    assert_eq!(refused, AccountFault::NoKey);
    assert!(refused.to_string().contains("openssl rand -hex 32"), "{refused}");
    assert_eq!(node.engine.accounts.all(), [], "nothing was written");
    node.registry.put(draft("main", 1), Existing::Refuse).await.unwrap();
    node.registry.configure([account("main", 2, 0)]);
    assert_eq!(node.accounts.of("acme", Some("main"))[0].destination.port, 2);
    assert_eq!(node.registry.view("acme", "main").unwrap().source, Source::Configuration);
    let refused = node.registry.put(draft("main", 3), Existing::Replace).await.unwrap_err();
    assert_eq!(refused, AccountFault::Configured { name: "acme/main".to_owned() });
    node.registry.configure([]);
    assert_eq!(node.accounts.of("acme", Some("main"))[0].destination.port, 1, "the record holds again");
    node.registry.configure([account("main", 2, 0)]);
    node.registry.remove("acme", "main").await.unwrap();
    let refused = node.registry.remove("acme", "main").await.unwrap_err();
    assert_eq!(
        refused,
        AccountFault::Configured { name: "acme/main".to_owned() },
        "only the record was removed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_that_make_the_same_account_the_limits_of_the_first_hold() {
    let (clock, store) = shared();
    let one = Node::start(&clock, &store, None).await;
    let limits = |text: &str| vec![text.parse::<Limit>().unwrap()];
    let with = |text: &str, port| AccountDraft { limits: limits(text), ..draft("main", port) };
    one.registry.put(with("5/min sliding", 1), Existing::Refuse).await.unwrap();
    let records = store.changes(Namespace::Accounts, None).await.unwrap().entries;
    let first = records.into_iter().find_map(|(name, value)| Some((name, value?))).unwrap();
    for existing in [Existing::Refuse, Existing::Require] {
        one.registry.put(with("5/min sliding", 1), Existing::Replace).await.unwrap();
        // The other node makes the account, or removes it, after this one has looked.
        let other = match existing {
            Existing::Refuse => {
                one.registry.remove("acme", "main").await.unwrap();
                Edit::put(&*first.0, first.1.clone())
            }
            _ => Edit::remove(&*first.0),
        };
        let others = Arc::default();
        let two = Node::over(&clock, &store, racing(&store, &others), None).await;
        *others.lock() = vec![other];
        let lost = two.registry.put(with("9/min sliding", 2), existing).await.unwrap_err();
        let left = two.sender.limits().of_account("acme", "main");
        match existing {
            Existing::Refuse => {
                assert!(matches!(lost, AccountFault::Exists { .. }), "{lost}");
                assert_eq!(left, limits("5/min sliding"), "those of the account that exists");
            }
            _ => {
                assert!(matches!(lost, AccountFault::Unknown { .. }), "{lost}");
                assert_eq!(left, [], "those of no account");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_stops_no_other_account() {
    let (clock, store) = shared();
    let node = Node::start(&clock, &store, Some(&KEY)).await;
    let edits = ["account/acme/bad", "account/acme/../x", "nonsense"]
        .map(|name| tollgate_core::versioned_map::Edit::put(name, "{\"host\":1}"));
    store.change(Namespace::Accounts, &edits).await.unwrap();
    node.registry.put(draft("main", 1), Existing::Refuse).await.unwrap();
    assert_eq!(node.accounts.all().len(), 1);
    let ids: Vec<String> =
        node.registry.list(Some("acme"), None, 10).into_iter().map(|view| view.id).collect();
    assert_eq!(ids, ["main"]);
    let ids: Vec<String> =
        node.registry.list(Some("acme"), None, 1).into_iter().map(|view| view.id).collect();
    assert_eq!(ids, ["main"], "it takes no place on a page");
}
