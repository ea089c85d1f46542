//! Killed under traffic: no hold, lock or ban that was returned is lost, in a file with `sync: always` or on
//! Redis. `TOLLGATE_LONG=1` kills it 100 times instead of 4.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::nodes::PATIENT;
use crate::program::{Connection, Home, Server, Signal, pause, request, wait_until};
use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

const RULES: &str = "
log: { level: error }
rules:
  deals: { by: advertiser, limits: 1000000 at once }
  login: { by: user, limits: ladder 2 +1ms then 4 lock 1h }
  client: { by: ip, limits: 2/day, ban: after 3 denials in 10m ban 6h }
  open: { by: ip, limits: 1000000/hour }
policies:
  deals: [deals]
  login: [login]
  api: [client]
  open: [open]
";

fn kills() -> u64 {
    let long = std::env::vars().any(|(name, value)| name == "TOLLGATE_LONG" && value == "1");
    if long { 100 } else { 4 }
}

/// Sends requests until the connection breaks, and counts the responses.
struct Asker<'a> {
    connection: Connection,
    done: &'a AtomicUsize,
}

impl Asker<'_> {
    /// The status and the body of the response; `None` once the server is gone.
    fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        self.connection.try_send(&request(method, path, &[], body)).ok()?;
        let reply = self.connection.reply()?;
        assert!(matches!(reply.status, 200 | 403 | 429), "{}", reply.text());
        Some((reply.status, reply.json()))
    }

    fn done(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// The known deals: those that are held, and those that may be because no response came.
#[derive(Default)]
struct Deals {
    held: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

impl Deals {
    /// Begins deals and ends every third until the server is gone.
    fn trade(&mut self, mut asker: Asker<'_>, round: u64) {
        for number in 0.. {
            let id = format!("deal-{round}-{number}");
            self.unknown.insert(id.clone());
            let body = json!({ "policy": "deals", "fields": { "advertiser": "ads" }, "id": id });
            let Some((status, _)) = asker.ask("POST", "/api/v1/holds", Some(&body)) else { return };
            assert_eq!(status, 200);
            if number % 3 == 0 {
                let path = format!("/api/v1/holds/deals/ads/{id}");
                let Some((_, answer)) = asker.ask("DELETE", &path, None) else { return };
                assert_eq!(answer["released"], true);
            } else {
                self.held.insert(id.clone());
            }
            self.unknown.remove(&id);
            asker.done();
        }
    }

    fn check(&mut self, server: &Server) {
        let shown = server.get("/api/v1/holds/deals/ads").ok();
        let ids = shown["holds"].as_array().unwrap().iter().map(|hold| hold["id"].as_str().unwrap());
        let kept: BTreeSet<String> = ids.map(str::to_owned).collect();
        let lost: Vec<_> = self.held.difference(&kept).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let risen: Vec<_> = kept.difference(&self.held).filter(|id| !self.unknown.contains(*id)).collect();
        assert!(risen.is_empty(), "ended, and held again: {risen:?}");
        self.held = kept;
        self.unknown.clear();
    }
}

/// The interval in which a lock ends, according to the response.
type End = (Timestamp, Timestamp);

fn end_of_lock(ask: impl FnOnce() -> Option<(u16, Value)>) -> Option<Option<End>> {
    let before = Timestamp::now();
    let (status, answer) = ask()?;
    let after = Timestamp::now();
    let wait = answer["retry_after_ms"].as_i64().map(jiff::SignedDuration::from_millis);
    // A millisecond is for rounding, and the rest for clock adjustments.
    let slack = jiff::SignedDuration::from_millis(50);
    let wait = wait.filter(|wait| status == 429 && wait.as_secs() > 60);
    Some(wait.map(|wait| (before + wait - slack, after + wait + slack)))
}

fn attempt_of(user: &str) -> Value {
    json!({ "policy": "login", "fields": { "user": user } })
}

/// Fails to log in as one user after another, each until it is locked, until the server is gone.
fn guess(mut asker: Asker<'_>, round: u64, locked: &mut BTreeMap<String, End>) {
    for number in 0.. {
        let user = format!("user-{round}-{number}");
        loop {
            let ask = || asker.ask("POST", "/api/v1/check", Some(&attempt_of(&user)));
            match end_of_lock(ask) {
                None => return,
                Some(None) => pause(Duration::from_millis(1)),
                Some(Some(end)) => {
                    locked.insert(user, end);
                    asker.done();
                    break;
                }
            }
        }
    }
}

fn check_locks(server: &Server, locked: &BTreeMap<String, End>) {
    for (user, (from, to)) in locked {
        let reply = || server.check(&attempt_of(user));
        let found = end_of_lock(|| Some(reply()).map(|reply| (reply.status, reply.json()))).flatten();
        let (earliest, latest) = found.unwrap_or_else(|| panic!("{user} is not locked any more"));
        assert!(earliest <= *to && *from <= latest, "{user}: {earliest}–{latest} is not {from}–{to}");
    }
}

/// Is denied as one client after another, each until it is banned, until the server is gone. Bans another one
/// by hand each time.
fn knock(mut asker: Asker<'_>, round: u64, banned: &mut Vec<String>) {
    for number in 0.. {
        let ip = format!("10.{round}.{}.{}", number / 250, number % 250);
        let body = json!({ "policy": "api", "fields": { "ip": ip } });
        loop {
            match asker.ask("POST", "/api/v1/check", Some(&body)) {
                None => return,
                Some((403, _)) => break,
                Some(_) => pause(Duration::from_millis(1)),
            }
        }
        banned.push(ip);
        let ip = format!("11.{round}.{}.{}", number / 250, number % 250);
        let body = json!({ "target": ip, "for": "6h", "reason": "by hand" });
        let Some((status, _)) = asker.ask("POST", "/api/v1/bans", Some(&body)) else { return };
        assert_eq!(status, 200);
        banned.push(ip);
        asker.done();
    }
}

fn check_bans(server: &Server, banned: &[String]) {
    for ip in banned {
        let reply = server.check(&json!({ "policy": "open", "fields": { "ip": ip } }));
        assert_eq!(reply.status, 403, "{ip}: {}", reply.text());
    }
}

/// Kills a server under traffic, again and again, and checks the state after each.
fn loses_nothing(home: &Home) {
    let mut deals = Deals::default();
    let mut locked = BTreeMap::new();
    let mut banned = Vec::new();
    for round in 0..kills() {
        let server = home.start();
        let done: [AtomicUsize; 3] = Default::default();
        let asker = |number: usize| Asker { connection: server.connect(), done: &done[number] };
        thread::scope(|scope| {
            let (trader, guesser, knocker) = (asker(0), asker(1), asker(2));
            scope.spawn(|| deals.trade(trader, round));
            scope.spawn(|| guess(guesser, round, &mut locked));
            scope.spawn(|| knock(knocker, round, &mut banned));
            wait_until("some of each is done", || done.iter().all(|done| done.load(Ordering::SeqCst) > 2));
            pause(Duration::from_millis(7 * (round % 8)));
            server.signal(Signal::KILL);
        });
        server.ended();
        let server = home.start();
        deals.check(&server);
        check_locks(&server, &locked);
        check_bans(&server, &banned);
        server.end_by(Signal::KILL);
    }
    assert!(deals.held.len() > 4 && locked.len() > 4 && banned.len() > 4, "there was something to lose");
}

#[test]
fn a_file_that_is_written_before_every_answer_loses_no_hold_no_lock_and_no_ban() {
    loses_nothing(&Home::with(&format!("store: {{ file: ./t.redb, sync: always }}\n{RULES}")));
}

#[test]
fn on_redis_a_killed_node_takes_no_hold_no_lock_and_no_ban_with_it() {
    let redis = Redis::redis().start();
    loses_nothing(&Home::with(&format!("store: {{ redis: '{}', {PATIENT} }}\n{RULES}", redis.url())));
}
