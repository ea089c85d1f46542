//! A real server over a store in memory, a place that keeps messages, and a client that says what it is told.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

pub(crate) mod client;
pub(crate) mod intake;
pub(crate) mod postfix;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate_core::{Attempt, Clock, Guard, Limit, Policies, Policy, Records, Rule, Span, Store, Timestamp};
use tollgate_engine::{Admissions, Engine, Leases, Parts};
use tollgate_relay::acceptance::{AcceptTerms, Acceptances};
use tollgate_relay::server::{Kind, PasswordHash, Server, Settings, User, Users};
use tollgate_store::{ManualClock, MemoryStore};

pub(crate) use client::Client;
pub(crate) use intake::MemoryIntake;

/// Half past eight in the evening of a Sunday.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_794_774_600_000_000);

/// A server that runs until this is dropped.
pub(crate) struct Stand {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) intake: Arc<MemoryIntake>,
    pub(crate) doors: Arc<Acceptances>,
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    /// Where TLS begins with the connection.
    pub(crate) secure_address: SocketAddr,
    pub(crate) runtime: Runtime,
}

/// The settings of a stand and its terms, for a test to adjust.
pub(crate) struct Adjusted {
    settings: Settings,
    pub(crate) terms: AcceptTerms,
}

impl std::ops::Deref for Adjusted {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl std::ops::DerefMut for Adjusted {
    fn deref_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

impl Stand {
    /// A server under these policies. Clients on loopback may send.
    pub(crate) fn new(policies: Policies, adjust: impl FnOnce(&mut Adjusted)) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 100_000));
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: store as Arc<dyn Records>,
            fallback: None,
        };
        Self::over(policies, parts, clock, adjust)
    }

    pub(crate) fn over(
        policies: Policies,
        parts: Parts,
        clock: Arc<ManualClock>,
        adjust: impl FnOnce(&mut Adjusted),
    ) -> Self {
        Self::on(Runtime::new().unwrap(), policies, parts, clock, adjust)
    }

    pub(crate) fn on(
        runtime: Runtime,
        policies: Policies,
        parts: Parts,
        clock: Arc<ManualClock>,
        adjust: impl FnOnce(&mut Adjusted),
    ) -> Self {
        let mut settings = Adjusted { settings: settings(), terms: AcceptTerms::new("relay.test") };
        let named = |name: &str| policies.find(name).is_ok().then(|| Arc::from(name));
        (settings.connect, settings.terms.policy) = (named("connect"), named("accept"));
        settings.guard = policies.guard("login").map(|guard| Arc::clone(&guard.name));
        adjust(&mut settings);
        let engine = Arc::new(runtime.block_on(Engine::start(policies, parts)).unwrap());
        let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::clone(&clock) as Arc<dyn Clock>));
        let intake = Arc::new(MemoryIntake::default());
        let admissions = Admissions { engine: Arc::clone(&engine), pacer: None, leases: Arc::clone(&leases) };
        let Adjusted { settings, terms } = settings;
        let kept = Arc::clone(&intake) as Arc<_>;
        let doors = Acceptances::new(terms, admissions, kept, Arc::clone(&clock) as Arc<dyn Clock>);
        let doors = Arc::new(doors);
        let server = Server::new(settings, Arc::clone(&doors));
        let listen = |kind| {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let (address, server) = (listener.local_addr().unwrap(), server.clone());
            runtime.spawn(async move { server.listen(listener, kind).await });
            address
        };
        let (address, secure_address) = (listen(Kind::Smtp), listen(Kind::Smtps));
        runtime.spawn(async move { leases.run().await });
        let tended = Arc::clone(&engine);
        runtime.spawn(async move {
            loop {
                tended.tend().await;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        });
        Self { clock, engine, intake, doors, server, address, secure_address, runtime }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// A client that has said EHLO.
    pub(crate) fn greeted(&self) -> Client {
        let mut client = self.client();
        client.expect("220 relay.test ESMTP tollgate");
        client.ask("EHLO client.test");
        client
    }

    /// A client that has begun TLS and said EHLO.
    pub(crate) fn secured(&self) -> Client {
        let mut client = self.greeted();
        assert_eq!(client.ask("STARTTLS"), "220 2.0.0 Ready to start TLS");
        client.secure();
        client.ask("EHLO client.test");
        client
    }

    pub(crate) fn advance(&self, secs: u64) {
        self.clock.advance(Span::from_secs(secs));
    }

    /// How much of each limit is left.
    pub(crate) fn left(&self, policy: &str, fields: &[(&str, &str)]) -> Vec<u64> {
        let pinned = self.engine.pin();
        let look = Attempt { policy, fields, cost: 0, id: None };
        let decision = self.runtime.block_on(self.engine.peek(&pinned, &look)).unwrap();
        decision.outcome.readings.iter().map(|reading| reading.remaining).collect()
    }
}

/// A login in one line.
pub(crate) fn plain(user: &str, password: &str) -> String {
    format!("AUTH PLAIN {}", data_encoding::BASE64.encode(format!("\0{user}\0{password}").as_bytes()))
}

/// The settings of the tests: a certificate, two users, and loopback may send.
pub(crate) fn settings() -> Settings {
    let user = |name: &str, tenant: &str, password: &str, senders: &[&str]| User {
        name: name.into(),
        tenant: tenant.into(),
        senders: senders.iter().map(|domain| (*domain).to_owned()).collect(),
        password: PasswordHash::of(password),
    };
    Settings {
        tls: Some(tls::server()),
        networks: vec![tollgate_core::Net::parse("127.0.0.0/8").unwrap()],
        users: Arc::new(
            Users::new(vec![
                user("app", "acme", "secret", &["Acme.example"]),
                user("other", "globex", "sesame", &[]),
            ])
            .unwrap(),
        ),
        ..Settings::default()
    }
}

pub(crate) fn rule(name: &str, by: &[&str], limits: &[&str]) -> Rule {
    let limits: Vec<Limit> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    Rule::new(name, by, limits).unwrap()
}

/// A rule that counts recipients.
pub(crate) fn by_recipients(name: &str, by: &[&str], limits: &[&str]) -> Rule {
    Rule { count: Some("recipients".into()), ..rule(name, by, limits) }
}

/// Policies that are each a name and the names of their rules.
pub(crate) fn policies(rules: Vec<Rule>, policies: &[(&str, &[&str])]) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let find = |name: &&str| Arc::clone(rules.iter().find(|rule| *rule.name == **name).unwrap());
    let made = policies
        .iter()
        .map(|(name, own)| Policy::new((*name).into(), own.iter().map(find).collect(), false))
        .collect();
    Policies::new(true, rules.clone(), made)
}

/// A guard of logins over a policy of the same name.
pub(crate) fn guarded(rules: Vec<Rule>, own: &[&str]) -> Policies {
    policies(rules, &[("login", own)]).with_guards(vec![Guard::new("login", "login")])
}
