//! A whole sending half: queue, lanes, client and engine over a store in memory, with a clock that is moved by hand.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate_core::key::FieldKind;
use tollgate_core::rule::Deferral;
use tollgate_core::{
    Attempt, Clock, Field, Limit, OnExceed, OnOutage, Plan, Policies, Policy, Records, Rule, Span, Store,
};
use tollgate_engine::{Admissions, Engine, Leases, Parts};
use tollgate_relay::accounts::{Account, Accounts, OnLimit};
use tollgate_relay::client::{Client, ClientOptions};
use tollgate_relay::direct::Direct;
use tollgate_relay::lanes::{LaneOptions, Retry};
use tollgate_relay::limits::Limits;
use tollgate_relay::meters::RelayMeters;
use tollgate_relay::queue::disk::Disk;
use tollgate_relay::queue::{Queue, Shown};
use tollgate_relay::sender::{RecipientLog, Sender, SenderParts};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_testbed::PATIENCE;

use super::forgetful::Forgetful;
use super::watched::Watched;
use super::{clock, open, patient_options, plain};
use tollgate_relay::message::MessageId;

pub(crate) struct Stand {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) queue: Queue,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) sender: Arc<Sender>,
    pub(crate) meters: RelayMeters,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

/// The limits of accounts and of recipient domains.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limited {
    pub(crate) account: &'static [&'static str],
    pub(crate) domain: &'static [&'static str],
    /// The recipient domains that have other limits.
    pub(crate) domains: &'static [(&'static str, &'static str)],
    /// To when all of them defer.
    pub(crate) deferral: Deferral,
}

/// What a stand is made of.
pub(crate) struct Setup {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) limited: Limited,
    pub(crate) accounts: Vec<Account>,
    pub(crate) direct: Option<Direct>,
    pub(crate) lanes: LaneOptions,
    pub(crate) client: ClientOptions,
    /// The engine, if it is another one than over a store in memory.
    pub(crate) engine: Option<Arc<Engine>>,
}

impl Setup {
    /// Over a store that a test watches.
    pub(crate) async fn watched(self, store: &Arc<Watched>) -> Self {
        let records = MemoryStore::new(Arc::clone(&self.clock) as Arc<dyn Clock>, 1_000);
        let parts = Parts { store: store.as_store(), records: Arc::new(records), fallback: None };
        let engine = Engine::start(policies(self.limited), parts).await.unwrap();
        Self { engine: Some(Arc::new(engine)), ..self }
    }

    pub(crate) fn new(limited: Limited, accounts: Vec<Account>) -> Self {
        Self {
            disk: Arc::new(Forgetful::new()),
            clock: clock(),
            limited,
            accounts,
            direct: None,
            lanes: LaneOptions::default(),
            client: patient_options(rustls::RootCertStore::empty()),
            engine: None,
        }
    }
}

pub(crate) fn account(id: &str, port: u16, priority: u32) -> Account {
    Account {
        tenant: "acme".to_owned(),
        id: id.to_owned(),
        destination: plain(port),
        on_limit: OnLimit::Defer,
        priority,
    }
}

/// What the engine admits with.
pub(crate) fn admissions(engine: &Arc<Engine>, clock: Arc<dyn Clock>) -> Admissions {
    let leases = Arc::new(Leases::new(Arc::clone(engine), clock));
    Admissions { engine: Arc::clone(engine), pacer: None, leases }
}

fn plan(rule: &str, limits: &[&str]) -> Plan {
    let limits: Vec<Limit> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    Plan::new(rule.into(), limits).unwrap()
}

fn rule(name: &str, by: &[&str], limits: &[&str]) -> Rule {
    let plan = plan(name, limits);
    let field = |name: &&str| Field { name: (*name).into(), kind: FieldKind::of_name(name) };
    Rule {
        name: name.into(),
        by: by.iter().map(field).collect(),
        overrides: Default::default(),
        on_exceed: OnExceed::Defer(Deferral::default()),
        on_outage: OnOutage::of(&plan),
        plan: Arc::new(plan),
        ban: None,
        code: None,
        count: None,
        count_when: None,
        rows: None,
        enabled: true,
        secret: false,
    }
}

pub(crate) fn policies(limited: Limited) -> Policies {
    let mut account = rule("account", &["tenant", "account"], limited.account);
    account.on_exceed = OnExceed::Defer(limited.deferral);
    let mut domain = rule("recipient_domain", &["recipient_domain"], limited.domain);
    domain.count = Some("recipients".into());
    domain.on_exceed = OnExceed::Defer(limited.deferral);
    for (name, limit) in limited.domains {
        let own = Arc::new(plan("recipient_domain", &[limit]));
        domain.overrides.insert((*name).into(), own);
    }
    let rules: Vec<Arc<Rule>> = vec![Arc::new(account), Arc::new(domain)];
    let policy = Policy::new("mail.deliver".into(), rules.clone(), false);
    Policies::new(true, rules, vec![policy])
}

impl Stand {
    pub(crate) async fn start(limited: Limited, accounts: Vec<Account>) -> Self {
        Self::start_with(Setup::new(limited, accounts)).await
    }

    pub(crate) async fn start_with(setup: Setup) -> Self {
        let Setup { disk, clock, limited, accounts, direct, lanes, client, engine } = setup;
        let engine = match engine {
            Some(engine) => engine,
            None => {
                let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 100_000));
                let parts = Parts {
                    store: Arc::clone(&store) as Arc<dyn Store>,
                    records: store as Arc<dyn Records>,
                    fallback: None,
                };
                Arc::new(Engine::start(policies(limited), parts).await.unwrap())
            }
        };
        let (queue, opened) = open(disk, &clock);
        let accounts = Arc::new(Accounts::new(accounts));
        let meters = RelayMeters::new();
        let sender = Arc::new(Sender::new(SenderParts {
            queue: queue.clone(),
            client: Client::new(client),
            limits: Limits::new(admissions(&engine, Arc::clone(&clock) as Arc<dyn Clock>), "mail.deliver"),
            accounts: Arc::clone(&accounts),
            direct,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            retry: Retry { jitter: 0, ..Retry::default() },
            lanes,
            most_recipients: 100,
            meters: meters.clone(),
            recipient_log: RecipientLog::default(),
        }));
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(Arc::clone(&sender).run(opened, async move {
            let _ = stopped.await;
        }));
        let (stop, running) = (Some(stop), Some(running));
        Self { clock, engine, queue, accounts, sender, meters, stop, running }
    }

    /// Moves the clock, and lets the sender see it.
    pub(crate) fn advance(&self, span: Span) {
        self.clock.advance(span);
        self.sender.nudge();
    }

    /// Waits until something is so. Real time passes: other processes are part of it.
    pub(crate) async fn until(&self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !so(self) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("waited in vain for: {what}; {:#?}", self.sender.lanes());
        }
    }

    /// Waits until nothing can be done before the clock moves.
    pub(crate) async fn settle(&self) {
        let now = self.clock.now();
        self.until("nothing is left to do now", |stand| {
            stand.sender.lanes().iter().all(|lane| {
                lane.in_flight == 0
                    && (lane.waiting == 0
                        || lane.sleep.as_ref().is_some_and(|sleep| sleep.until > now)
                        || lane.next_due.is_some_and(|due| due > now))
            })
        })
        .await;
    }

    /// The metrics page.
    pub(crate) fn page(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(self.meters.clone()));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        page
    }

    pub(crate) fn show(&self, message: u128) -> Shown {
        self.queue.show(MessageId(message)).unwrap().unwrap()
    }

    /// How much is left at a domain, of its first limit.
    pub(crate) async fn left_at_domain(&self, domain: &str) -> u64 {
        let pinned = Arc::clone(&self.engine.pin());
        let fields = [("recipient_domain", domain), ("recipients", "1")];
        let attempt = Attempt { policy: "mail.deliver", fields: &fields, cost: 1, id: None };
        let decision = self.engine.peek(&pinned, &attempt).await.unwrap();
        let line = decision.lines().find(|line| *line.rule.name == *"recipient_domain").unwrap();
        line.readings[0].remaining
    }

    /// Cuts off everything that is in flight. Nothing is sent from now on.
    pub(crate) async fn cut_off(&mut self) {
        let running = self.running.take().unwrap();
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
    }

    /// Stops, having finished what is in flight.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            running.await.unwrap();
        }
    }
}
