//! An hour of attack on a login at the gateway of the real program, before a service that redirects: to
//! another host, to a path with a slash, and to the form after a wrong password. The test moves the clock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Reply, Server, now, wait_until};
use crate::upstream::{Asked, Upstream};
use serde_json::json;

/// The seconds between two guesses, slightly more than the ladder demands, up to the lock; then the rest of
/// the hour.
const STEPS: [u64; 19] = [0, 3, 3, 6, 6, 6, 6, 6, 300, 300, 300, 300, 300, 300, 300, 300, 300, 300, 300];

/// Other requests between two guesses that might clear the ladder: method, path, host.
const TRICKS: [(&str, &str, &str); 8] = [
    ("POST", "/login/", "shop"),
    ("POST", "/login", "www.shop"),
    ("POST", "/login/forgot", "shop"),
    ("POST", "/login/x/../forgot", "shop"),
    ("POST", "/login?next=/home", "www.shop"),
    ("PUT", "/login", "shop"),
    ("DELETE", "/login/forgot", "shop"),
    ("POST", "/login/missing", "shop"),
];

/// A typical service. `right` is the password.
fn judge(asked: &Asked) -> u16 {
    let path = asked.target.split('?').next().unwrap();
    let body = String::from_utf8_lossy(&asked.body);
    match () {
        () if asked.header("host") == Some("www.shop") => 301,
        () if path == "/login/" => 308,
        () if path == "/login/forgot" => 200,
        () if path != "/login" => 404,
        () if asked.method != "POST" => 204,
        () if body.contains("password=right") => 303,
        // Back to the form, as many services do.
        () => 302,
    }
}

fn is_guess(asked: &Asked) -> bool {
    judge(asked) == 302
}

fn config(rules: &str, upstream: &Upstream) -> String {
    format!(
        "store: memory
{rules}
guards: {{ login: {{ policy: login }}, beacon: {{ policy: beacon }} }}
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ shop: {} }}
  routes:
    login:
      path: /login/*
      upstream: shop
      guard: {{ name: login, fields: {{ user: form.user }}, success: 303, max_delay: none }}
",
        upstream.address
    )
}

fn send(server: &Server, (method, path, host): (&str, &str, &str), password: &str) -> u16 {
    let body = format!("user=ada&password={password}");
    let head = "content-type: application/x-www-form-urlencoded";
    let length = body.len();
    let mut connection = server.gateway();
    connection.send(
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .as_bytes(),
    );
    connection.reply().expect("the gateway answers").status
}

/// How many failures the ladder allows in this many seconds.
fn most_in(seconds: u64) -> usize {
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

/// Sends guesses and tricks for as long as the gateway admits them, at each step of an hour. Returns how many
/// passwords the service checked, and how many requests it saw.
fn attack(rules: &str) -> (usize, usize, u64) {
    let upstream = Upstream::answering(judge);
    let home = Home::with(&config(rules, &upstream)).with_moved_clock();
    let server = home.start();
    assert_eq!(ask_beacon(&server).status, 200, "it is locked from now on");
    let start = now();
    let mut ahead = 0;
    for seconds in STEPS {
        ahead += seconds;
        home.shift_clock(i64::try_from(ahead).unwrap());
        wait_until("its clock moves", || {
            let left = ask_beacon(&server).json()["delay_ms"].as_f64().unwrap() / 1_000.0;
            7.0 * 86_400.0 - left >= ahead as f64 + start.elapsed().as_secs_f64() - 1.0
        });
        for trick in TRICKS.into_iter().cycle().take(40) {
            let tricked = send(&server, trick, "guess");
            let guessed = send(&server, ("POST", "/login", "shop"), "guess");
            if (tricked, guessed) == (429, 429) || guessed == 403 {
                break;
            }
        }
    }
    let passed = ahead + start.elapsed().as_secs() + 2;
    (upstream.all().iter().filter(|asked| is_guess(asked)).count(), upstream.count(), passed)
}

/// Begins a login that is locked for a week from the first time on. Its remaining wait shows the server's
/// clock.
fn ask_beacon(server: &Server) -> Reply {
    server.post("/api/v1/guards/beacon/begin", &json!({ "fields": { "user": "x" } }))
}

const BEACON: &str = "beacon: { by: user, limits: ladder 1 lock 7d }";

fn check(rules: &str) {
    let (guesses, seen, seconds) = attack(rules);
    let most = most_in(seconds);
    println!("{guesses} guesses and {seen} requests reached the service, of {most} at most");
    assert!(guesses > 0 && seen <= most, "{guesses} guesses, {seen} requests, {most} at most");
}

#[test]
fn redirects_and_other_pages_give_no_guess_back_in_the_recommended_setup() {
    check(&format!(
        "rules:
  own: {{ by: [user, ip], limits: ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m }}
  account: {{ by: user, on_exceed: observe, limits: ladder 10 captcha then 100 +1m captcha notify }}
  address: {{ by: ip, limits: ladder 30 +10s then 100 lock 1h forget 1h }}
  {BEACON}
policies: {{ login: [own, account, address], beacon: [beacon] }}"
    ));
}

#[test]
fn redirects_and_other_pages_give_no_guess_back_by_the_account_alone() {
    check(&format!(
        "rules:
  account: {{ by: user, limits: ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m }}
  {BEACON}
policies: {{ login: [account], beacon: [beacon] }}"
    ));
}

#[test]
fn the_owner_gets_in_and_clears_what_was_mistyped() {
    let upstream = Upstream::answering(judge);
    let rules = format!(
        "rules: {{ account: {{ by: user, limits: ladder 3 lock 15m }}, {BEACON} }}
policies: {{ login: [account], beacon: [beacon] }}"
    );
    let home = Home::with(&config(&rules, &upstream));
    let server = home.start();
    let login = |password: &str| send(&server, ("POST", "/login", "shop"), password);
    for _ in 0..3 {
        assert_eq!([login("mistyped"), login("mistyped"), login("right")], [302, 302, 303]);
    }
    assert_eq!(
        [login("guess"), send(&server, TRICKS[0], "right"), send(&server, TRICKS[2], "right")],
        [302, 308, 200]
    );
    assert_eq!(login("right"), 429, "three attempts that did not succeed");
}
