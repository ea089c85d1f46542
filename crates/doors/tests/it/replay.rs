//! A replay decides as the server does: the same attempts are sent to the router, whose clock is moved.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Read;
use std::sync::Arc;

use crate::door::{Door, StoreKind, rule};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Map, Value, json};
use tollgate_core::{Policies, Policy, Rule, Span, Timestamp};
use tollgate_replay::choose::{Choosing, Strictness, Wishes};
use tollgate_replay::feed::{Feed, Reading, Refused};
use tollgate_replay::lane::{Fate, Report};
use tollgate_replay::replay::{Replay, Setup};
use tollgate_web::Aliases;

/// An attempt as the replay decided it.
struct Decided {
    at: Timestamp,
    fields: Map<String, Value>,
    /// The rule and the key that denied it.
    denied: Option<(String, String)>,
}

const LINES: usize = 10_000;

/// Rules of several kinds, one of which bans.
fn policies() -> Policies {
    let banning = Rule {
        ban: Some("after 30 denials in 1m ban 2m".parse().unwrap()),
        ..rule("client", &["ip"], &["2/s burst 6", "60/min sliding"])
    };
    let rules: Vec<Arc<Rule>> = [
        rule("all", &[], &["900/min"]),
        banning,
        rule("user", &["user"], &["40/min calendar"]),
        rule("page", &["path", "ip"], &["100/hour"]),
    ]
    .map(Arc::new)
    .into();
    let policies = vec![Policy::new("api".into(), rules.clone(), true)];
    Policies::new(true, rules, policies)
}

/// Ten thousand lines of some twenty minutes: bursts, a few heavy clients, and lines out of order.
fn log() -> String {
    let mut state = 20_261_117_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut second = 36_000;
    let mut log = String::new();
    for _ in 0..LINES {
        second += u64::from(draw(8) == 0);
        let at = second - draw(5).min(3);
        let client = if draw(3) == 0 { draw(3) } else { draw(60) };
        let user = if draw(4) == 0 { "-".to_owned() } else { format!("u{}", draw(15)) };
        let (hour, minute, rest) = (at / 3_600, at / 60 % 60, at % 60);
        let path = ["/", "/cart", "/search?q=1"][draw(3) as usize];
        log += &format!(
            "192.0.2.{client} - {user} [15/Jan/2026:{hour:02}:{minute:02}:{rest:02} +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"x\"\n"
        );
    }
    log
}

fn replayed(log: &str) -> Vec<Decided> {
    let policies = policies();
    let mut wishes = Wishes::default();
    wishes.add("ip", None);
    wishes.add_policies(
        &policies,
        &Choosing::Policy("api".into()),
        Strictness::AllFields,
        &Aliases::default(),
    );
    let reading = Reading {
        format: None,
        mappings: Vec::new(),
        taken: None,
        zone: None,
        reorder: Span::from_secs(30),
        now: Timestamp::from_micros(1_800_000_000_000_000),
        refused: Refused::Replayed,
    };
    let reader: Box<dyn Read> = Box::new(std::io::Cursor::new(log.as_bytes().to_vec()));
    let mut feed = Feed::open(vec![("log".to_owned(), reader)], &reading, &wishes.list).unwrap();
    let setup = Setup { policies, max_keys: 1_000_000, choosing: Arc::new(Choosing::Policy("api".into())) };
    let mut decided = Vec::new();
    let run = Replay::new(setup, &wishes).unwrap();
    run.run(&mut feed, &mut |report| {
        let Report::Fate(moment, fate) = report else { return };
        let pairs = wishes.list.iter().zip(moment.values);
        let fields =
            pairs.filter_map(|(wish, value)| Some((wish.field.to_string(), json!((*value)?)))).collect();
        let denied = match fate {
            Fate::Allowed(_) => None,
            Fate::Denied(named) => Some((named.rule.to_string(), named.key.to_string())),
            other => panic!("{other:?}"),
        };
        decided.push(Decided { at: moment.entry.at, fields, denied });
    })
    .unwrap();
    decided
}

#[tokio::test]
async fn ten_thousand_lines_are_decided_as_the_server_decides_them() {
    let decided = replayed(&log());
    assert_eq!(decided.len(), LINES);
    let door = Door::with(policies(), Vec::new(), StoreKind::Memory);
    let every = Span::from_millis(250);
    let mut tend_at = decided[0].at;
    let (mut denied, mut blocked) = (0, 0);
    for (number, one) in decided.iter().enumerate() {
        while tend_at <= one.at {
            door.clock.set(tend_at);
            door.engine.tend().await;
            tend_at = tend_at + every;
        }
        door.clock.set(one.at);
        let body = json!({ "policy": "api", "fields": one.fields }).to_string();
        let request = Request::post("/api/v1/check").body(Body::from(body)).unwrap();
        let reply = door.answer(request).await;
        let answer = reply.json();
        let server = match reply.status {
            200 => None,
            429 => Some((text(&answer["denied_by"]), text(&answer["denied_key"]))),
            403 => Some(("blocklist".to_owned(), String::new())),
            other => panic!("{other}: {}", reply.text),
        };
        let replay = one.denied.clone().map(|(rule, key)| match rule.as_str() {
            // The server does not tell a blocked client which entry blocks it.
            "blocklist" => (rule, String::new()),
            _ => (rule, key),
        });
        assert_eq!(replay, server, "line {number} at {:?}: {:?} {}", one.at, one.fields, reply.text);
        denied += usize::from(reply.status == 429);
        blocked += usize::from(reply.status == 403);
    }
    assert!(denied > 500 && denied < LINES / 2, "{denied} denied");
    assert!(blocked > 50, "{blocked} blocked");
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
