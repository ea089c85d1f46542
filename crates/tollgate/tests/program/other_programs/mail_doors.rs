//! The doors for mail, SMTP and Postfix's policy protocol, do what the doors over HTTP do: a denial is found by its id,
//! fields are derived, texts of other servers cannot control a terminal, and metrics are well-formed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use crate::mail::{self, Client, home, submit};
use crate::program::{Home, Server, text, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Sink;

const LEVELS: &str = "
store: memory
listen: { http: 127.0.0.1:0, postfix: 127.0.0.1:0 }
fields: { domain: { of: sender } }
rules:
  sender: { by: sender, limits: 2/day }
  domain: { by: domain, limits: 3/day }
policies: { levels: [sender, domain] }
postfix: { policy: levels }";

/// What the relay says to one message from a sender, after its text or instead of asking for it.
fn mail_from(server: &Server, sender: &str) -> String {
    let mut client = Client::greeted(server.relays[0]).unwrap();
    client.ask(&format!("MAIL FROM:<{sender}>")).unwrap();
    client.ask("RCPT TO:<a@there.example>").unwrap();
    let reply = client.ask("DATA").unwrap();
    if reply.starts_with("354") { client.ask("Subject: x\r\n\r\nx\r\n.").unwrap() } else { reply }
}

/// The action for one recipient of a message.
fn policy_for(server: &Server, sender: &str, instance: &str) -> String {
    let mut stream = TcpStream::connect(server.policy_door.unwrap()).unwrap();
    let request = format!(
        "request=smtpd_access_policy\nprotocol_state=RCPT\nsender={sender}\nrecipient=b@there.example\nclient_address=192.0.2.1\ninstance={instance}\n\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// The only decision with an id.
fn found(server: &Server, id: &str) -> Value {
    let decisions = server.get(&format!("/api/v1/decisions?id={id}")).ok()["decisions"].clone();
    assert_eq!(decisions.as_array().unwrap().len(), 1, "{id}: {decisions}");
    decisions[0].clone()
}

/// The id at the end of a reply, in parentheses.
fn id_of(reply: &str) -> &str {
    reply.trim_end().rsplit_once('(').and_then(|(_, id)| id.strip_suffix(')')).expect("a reply with an id")
}

#[test]
fn the_id_of_a_denial_leads_to_its_decision_and_domains_are_derived() {
    let sink = Sink::start();
    let home = home(sink.port(), LEVELS, "  accept: levels");
    let server = home.start();
    assert!(mail_from(&server, "a@example.com").starts_with("250"));
    assert!(policy_for(&server, "A@Example.com", "first").starts_with("action=DUNNO"));
    let refused = mail_from(&server, "a@example.com");
    assert!(refused.starts_with("451"), "{refused}");
    assert!(policy_for(&server, "b@example.com", "second").starts_with("action=DUNNO"));
    // Neither door names a domain.
    let deferred = policy_for(&server, "c@example.com", "third");
    assert!(deferred.contains("domain example.com, 3/day"), "{deferred}");
    let over = mail_from(&server, "d@example.com");
    assert!(over.contains("domain example.com, 3/day"), "{over}");
    for (reply, rule) in [(refused, "sender"), (deferred, "domain"), (over, "domain")] {
        let id = id_of(&reply);
        assert_eq!(
            (&found(&server, id)["rule"], &found(&server, id)["verdict"]),
            (&json!(rule), &json!("deny"))
        );
        server.wait_for_log(&format!("\"correlation\":\"{id}\""));
    }
    server.stop();
}

/// A next hop that refuses everything with a text of its own.
fn refusing(reply: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let _ = stream.write_all(b"220 next.test\r\n");
                let lines = BufReader::new(stream.try_clone().unwrap()).split(b'\n').map_while(Result::ok);
                for line in lines {
                    let hello = line.to_ascii_uppercase().starts_with(b"EHLO");
                    let said = if hello { "250 next.test\r\n" } else { reply };
                    if stream.write_all(said.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn the_reply_of_a_next_hop_cannot_act_on_a_terminal() {
    let port = refusing("451 4.0.0 hostile \x1b[31m\u{9b}2J\u{7f}\u{202e}\u{2028} text\r\n");
    for format in ["json", "pretty"] {
        let config = mail::relaying_to(port, "store: memory", "")
            .replace("format: json", &format!("format: {format}"));
        let home = Home::with(&config);
        let server = home.start();
        submit(server.relays[0], "x", &["a@there.example"]);
        server.wait_for_log("hostile");
        let page = server.get("/api/v1/messages").ok();
        let id = page["messages"][0]["id"].as_str().unwrap();
        let commands: [&[&str]; 3] =
            [&["queue", "show", id], &["queue", "show", id, "--json"], &["queue", "lanes"]];
        let mut printed = vec![server.log()];
        wait_until("the reply is recorded", || {
            text(&home.run(&server, commands[0]).stdout).contains("hostile")
        });
        printed.extend(commands.map(|arguments| text(&home.run(&server, arguments).stdout).to_owned()));
        for text in printed {
            let acting = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2028}".contains(c);
            assert!(!text.contains(acting), "{text:?}");
        }
        server.stop();
    }
}

#[test]
fn metrics_of_the_mail_doors_pass_the_check_of_prometheus() {
    let sink = Sink::start();
    let home = home(sink.port(), LEVELS, "  accept: levels");
    let server = home.start();
    for number in 0..3 {
        mail_from(&server, "a@example.com");
        policy_for(&server, "b@example.org", &number.to_string());
    }
    wait_until("a message is delivered", || sink.count() >= 1);
    let page = server.get("/metrics");
    for name in ["tollgate_relay_", "tollgate_postfix_"] {
        assert!(page.text().contains(name), "{name} is missing from {}", page.text());
    }
    let counts = page.text().lines().filter(|line| !line.starts_with('#') && line.contains("_count"));
    let buckets = page.text().lines().filter(|line| line.contains("le=\"+Inf\"")).count();
    assert_eq!(counts.count(), buckets, "every histogram has its last bucket");
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there: `./test` installs it");
    promtool.stdin.take().unwrap().write_all(&page.body).unwrap();
    let mut said = String::new();
    promtool.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    promtool.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(promtool.wait().unwrap().success() && said.is_empty(), "{said}");
    server.stop();
}
