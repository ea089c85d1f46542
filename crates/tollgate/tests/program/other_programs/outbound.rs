//! Calls to external APIs at their pace, through the real program, on a file and on Redis: the examples for
//! Telegram and for an API with two kinds of keys. Times are those of the decisions.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes;
use std::thread;

use crate::program::{Connection, Home, Reply, Server, request, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

const TELEGRAM: &str = include_str!("../../../../../examples/outbound-telegram.yaml");
const API: &str = include_str!("../../../../../examples/outbound-api.yaml");

/// Nodes that share their counters, and what they depend on.
struct Stage {
    nodes: Vec<Server>,
    _homes: Vec<Home>,
    _redis: Option<Redis>,
}

/// One node with the example unchanged.
fn on_file(example: &str) -> Stage {
    let home = Home::with(example);
    Stage { nodes: vec![home.start()], _homes: vec![home], _redis: None }
}

/// Two nodes with the example, on one Redis.
fn on_redis(example: &str) -> Stage {
    let redis = Redis::redis().start();
    let store = format!("{{ redis: '{}', {} }}", redis.url(), nodes::PATIENT);
    let homes = [(); 2].map(|()| Home::with(example).variable("TOLLGATE__STORE", &store));
    let nodes = homes.iter().map(Home::start).collect();
    Stage { nodes, _homes: homes.into(), _redis: Some(redis) }
}

fn both(example: &str, test: impl Fn(&Stage)) {
    test(&on_file(example));
    test(&on_redis(example));
}

impl Stage {
    fn first(&self) -> &Server {
        &self.nodes[0]
    }

    fn last(&self) -> &Server {
        self.nodes.last().unwrap()
    }

    /// Sends all of these at once, to the nodes in turn. Returns when each was allowed, in the order of the
    /// list.
    fn acquire_all(&self, bodies: &[Value]) -> Vec<u64> {
        thread::scope(|scope| {
            let ask = |(index, body): (usize, &Value)| {
                let (node, body) = (&self.nodes[index % self.nodes.len()], body.clone());
                scope.spawn(move || at(&node.post("/api/v1/acquire", &body)))
            };
            let asked: Vec<_> = bodies.iter().enumerate().map(ask).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        })
    }
}

/// When an attempt was allowed, in microseconds.
fn at(reply: &Reply) -> u64 {
    let at = reply.ok()["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    at.as_microsecond().try_into().unwrap()
}

fn to_chat(chat: &str) -> Value {
    json!({ "policy": "telegram", "fields": { "chat": chat } })
}

fn to_group(group: &str, thread: usize) -> Value {
    let fields = json!({ "chat": format!("{group}/{thread}"), "group": group });
    json!({ "policy": "telegram", "fields": fields, "max_wait": "5s" })
}

/// What is left of a rule, according to a response.
fn left(reply: &Reply, rule: &str) -> Value {
    let answer = reply.ok();
    let lines = answer["rules"].as_array().unwrap().iter();
    lines.clone().find(|line| line["rule"] == rule).unwrap()["remaining"].clone()
}

/// Sends a request without waiting for the response.
fn begin(node: &Server, body: &Value) -> Connection {
    let mut connection = node.connect();
    connection.send(&request("POST", "/api/v1/acquire", &[], Some(body)));
    connection
}

fn waiting(node: &Server, policy: &str) -> u64 {
    node.get(&format!("/api/v1/paced/{policy}")).ok()["waiting"].as_u64().unwrap()
}

fn report(node: &Server, retry_after: &Value, fields: &Value) {
    let body = json!({ "retry_after": retry_after, "fields": fields });
    node.post("/api/v1/paced/telegram/retry-after", &body).ok();
}

fn go_on(node: &Server) {
    node.ask("DELETE", "/api/v1/paced/telegram/retry-after", None).ok();
}

/// The most in any half-open interval of this length.
fn most_within(micros: u64, mut times: Vec<u64>) -> usize {
    times.sort_unstable();
    let within = |start: &u64| times.iter().filter(|at| (*start..*start + micros).contains(at)).count();
    times.iter().map(within).max().unwrap()
}

#[test]
fn no_second_sees_more_than_thirty_messages_nor_two_to_one_chat() {
    both(TELEGRAM, |stage| {
        let chats = (0..64).map(|chat| to_chat(&chat.to_string()));
        let twice = ["a", "b", "c"].iter().flat_map(|chat| [to_chat(chat), to_chat(chat)]);
        let bodies: Vec<Value> = twice.chain(chats).collect();
        let times = stage.acquire_all(&bodies);
        assert_eq!(times.len(), 70);
        for pair in times[..6].chunks(2) {
            assert!(pair[0].abs_diff(pair[1]) >= 1_000_000, "{pair:?}");
        }
        assert!(most_within(1_000_000, times) <= 30);
    });
}

#[test]
fn a_group_gets_twenty_messages_in_any_minute_and_the_next_is_told_at_once_how_long_it_takes() {
    both(TELEGRAM, |stage| {
        let bodies: Vec<Value> = (0..20).map(|thread| to_group("-100", thread)).collect();
        assert_eq!(stage.acquire_all(&bodies).len(), 20);
        for node in &stage.nodes {
            let reply = node.post("/api/v1/acquire", &to_group("-100", 20));
            let answer = reply.json();
            assert_eq!((reply.status, &answer["type"]), (429, &json!("/problems/wait-too-long")), "{answer}");
            let wait = answer["retry_after_ms"].as_u64().unwrap();
            assert!((5_000..=60_000).contains(&wait), "{answer}");
            assert_eq!(reply.header("retry-after").unwrap(), wait.div_ceil(1_000).to_string());
            assert!(answer["waited_ms"].as_u64().unwrap() < 5_000, "the refusal came at once: {answer}");
        }
        stage.first().post("/api/v1/acquire", &to_group("-200", 0)).ok();
        stage.first().post("/api/v1/acquire", &to_chat("7")).ok();
    });
}

#[test]
fn a_paused_chat_takes_nothing_and_delays_no_other_chat() {
    both(TELEGRAM, |stage| {
        let node = stage.first();
        report(node, &json!("50s"), &json!({ "chat": "slow" }));
        let held: Vec<Connection> = (0..5).map(|_| begin(node, &to_chat("slow"))).collect();
        wait_until("five wait", || waiting(node, "telegram") == 5);
        let other = node.post("/api/v1/acquire", &to_chat("quick"));
        assert_eq!(left(&other, "all"), 29, "those who wait have taken nothing");
        let others: Vec<Value> = (0..25).map(|chat| to_chat(&chat.to_string())).collect();
        stage.acquire_all(&others);
        assert_eq!(waiting(node, "telegram"), 5, "and all others have passed them by");
        drop(held);
    });
}

#[test]
fn messages_to_one_chat_go_in_the_order_in_which_they_came() {
    both(TELEGRAM, |stage| {
        let node = stage.first();
        report(node, &json!("50s"), &json!({ "chat": "a" }));
        let mut sent = Vec::new();
        for number in 1..=4 {
            sent.push(begin(node, &to_chat("a")));
            wait_until("it has its place", || waiting(node, "telegram") == number);
        }
        go_on(node);
        let times: Vec<u64> = sent.iter_mut().map(|sent| at(&sent.reply().unwrap())).collect();
        assert!(times.windows(2).all(|pair| pair[0] + 1_000_000 <= pair[1]), "{times:?}");
    });
}

#[test]
fn a_disconnect_frees_the_place_in_the_queue() {
    both(TELEGRAM, |stage| {
        let node = stage.first();
        report(node, &json!("50s"), &json!({ "chat": "a" }));
        let gone: Vec<Connection> = (0..10).map(|_| begin(node, &to_chat("a"))).collect();
        wait_until("ten wait", || waiting(node, "telegram") == 10);
        let mut stays = begin(node, &to_chat("a"));
        wait_until("eleven wait", || waiting(node, "telegram") == 11);
        drop(gone);
        wait_until("one waits", || waiting(node, "telegram") == 1);
        go_on(node);
        let reply = stays.reply().unwrap();
        assert_eq!((left(&reply, "all"), left(&reply, "chat")), (json!(29), json!(0)));
        let cancelled = "tollgate_paced_total{policy=\"telegram\",outcome=\"cancelled\"}";
        wait_until("all are counted", || nodes::metric(node, cancelled) == 10.0);
        assert_eq!(nodes::metric(node, "tollgate_paced_waiting{policy=\"telegram\"}"), 0.0);
        assert_eq!(nodes::metric(node, "tollgate_paced_wait_seconds_count{policy=\"telegram\"}"), 1.0);
    });
}

#[test]
fn seven_seconds_that_an_upstream_asked_for_stop_that_chat_on_every_node_and_no_other() {
    both(TELEGRAM, |stage| {
        let (here, there) = (stage.first(), stage.last());
        let before = at(&here.post("/api/v1/acquire", &to_chat("before")));
        report(here, &json!(7), &json!({ "chat": "a" }));
        wait_until("the other node knows", || {
            there.get("/api/v1/paced/telegram").ok()["pauses"][0]["key"] == "a"
        });
        let mut stopped = [begin(here, &to_chat("a")), begin(there, &to_chat("a"))];
        let others = [here, there].map(|node| {
            ["b", "c"].map(|chat| {
                let reply = node.post("/api/v1/acquire", &to_chat(chat));
                (at(&reply), reply.json()["waited_ms"].as_u64().unwrap() * 1_000)
            })
        });
        let mut times = [0, 1].map(|n: usize| at(&stopped[n].reply().unwrap()));
        times.sort_unstable();
        // Adjusted and unadjusted clocks may differ slightly.
        assert!(times[0] + 50_000 >= before + 7_000_000, "{} after {before}", times[0]);
        assert!(times[1] - times[0] >= 1_000_000, "{times:?}");
        // Others pass before it, or arrive after it.
        for (at, waited) in others.into_iter().flatten() {
            assert!(at < times[0] || at - waited > times[0], "{at} {waited} {times:?}");
        }
    });
}

#[test]
fn keys_of_an_api_are_used_evenly_at_their_own_speed() {
    both(API, |stage| {
        let call = |key: &str| json!({ "policy": "api", "fields": { "key": key } });
        let bodies: Vec<Value> = (0..30).map(|n| call(["basic", "advanced"][n % 2])).collect();
        // Neighbours in the list are on different nodes, so that each key is used on both.
        let bodies = [&bodies[..15], &bodies[16..], &bodies[15..16]].concat();
        let times = stage.acquire_all(&bodies);
        for (key, gap, most) in [("basic", 100_000, 10), ("advanced", 40_000, 25)] {
            let own = bodies.iter().zip(&times).filter(|(body, _)| body["fields"]["key"] == key);
            let mut own: Vec<u64> = own.map(|(_, at)| *at).collect();
            assert_eq!(own.len(), 15);
            assert!(most_within(1_000_000, own.clone()) <= most);
            own.sort_unstable();
            assert!(own.windows(2).all(|pair| pair[1] - pair[0] >= gap), "{key}: {own:?}");
        }
    });
}
