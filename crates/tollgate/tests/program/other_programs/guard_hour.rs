//! An hour of attack on a guarded login, over the HTTP API of the real program, with a clock that the test
//! moves: on a file and on Redis. The engine's tests have the full hour.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::program::{Home, Reply, Server, now, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

const RECOMMENDED: &str = "
rules:
  own: { by: [user, ip], limits: ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m }
  account: { by: user, on_exceed: observe, limits: ladder 10 captcha then 100 +1m captcha notify }
  address: { by: ip, limits: ladder 30 +10s then 100 lock 1h forget 1h, ban: after 50 denials in 10m ban 1h up to 24h }
  beacon: { by: user, limits: ladder 1 lock 7d }
policies: { login: [own, account, address], beacon: [beacon] }
guards: { login: { policy: login }, beacon: { policy: beacon } }
";

const BY_USER: &str = "
rules:
  account: { by: user, limits: ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m }
  beacon: { by: user, limits: ladder 1 lock 7d }
policies: { login: [account], beacon: [beacon] }
guards: { login: { policy: login }, beacon: { policy: beacon } }
";

/// The seconds between two guesses, slightly more than the ladder demands: for the fifth, the sixth, and so
/// on up to the eleventh, which locks. Then the rest of the hour.
const CLIMB: [u64; 7] = [3, 3, 6, 6, 6, 6, 6];
const REST: [u64; 11] = [300; 11];
const OWNER: &str = "192.0.2.1";
const WEEK_MS: u64 = 7 * 86_400 * 1_000;

/// A running program and its clock.
struct World {
    server: Server,
    redis: Option<Redis>,
    clock: PathBuf,
    /// How far its clock is ahead, in seconds.
    ahead: u64,
    /// When the beacon was locked.
    start: Instant,
    by_address: bool,
    _home: Home,
}

/// The result of beginning a login.
enum Begun {
    Let(String),
    Refused(Value),
    Banned,
}

/// The path of libfaketime.
fn faketime() -> String {
    let entries = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found =
        entries.map(|entry| entry.path().join("faketime/libfaketime.so.1")).find(|path| path.exists());
    found.expect("libfaketime is not installed: run `./test`").display().to_string()
}

impl World {
    fn on_a_file(rules: &str) -> Self {
        Self::start(rules, "{ file: ./state.redb, sync: always }", None)
    }

    fn on_redis(rules: &str) -> Self {
        let redis = Redis::redis().faketime(0).start();
        let store = format!("{{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}", redis.url());
        Self::start(rules, &store, Some(redis))
    }

    fn start(rules: &str, store: &str, redis: Option<Redis>) -> Self {
        let home = Home::with(&format!("store: {store}\n{rules}"));
        let clock = home.path("clock");
        std::fs::write(&clock, "+0s\n").unwrap();
        let home = home
            .variable("LD_PRELOAD", &faketime())
            .variable("FAKETIME_TIMESTAMP_FILE", &clock.display().to_string())
            .variable("FAKETIME_NO_CACHE", "1")
            .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .variable("DONT_FAKE_MONOTONIC", "1");
        let server = home.start();
        let by_address = rules.contains("by: ip");
        let mut world = Self { server, redis, clock, ahead: 0, start: now(), by_address, _home: home };
        assert_eq!(world.ask_beacon().status, 200, "it is locked from now on");
        world.start = now();
        world
    }

    fn ask_beacon(&self) -> Reply {
        self.server.post("/api/v1/guards/beacon/begin", &json!({ "fields": { "user": "x" } }))
    }

    /// Moves its clock, and waits until it has effect.
    fn pass(&mut self, seconds: u64) {
        let before = now();
        self.ahead += seconds;
        let new = self.clock.with_extension("new");
        std::fs::write(&new, format!("+{}s\n", self.ahead)).unwrap();
        std::fs::rename(new, &self.clock).unwrap();
        if let Some(redis) = &self.redis {
            redis.shift_clock(i64::try_from(self.ahead).unwrap());
            // A node remembers the store's denials for up to a second, by a clock that is not moved.
            wait_until("denials are forgotten", || before.elapsed() > Duration::from_millis(1_050));
        }
        wait_until("its clock moves", || {
            // By as much as it was moved, plus the real time; the two clocks may differ a little.
            let passed = self.ahead as f64 + self.start.elapsed().as_secs_f64() - 1.0;
            let told = self.ask_beacon().json()["delay_ms"].as_u64().unwrap();
            (WEEK_MS - told) as f64 / 1_000.0 >= passed
        });
    }

    /// At most how many seconds have passed since then.
    fn elapsed(&self) -> u64 {
        self.ahead + self.start.elapsed().as_secs() + 2
    }

    fn begin(&self, user: &str, ip: &str) -> Begun {
        let fields = match self.by_address {
            true => json!({ "user": user, "ip": ip }),
            false => json!({ "user": user }),
        };
        let reply = self.server.post("/api/v1/guards/login/begin", &json!({ "fields": fields }));
        match reply.status {
            200 => Begun::Let(reply.json()["ticket"].as_str().unwrap().to_owned()),
            429 => Begun::Refused(reply.json()),
            403 => Begun::Banned,
            status => panic!("{status}: {}", reply.text()),
        }
    }

    fn finish(&self, ticket: &str, outcome: &str) {
        let reply =
            self.server.post("/api/v1/guards/finish", &json!({ "ticket": ticket, "outcome": outcome }));
        assert_eq!(reply.ok()["finished"], "now");
    }

    /// Guesses until it must wait. Returns the number of guesses.
    fn guess(&self, user: &str, ip: &str) -> u64 {
        let mut guesses = 0;
        while let Begun::Let(ticket) = self.begin(user, ip) {
            self.finish(&ticket, "failure");
            guesses += 1;
        }
        guesses
    }
}

/// How many failures the table's ladder allows in this many seconds.
fn most_in(seconds: u64) -> u64 {
    let (mut at, mut failures, mut all) = (0, 0, 0);
    while at < seconds {
        (failures, all) = (failures + 1, all + 1);
        at += match failures {
            ..4 => 0,
            4..6 => 2,
            6..11 => 5,
            _ => 900,
        };
        failures %= 11;
    }
    all
}

/// The owner mistypes at most three times in a row, and then logs in.
fn live(world: &World, mistakes: usize) {
    let endings = std::iter::repeat_n("failure", mistakes).chain(["success"]);
    for ending in endings {
        match world.begin("ada", OWNER) {
            Begun::Let(ticket) => world.finish(&ticket, ending),
            Begun::Refused(told) => panic!("the owner is refused: {told}"),
            Begun::Banned => panic!("the owner is banned"),
        }
    }
}

fn attack_the_recommended_setup(mut world: World) {
    let addresses: Vec<String> = (1..=4).map(|number| format!("198.51.100.{number}")).collect();
    let mut guesses = vec![0; addresses.len()];
    let (mut sprayed, mut accounts) = (0, 0..);
    let mut spray = |world: &World| {
        // The attacker ignores the refusal and goes on.
        for account in accounts.by_ref().take(40) {
            match world.begin(&format!("user-{account}"), "203.0.113.1") {
                Begun::Let(ticket) => {
                    world.finish(&ticket, "failure");
                    sprayed += 1;
                }
                Begun::Refused(_) => {}
                Begun::Banned => return true,
            }
        }
        false
    };
    let mut banned = false;
    let mistakes = [0, 1, 0, 3, 0, 0, 2];
    for (step, seconds) in [0].into_iter().chain(CLIMB).chain(REST).enumerate() {
        world.pass(seconds);
        for (address, guesses) in addresses.iter().zip(&mut guesses) {
            *guesses += world.guess("ada", address);
        }
        banned |= spray(&world);
        live(&world, mistakes[step % mistakes.len()]);
        if step == CLIMB.len() {
            let locks = world.server.get("/api/v1/guards/login/locks").ok();
            assert_eq!(locks["locks"].as_array().unwrap().len(), addresses.len(), "{locks}");
        }
    }
    assert!(world.ahead >= 3_300);
    let most = most_in(world.elapsed());
    println!("guesses at one account from each of four addresses: {guesses:?}, of {most} at most");
    println!("guesses at all accounts from one address: {sprayed}, of 100 at most");
    assert!(guesses.iter().all(|guesses| (11..=most).contains(guesses)), "{guesses:?}, {most} at most");
    assert!((30..=100).contains(&sprayed) && banned, "{sprayed}");
}

fn attack_by_the_account_alone(mut world: World) {
    let mut guesses = 0;
    for seconds in [0].into_iter().chain(CLIMB) {
        world.pass(seconds);
        guesses += world.guess("ada", "");
    }
    assert_eq!(guesses, 11, "as the table has it");
    let Begun::Refused(told) = world.begin("ada", "") else { panic!("the owner gets in") };
    assert!(told["locked_until"].is_string() && told["captcha"].is_boolean(), "{told}");
    let left = told["delay_ms"].as_u64().unwrap();
    assert!((600_000..=900_000).contains(&left), "{left}");
    world.pass(300);
    assert!(matches!(world.begin("ada", ""), Begun::Refused(_)), "the owner is kept out all the while");
    world.pass(900);
    live(&world, 3);
    assert_eq!(world.guess("ada", ""), 4, "and it begins anew");
}

#[test]
fn an_hour_of_attack_on_a_file_never_keeps_the_owner_out() {
    attack_the_recommended_setup(World::on_a_file(RECOMMENDED));
}

#[test]
fn an_hour_of_attack_on_redis_never_keeps_the_owner_out() {
    attack_the_recommended_setup(World::on_redis(RECOMMENDED));
}

#[test]
fn by_the_account_alone_an_attack_locks_the_owner_out_on_a_file() {
    attack_by_the_account_alone(World::on_a_file(BY_USER));
}

#[test]
fn by_the_account_alone_an_attack_locks_the_owner_out_on_redis() {
    attack_by_the_account_alone(World::on_redis(BY_USER));
}
