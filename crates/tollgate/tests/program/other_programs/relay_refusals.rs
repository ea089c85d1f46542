//! The relay of the real program in front of providers that refuse an account: nothing bounces, the healthy account takes
//! over, and operators see who rests and until when.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::mail::{Client, home};
use crate::program::wait_until;
use serde_json::Value;
use tollgate_testbed::Sink;

const QUOTA: &str =
    "550-5.4.5 Daily user sending limit exceeded. For more information\r\n550 5.4.5 go away\r\n";

/// A provider that refuses every DATA. Returns its port, and how often it was asked. Its threads end with the test.
fn provider(refusal: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let count = Arc::clone(&count);
            thread::spawn(move || talk(stream, refusal, &count));
        }
    });
    (port, asked)
}

fn talk(mut stream: TcpStream, refusal: &str, asked: &AtomicUsize) -> Option<()> {
    stream.write_all(b"220 provider.test\r\n").ok()?;
    for line in BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok) {
        let reply = if line.starts_with("DATA") {
            asked.fetch_add(1, Ordering::SeqCst);
            refusal
        } else if line.starts_with("QUIT") {
            "221 bye\r\n"
        } else {
            "250 ok\r\n"
        };
        stream.write_all(reply.as_bytes()).ok()?;
    }
    Some(())
}

fn send(address: std::net::SocketAddr, messages: usize) {
    let mut client = Client::greeted(address).unwrap();
    for number in 0..messages {
        let reply = client.send(&number.to_string(), &[&format!("someone@d{number}.test")]).unwrap();
        assert!(reply.starts_with("250 "), "{reply}");
    }
}

#[test]
fn a_used_up_quota_bounces_no_message_and_its_account_sleeps_in_sight() {
    let (port, asked) = provider(QUOTA);
    let home = home(port, "", "  log_recipients: hashed");
    let server = home.start();
    send(server.relays[0], 100);
    let account = || server.get("/api/v1/accounts/default/main").ok();
    wait_until("the account sleeps", || !account()["paused"].is_null());
    server.wait_for_log("account paused: its server refuses mail for now");
    let waiting = || {
        let lanes = server.get("/api/v1/lanes?limit=1000").ok();
        let lanes = lanes["lanes"].as_array().unwrap().clone();
        lanes.iter().filter(|lane| lane["cause"] == "paused").count()
    };
    wait_until("all mail waits for the account", || waiting() == 100);
    assert!(asked.load(Ordering::SeqCst) <= 20, "as many as were on their way: {asked:?}");
    let paused = account()["paused"].clone();
    assert!(paused["reason"].as_str().unwrap().contains("Daily user sending limit exceeded"), "{paused}");
    let page = server.get("/metrics");
    assert!(!page.text().contains("tollgate_relay_bounced_total{"), "{}", page.text());
    assert!(page.text().contains("tollgate_relay_reported_total 0"), "{}", page.text());
    let log = server.log();
    let refusal = log.lines().find(|line| line.contains("delivery failed for now")).unwrap();
    let refusal: Value = serde_json::from_str(refusal).unwrap();
    let text = refusal.to_string();
    assert!(text.contains("550 5.4.5") && !text.contains("someone@"), "{text}");
    server.stop();
}

#[test]
fn a_healthy_account_takes_the_mail_of_one_that_sleeps() {
    let ((port, asked), sink) = (provider(QUOTA), Sink::start());
    let home = home(port, "", "");
    let config = std::fs::read_to_string(home.path("tollgate.yaml")).unwrap();
    let second =
        format!("default/second: {{ host: 127.0.0.1, port: {}, tls: none, priority: 1 }}", sink.port());
    home.configure(&config.replace("accounts: { ", &format!("accounts: {{ {second}, ")));
    let server = home.start();
    send(server.relays[0], 60);
    wait_until("all arrive", || sink.count() == 60);
    assert!(asked.load(Ordering::SeqCst) <= 20, "{asked:?}");
    // The relay counts a message after the sink has taken it.
    let sent = r#"tollgate_relay_sent_total{tenant="default",account="second"} 60"#;
    wait_until("all are counted", || server.get("/metrics").text().contains(sent));
    server.stop();
}
