//! The webhook of a guard: called once for each lock, signed, retried when it fails, and never delays a
//! login.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::guarding::{self, begin, fail, lines, on};
use crate::program::{self, Home, Server, now, wait_until};
use crate::responder::{Asked, Reply, Responder};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_testbed::Server as Redis;

const SECRET: &str = "correct horse battery staple";
/// A long time-out, so that a slow machine causes no retry.
const PATIENT: &str = ", timeout: 60s";
const TAKEN: Reply = Reply::Json(200, "{}");

fn guards(receiver: &Responder, settings: &str) -> String {
    let url = format!("{}/hooks/locked?token=hidden", receiver.url());
    format!(
        "guards: {{ login: {{ by: user, ladder: ladder 2 lock 1h notify, webhook: {{ url: '{url}', secret_env: SECRET{settings} }} }} }}\n"
    )
}

fn home(receiver: &Responder, settings: &str) -> Home {
    let guards = guards(receiver, settings);
    Home::with(&format!("store: memory\nlog: {{ format: json }}\n{guards}")).variable("SECRET", SECRET)
}

fn lock(server: &Server, user: &str) {
    for _ in 0..2 {
        fail(server, &json!({ "user": user }));
    }
    assert_eq!(begin(server, &json!({ "user": user })).status, 429);
}

/// HMAC-SHA-256 (RFC 2104), in hexadecimal.
fn hmac(secret: &[u8], text: &[u8]) -> String {
    let pad = |with: u8| -> Vec<u8> {
        let mut key = secret.to_vec();
        key.resize(64, 0);
        key.iter().map(|byte| byte ^ with).collect()
    };
    let inner = Sha256::digest([pad(0x36), text.to_vec()].concat());
    let outer = Sha256::digest([pad(0x5c), inner.to_vec()].concat());
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The body of a call, after its signature was verified.
fn verified(asked: &Asked) -> Value {
    assert_eq!(asked.line, "POST /hooks/locked?token=hidden");
    let time = &asked.headers["x-tollgate-timestamp"];
    let signed = hmac(SECRET.as_bytes(), format!("{time}.{}", asked.body).as_bytes());
    assert_eq!(asked.headers["x-tollgate-signature"], format!("sha256={signed}"));
    assert_eq!(asked.headers["content-type"], "application/json");
    let here = jiff::Timestamp::now().as_second();
    assert!(here.abs_diff(time.parse().unwrap()) < 120, "{time} is not {here}");
    serde_json::from_str(&asked.body).unwrap()
}

fn counted(server: &Server, outcome: &str) -> f64 {
    nodes::metric(server, &format!("tollgate_guard_webhooks_total{{guard=\"login\",outcome=\"{outcome}\"}}"))
}

#[test]
fn it_is_called_once_for_each_lock_with_a_right_signature() {
    let receiver = Responder::always(TAKEN);
    let server = home(&receiver, PATIENT).start();
    fail(&server, &json!({ "user": "eve" }));
    lock(&server, "ada");
    lock(&server, "bob");
    wait_until("two calls", || counted(&server, "delivered") == 2.0);
    let asked = receiver.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let mut told: Vec<Value> = asked.iter().map(verified).collect();
    told.sort_by_key(|notice| notice["fields"]["user"].to_string());
    assert_ne!(told[0]["id"], told[1]["id"]);
    for (notice, user) in told.iter().zip(["ada", "bob"]) {
        assert_eq!(
            (&notice["event"], &notice["guard"], &notice["rule"], &notice["fields"], &notice["failures"]),
            (&json!("locked"), &json!("login"), &json!("login"), &json!({ "user": user }), &json!(2))
        );
        let at = |name: &str| -> jiff::Timestamp { notice[name].as_str().unwrap().parse().unwrap() };
        assert_eq!(at("locked_until").duration_since(at("at")).as_secs(), 3_600);
    }
    let log = server.stop();
    assert!(!log.contains(SECRET) && !log.contains("hidden"), "{log}");
    assert_eq!(lines(&log, "notified").len(), 2);
    assert_eq!(receiver.asked().len(), 2, "nor once more at the end");
}

#[test]
fn the_signature_check_in_the_guide_works() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/logins.md"));
    let guide = guide.unwrap();
    let snippet = guide.split("```python\n").nth(2).unwrap().split("```").next().unwrap();
    let receiver = Responder::always(TAKEN);
    let server = home(&receiver, PATIENT).start();
    lock(&server, "ada");
    wait_until("the call", || counted(&server, "delivered") == 1.0);
    let asked = receiver.only();
    let [time, signature] =
        ["timestamp", "signature"].map(|name| &*asked.headers[&format!("x-tollgate-{name}")]);
    let genuine = |time: &str, signature: &str, body: &str| {
        let script = format!(
            "{snippet}\nimport sys\n_, secret, time_, signature, body = sys.argv\nprint(genuine(secret.encode(), time_, signature, body.encode()))"
        );
        let arguments = ["-c", &script, SECRET, time, signature, body];
        let output = std::process::Command::new("python3").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", program::text(&output.stderr));
        program::text(&output.stdout).trim() == "True"
    };
    assert!(genuine(time, signature, &asked.body));
    assert!(!genuine(time, signature, &asked.body.replace("ada", "bob")));
    assert!(!genuine("1700000000", signature, &asked.body));
    let old = format!("sha256={}", hmac(SECRET.as_bytes(), format!("1700000000.{}", asked.body).as_bytes()));
    assert!(!genuine("1700000000", &old, &asked.body), "an old call may be a replay");
}

#[test]
fn a_notice_has_the_members_that_the_guide_shows() {
    let guide = include_str!("../../../../../docs/guides/logins.md");
    let shown = guide.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let mut shown: Value = serde_json::from_str(shown).unwrap();
    let block = guide.split("```yaml\n").find(|block| block.contains("/hooks/locked")).unwrap();
    let config = block.split("```").next().unwrap();
    let receiver = Responder::always(TAKEN);
    let home = Home::with(&format!("store: memory\nlog: {{ format: json }}\n{config}"))
        .variable("TOLLGATE_WEBHOOK_SECRET", SECRET)
        .variable("TOLLGATE__GUARDS__LOGIN__WEBHOOK__URL", &format!("{}/hooks/locked", receiver.url()))
        .variable("TOLLGATE__GUARDS__LOGIN__LADDER", "ladder 11 lock 15m notify");
    let server = home.start();
    for _ in 0..11 {
        fail(&server, &shown["fields"]);
    }
    wait_until("the call", || counted(&server, "delivered") == 1.0);
    let mut sent: Value = serde_json::from_str(&receiver.only().body).unwrap();
    for notice in [&mut shown, &mut sent] {
        let members = notice.as_object_mut().unwrap();
        assert_eq!(members.remove("id").unwrap().as_str().unwrap().len(), 32);
        let [at, until] = ["at", "locked_until"]
            .map(|name| members.remove(name).unwrap().as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
        assert_eq!(until.duration_since(at).as_secs(), 900);
    }
    assert_eq!(sent, shown);
    server.stop();
}

/// The guide's configuration for a receiver with a form of its own.
fn telegram(receiver: &Responder) -> Home {
    let guide = include_str!("../../../../../docs/guides/logins.md");
    let block = guide.split("```yaml\n").find(|block| block.contains("/sendMessage")).unwrap();
    let config = block.split("```").next().unwrap();
    Home::with(&format!("store: memory\nlog: {{ format: json }}\n{config}"))
        .variable(
            "TOLLGATE__GUARDS__LOGIN__WEBHOOK__URL",
            &format!("{}/bot7:hidden/sendMessage", receiver.url()),
        )
        .variable("TOLLGATE__GUARDS__LOGIN__LADDER", "ladder 2 lock 1h notify")
}

#[test]
fn the_guides_telegram_bot_gets_its_own_form_with_values_escaped() {
    let receiver = Responder::always(Reply::Json(200, r#"{"ok":true}"#));
    let server = telegram(&receiver).start();
    let user = "a\"}, \"chat_id\": 1, {guard} \\ \n\u{1f600}";
    let fields = json!({ "user": user, "ip": "192.0.2.1" });
    for _ in 0..2 {
        fail(&server, &fields);
    }
    wait_until("the call", || counted(&server, "delivered") == 1.0);
    let asked = receiver.only();
    assert_eq!(asked.line, "POST /bot7:hidden/sendMessage");
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["chat_id", "text"]);
    assert_eq!(body["chat_id"], "4711");
    let text = body["text"].as_str().unwrap();
    let (before, after) = text.split_once(" is locked until ").unwrap();
    assert_eq!(before, user, "a value is neither a placeholder nor JSON");
    let (until, rest) = after.split_once(',').unwrap();
    assert!(until.parse::<jiff::Timestamp>().is_ok(), "{until}");
    assert_eq!(rest, " after 2 failures from 192.0.2.1");
    let signed = asked.headers.keys().filter(|name| name.starts_with("x-tollgate-")).count();
    assert_eq!(signed, 0, "without a secret there is no signature");
    assert!(!server.stop().contains("hidden"));
}

#[test]
fn a_body_of_its_own_is_signed_if_there_is_a_secret() {
    let receiver = Responder::always(TAKEN);
    let body = ", body: { list: ['{event} {guard} {rule} {{x} {', 7, null, { deep: '{id}' }] }";
    let server = home(&receiver, &format!("{PATIENT}{body}")).start();
    lock(&server, "ada");
    wait_until("the call", || counted(&server, "delivered") == 1.0);
    let told = verified(&receiver.only());
    let id = told["list"][3]["deep"].as_str().unwrap();
    assert_eq!(id.len(), 32);
    assert_eq!(told, json!({ "list": ["locked login login {x} {", 7, null, { "deep": id }] }));
}

#[test]
fn one_that_fails_first_is_tried_again_with_the_same_notice() {
    let calls = AtomicUsize::new(0);
    let receiver = Responder::start(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Json(500, "{}"),
        _ => TAKEN,
    });
    let server = home(&receiver, PATIENT).start();
    lock(&server, "ada");
    wait_until("the second call", || counted(&server, "delivered") == 1.0);
    let told: Vec<Value> = receiver.asked().iter().map(verified).collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], told[1], "the id shows the receiver that it is the same");
    let log = server.stop();
    assert_eq!(lines(&log, "a webhook did not acknowledge a notice; trying again")[0]["error"], "status 500");
}

#[test]
fn a_webhook_that_hangs_or_always_fails_is_given_up_and_delays_no_request() {
    for (reply, settings) in
        [(Reply::Hang, ", timeout: 300ms, tries: 2"), (Reply::Json(500, "{}"), ", timeout: 60s, tries: 2")]
    {
        let receiver = Responder::always(reply.clone());
        let server = home(&receiver, settings).start();
        lock(&server, "ada");
        wait_until("that it is given up", || counted(&server, "failed") == 1.0);
        assert!(receiver.asked().len() <= 2, "{reply:?}");
        let log = server.stop();
        let given_up = lines(&log, "a notice was dropped after the last try");
        assert_eq!((given_up.len(), &given_up[0]["tries"]), (1, &json!(2)), "{log}");
        assert!(!log.contains("hidden") && !log.contains(SECRET), "{log}");
    }
}

#[test]
fn it_follows_no_redirect() {
    let elsewhere = Responder::always(TAKEN);
    let to = format!("HTTP/1.1 307 x\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", elsewhere.url());
    let receiver = Responder::always(Reply::Raw(to.leak().as_bytes()));
    let server = home(&receiver, ", timeout: 60s, tries: 1").start();
    lock(&server, "ada");
    wait_until("that it is given up", || counted(&server, "failed") == 1.0);
    assert_eq!((receiver.asked().len(), elsewhere.asked().len()), (1, 0));
}

#[test]
fn a_webhook_over_tls_is_called_only_with_a_trusted_certificate() {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certified.cert.der().to_vec())], key)
        .unwrap();
    let receiver = Responder::encrypted(config, TAKEN);
    let trusting = home(&receiver, PATIENT);
    let authority = trusting.path("authority.pem");
    std::fs::write(&authority, certified.cert.pem()).unwrap();
    let trusting = trusting.variable("SSL_CERT_FILE", authority.to_str().unwrap());
    let server = trusting.start();
    lock(&server, "ada");
    wait_until("the call", || counted(&server, "delivered") == 1.0);
    verified(&receiver.only());
    let server = home(&receiver, ", timeout: 60s, tries: 1").start();
    lock(&server, "bob");
    wait_until("that it is given up", || counted(&server, "failed") == 1.0);
    assert_eq!(receiver.asked().len(), 1);
}

#[test]
fn logins_go_on_while_it_hangs_and_so_does_the_end() {
    let receiver = Responder::always(Reply::Hang);
    let server = home(&receiver, PATIENT).start();
    for number in 0..60 {
        lock(&server, &format!("user{number}"));
    }
    wait_until("a call", || !receiver.asked().is_empty());
    let start = now();
    let log = server.stop();
    let took = start.elapsed();
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    let given_up = lines(&log, "notices were dropped, because the program ends");
    assert_eq!((given_up.len(), &given_up[0]["notices"]), (1, &json!(60)), "{log}");
}

#[test]
fn of_two_nodes_on_one_redis_one_calls_it() {
    let receiver = Responder::always(TAKEN);
    let redis = Redis::redis().start();
    let homes =
        [0, 1].map(|_| Home::with(&on(&redis, &guards(&receiver, PATIENT))).variable("SECRET", SECRET));
    let [one, other] = [homes[0].start(), homes[1].start()];
    let ada = json!({ "user": "ada" });
    let first = begin(&one, &ada).ok();
    let second = begin(&one, &ada).ok();
    assert_eq!(guarding::finish(&other, &second, "failure"), "now");
    assert_eq!(guarding::finish(&one, &second, "failure"), "already");
    assert_eq!(guarding::finish(&one, &first, "failure"), "now");
    wait_until("the call", || counted(&other, "delivered") == 1.0);
    let logs = [one.stop(), other.stop()].concat();
    assert_eq!(lines(&logs, "locked").len(), 1, "{logs}");
    assert_eq!(verified(&receiver.only())["fields"], json!({ "user": "ada" }));
}

#[test]
fn a_reload_sends_notices_elsewhere() {
    let (before, after) = (Responder::always(TAKEN), Responder::always(TAKEN));
    let home = home(&before, PATIENT);
    let server = home.start();
    lock(&server, "ada");
    wait_until("a call", || before.asked().len() == 1);
    home.configure(&format!("store: memory\nlog: {{ format: json }}\n{}", guards(&after, PATIENT)));
    server.wait_for_log("the configuration was reloaded");
    lock(&server, "bob");
    wait_until("a call elsewhere", || after.asked().len() == 1);
    assert_eq!(before.asked().len(), 1);
}

#[test]
fn the_guides_python_tells_logins_from_other_sites_as_the_gateway_does() {
    let guide = include_str!("../../../../../docs/guides/logins.md");
    let snippet = guide.split("```python\n").nth(3).unwrap().split("```").next().unwrap();
    let program = format!(
        "{snippet}
ours = 'https://shop.example'
for headers, foreign in [
    ({{'Sec-Fetch-Site': 'cross-site', 'Origin': ours}}, True),
    ({{'Sec-Fetch-Site': 'same-origin', 'Origin': ours}}, False),
    ({{'Sec-Fetch-Site': 'same-site', 'Origin': 'https://www.shop.example'}}, False),
    ({{'Sec-Fetch-Site': 'none'}}, False),
    ({{'Origin': 'https://evil.example'}}, True),
    ({{'Origin': 'null'}}, True),
    ({{'Origin': ours}}, False),
    ({{}}, False),
]:
    assert from_another_site(headers, ours) == foreign, headers
"
    );
    let output = std::process::Command::new("python3").args(["-c", &program]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
