//! The relay of the real program, between real clients and a real next hop: it keeps every limit, and charges and sends
//! everything once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;
use std::time::Duration;

use crate::mail::{Client, flood, home, relaying_to, submit};
use crate::program::{self, Home, pause, wait_until};
use serde_json::json;
use tollgate_testbed::{Postfix, Server as Redis, Sink};

const BY_DOMAIN: &str = "
rules:
  recipient_domain: { by: recipient_domain, limits: 200/hour sliding, on_exceed: defer, overrides: { mail.example: 1/hour sliding } }
policies: { mail.deliver: [recipient_domain] }";

#[test]
fn of_a_thousand_messages_against_200_an_hour_the_sink_gets_200() {
    let sink = Sink::start();
    let home = home(sink.port(), BY_DOMAIN, "  deliver: mail.deliver");
    let server = home.start();
    flood(server.relays[0], 1_000, "someone@busy.example");
    let deadline = program::now() + Duration::from_secs(120);
    while sink.count() < 200 && program::now() < deadline {
        pause(Duration::from_millis(50));
    }
    wait_until("the window is used up", || server.remaining("recipient_domain", "busy.example") == 0);
    // Longer than a lane needs to try again.
    pause(Duration::from_secs(2));
    assert_eq!(sink.count(), 200);
    // Another domain is not delayed.
    submit(server.relays[0], "other", &["someone@idle.example"]);
    wait_until("the other domain's message arrives", || sink.count() == 201);
    server.stop();
}

#[test]
fn an_exhausted_domain_waits_while_the_other_is_sent_and_each_is_charged_once() {
    let sink = Sink::start();
    let home = home(sink.port(), BY_DOMAIN, "  deliver: mail.deliver").with_moved_clock();
    let server = home.start();
    submit(server.relays[0], "first", &["a@mail.example"]);
    wait_until("the first message arrives", || sink.count() == 1);
    submit(server.relays[0], "second", &["b@gmail.example", "c@mail.example"]);
    wait_until("gmail.example gets its copy", || sink.count() == 2);
    let recipients = |subject: &str| -> Vec<String> {
        let sunk =
            sink.messages().into_iter().filter(|sunk| sunk.text.contains(&format!("Subject: {subject}\n")));
        sunk.flat_map(|sunk| sunk.recipients)
            .filter_map(|to| Some(to.split(' ').next()?.to_owned()))
            .collect()
    };
    assert_eq!(recipients("second"), ["<b@gmail.example>"]);
    assert_eq!(server.remaining("recipient_domain", "gmail.example"), 199);
    assert_eq!(server.remaining("recipient_domain", "mail.example"), 0);
    home.shift_clock(3_601);
    // The program compares its clock with the wall's ten times a second, and the sender looks at it whenever something
    // arrives.
    let mut others = 0;
    while recipients("second").len() < 2 && others < 40 {
        pause(Duration::from_millis(500));
        submit(server.relays[0], "other", &["d@gmail.example"]);
        others += 1;
    }
    wait_until("all arrive", || sink.count() == 3 + others);
    let mut all = recipients("second");
    all.sort();
    assert_eq!(all, ["<b@gmail.example>", "<c@mail.example>"]);
    // An hour later, only what was sent since counts.
    assert_eq!(server.remaining("recipient_domain", "gmail.example"), 200 - others as u64);
    assert_eq!(server.remaining("recipient_domain", "mail.example"), 0);
    server.stop();
}

#[test]
fn messages_of_a_lane_pass_a_limit_in_the_order_in_which_they_came() {
    let limits = "
rules:
  recipient_domain: { by: recipient_domain, limits: 1/500ms sliding, on_exceed: defer, overrides: { two.example: [3/min, 5/hour] } }
policies: { mail.deliver: [recipient_domain] }";
    let sink = Sink::start();
    let home = home(sink.port(), limits, "  deliver: mail.deliver").with_moved_clock();
    let mut server = home.start();
    let mut client = Client::greeted(server.relays[0]).unwrap();
    for domain in ["one.example", "two.example"] {
        for number in 0..12 {
            let reply = client.send(&number.to_string(), &[&format!("someone@{domain}")]).unwrap();
            assert!(reply.starts_with("250 "), "{reply}");
        }
    }
    let arrived = |domain: &str| -> Vec<u32> {
        let mut sunk = sink.messages();
        sunk.sort_by_key(|sunk| sunk.arrived);
        sunk.retain(|sunk| sunk.recipients.iter().any(|to| to.contains(domain)));
        let subject = |text: &str| text.lines().find_map(|line| line.strip_prefix("Subject: ")?.parse().ok());
        sunk.iter().filter_map(|sunk| subject(&sunk.text)).collect()
    };
    let first = |domain: &str, count: u32| {
        wait_until(&format!("{count} messages arrive at {domain}"), || {
            arrived(domain).len() >= count as usize
        });
        let mut numbers = arrived(domain);
        // Those that the limit allows together travel over connections of their own.
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..count), "{domain}: {:?}", arrived(domain));
    };
    first("two.example", 3);
    wait_until("some have been deferred", || arrived("one.example").len() >= 4);
    drop(client);
    server.stop();
    server = home.start();
    // A minute later `3/min` allows three more, and `5/hour` two.
    home.shift_clock(61);
    wait_until("all arrive", || arrived("one.example").len() == 12);
    assert_eq!(arrived("one.example"), (0..12).collect::<Vec<u32>>());
    first("two.example", 5);
    server.stop();
}

#[test]
fn the_null_sender_is_limited_by_its_client_over_smtp_and_http() {
    let limits = "
rules: { sender: { by: sender, limits: 3/hour }, domain: { by: domain, limits: 100/hour } }
policies: { mail.accept: [sender, domain] }";
    let sink = Sink::start();
    let home = home(sink.port(), limits, "  accept: mail.accept");
    let server = home.start();
    let mut client = Client::greeted(server.relays[0]).unwrap();
    let send_over_http = || {
        let text = "From: app@here.test\r\nSubject: report\r\n\r\ntext\r\n";
        let head = format!(
            "POST /api/v1/messages?from=&to=b@there.test HTTP/1.1\r\nhost: localhost\r\n\
             content-type: message/rfc822\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        let mut peer = server.connect();
        peer.send(head.as_bytes());
        peer.reply().unwrap()
    };
    let mut accepted = [0, 0];
    for _ in 0..6 {
        let reply = client.send_as("", "report", &["b@there.test"]).unwrap();
        accepted[0] += u32::from(reply.starts_with("250 "));
        accepted[1] += u32::from(send_over_http().status == 202);
    }
    assert_eq!(accepted, [2, 1], "three of twelve, through both doors together");
    let refused = send_over_http();
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.json()["denied_key"], "null-sender@[127.0.0.1]");
    assert!(client.send("other", &["b@there.test"]).unwrap().starts_with("250 "));
    server.stop();
}

#[test]
fn three_nodes_on_one_redis_admit_100_of_150_connections() {
    let (redis, sink) = (Redis::redis().start(), Sink::start());
    let file = format!(
        "store: {{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}\n\
         rules: {{ ip: {{ by: ip, limits: 100/60s sliding }} }}\npolicies: {{ smtp.connect: [ip] }}",
        redis.url()
    );
    let homes: Vec<Home> = (0..3).map(|_| home(sink.port(), &file, "  connect: smtp.connect")).collect();
    let nodes: Vec<_> = homes.iter().map(Home::start).collect();
    let start = program::now();
    let greetings: Vec<String> =
        (0..150).map(|number| Client::connect(nodes[number % 3].relays[0]).1).collect();
    assert!(start.elapsed() < Duration::from_secs(60), "the first have left the window already");
    let count = |code: &str| greetings.iter().filter(|greeting| greeting.starts_with(code)).count();
    assert_eq!((count("220 "), count("421 4.7.0")), (100, 50));
    nodes.into_iter().for_each(|node| drop(node.stop()));
}

#[test]
fn a_restart_of_tollgate_or_redis_resets_no_count() {
    let (mut redis, sink) = (Redis::redis().append_only().start(), Sink::start());
    let file = format!(
        "store: {{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}\n{BY_DOMAIN}",
        redis.url()
    )
    .replace("200/hour", "5/hour");
    let home = home(sink.port(), &file, "  deliver: mail.deliver");
    let server = home.start();
    flood(server.relays[0], 8, "someone@busy.example");
    wait_until("the limit is used up", || sink.count() == 5);
    server.stop();
    redis.stop();
    redis.start();
    let server = home.start();
    submit(server.relays[0], "after", &["someone@busy.example"]);
    submit(server.relays[0], "other", &["someone@idle.example"]);
    wait_until("another domain's message arrives", || sink.count() == 6);
    assert_eq!(server.remaining("recipient_domain", "busy.example"), 0);
    pause(Duration::from_secs(1));
    assert_eq!(sink.count(), 6);
    server.stop();
}

#[test]
fn a_real_postfix_relays_through_tollgate_to_a_real_postfix() {
    let sink = Sink::start();
    let behind = Postfix::start(sink.port());
    let file = "store: { file: ./tollgate.redb }";
    let accounts = format!(
        "  tls_ca: '{}'\n  accounts: {{ default/main: {{ host: localhost, port: {} }} }}",
        behind.authority().display(),
        behind.port()
    );
    let config = relaying_to(0, file, "")
        .lines()
        .filter(|line| !line.contains("accounts:"))
        .collect::<Vec<_>>()
        .join("\n");
    let home = Home::with(&format!("{config}\n{accounts}\n"));
    let server = home.start();
    let before = Postfix::start(server.relays[0].port());
    flood(([127, 0, 0, 1], before.port()).into(), 20, "someone@there.example");
    wait_until("all arrive", || sink.count() == 20);
    let text = &sink.messages()[0].text;
    assert!(text.contains("by relay.test with "), "{text}");
    assert!(behind.log().contains("from=<app@here.test>"));
    server.stop();
}

#[test]
fn an_independent_client_sends_with_a_login_over_tls() {
    let (sink, keys) = (Sink::start(), rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    let users = "  tls: { certificate: cert.pem, key: key.pem }\n  guard: smtp.login\n  \
                 users: [{ name: app, tenant: default, password_env: APP_PASSWORD, senders: [here.test] }]";
    let home = home(sink.port(), "guards: { smtp.login: 'by user, ip' }", users)
        .variable("APP_PASSWORD", "correct horse battery");
    std::fs::write(home.path("cert.pem"), keys.cert.pem()).unwrap();
    std::fs::write(home.path("key.pem"), keys.signing_key.serialize_pem()).unwrap();
    let server = home.start();
    let script = "
import smtplib, ssl, sys
context = ssl.create_default_context(cafile='cert.pem')
smtp = smtplib.SMTP('localhost', int(sys.argv[1]), timeout=20)
smtp.starttls(context=context)
try:
    smtp.login('app', 'wrong password')
    sys.exit('a wrong password was taken')
except smtplib.SMTPAuthenticationError as error:
    assert error.smtp_code == 535, error
smtp.login('app', 'correct horse battery')
smtp.sendmail('app@here.test', ['b@there.test'], 'Subject: hello\\r\\n\\r\\ntext\\r\\n')
try:
    smtp.sendmail('app@elsewhere.test', ['b@there.test'], 'Subject: forged\\r\\n\\r\\ntext\\r\\n')
    sys.exit('a foreign sender was taken')
except smtplib.SMTPSenderRefused as error:
    assert error.smtp_code == 550, error
def refused(header, sender='app@here.test'):
    try:
        smtp.sendmail(sender, ['b@there.test'], header + '\\r\\nSubject: forged\\r\\n\\r\\ntext\\r\\n')
        sys.exit(f'{sender} {header} was taken')
    except smtplib.SMTPDataError as error:
        assert error.smtp_code == 550, error
        return error.smtp_error
for header in ['From: ceo@elsewhere.test', 'From: app@here.test\\r\\nSender: ceo@elsewhere.test',
               'From: app@here.test, ceo@elsewhere.test']:
    assert b'5.7.1' in refused(header), header
assert b'5.6.0' in refused('From: app@here.test\\r\\nFrom: app@here.test')
assert smtp.mail('')[0] == 550, 'the null sender'
smtp.quit()
";
    let mut python = Command::new("python3");
    python.current_dir(home.directory()).args(["-c", script, &server.relays[0].port().to_string()]);
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    wait_until("the message arrives", || sink.count() == 1);
    let refused = server.get("/metrics").text().lines().filter(|line| line.contains("(sender)")).count();
    assert_eq!(refused, 1, "one series for foreign senders");
    assert!(!server.log().contains("correct horse"));
    server.stop();
}

#[test]
fn a_reload_changes_accounts_and_limits_and_says_what_needs_a_restart() {
    let sink = Sink::start();
    // Nothing listens there.
    let home = home(1, "", "");
    let server = home.start();
    assert_eq!(server.post("/api/v1/accounts/default/main/pause", &json!({})).status, 200);
    submit(server.relays[0], "waits", &["a@there.test"]);
    assert_eq!(server.get("/readyz").ok()["status"], "ready");
    home.configure(&relaying_to(sink.port(), "", ""));
    assert_eq!(server.post("/api/v1/reload", &json!({})).status, 200);
    assert_eq!(server.post("/api/v1/accounts/default/main/resume", &json!({})).status, 200);
    wait_until("the message is sent through the account as it is now", || sink.count() == 1);
    home.configure(&relaying_to(sink.port(), "", "").replace("./queue", "./elsewhere"));
    assert_eq!(server.post("/api/v1/reload", &json!({})).status, 200);
    server.wait_for_log("\"setting\":\"relay.queue\"");
    server.stop();
}

#[test]
fn an_unusable_relay_is_refused_before_it_changes_anything() {
    let sink = Sink::start();
    let first = home(sink.port(), "", "");
    let server = first.start();
    let refused = |home: &Home| String::from_utf8(home.refused().stderr).unwrap();
    let second = home(sink.port(), "", "");
    let queue = first.path("queue").display().to_string();
    second.configure(&relaying_to(sink.port(), "", "").replace("./queue", &queue));
    let told = refused(&second);
    assert!(
        told.contains("the relay does not start") && told.contains("is in use by another process"),
        "{told}"
    );
    let taken = format!("'{}'", server.relays[0]);
    second.configure(&relaying_to(sink.port(), "", "").replace("'127.0.0.1:0'", &taken));
    let told = refused(&second);
    assert!(told.contains("another program listens there already"), "{told}");
    assert!(!second.path("queue").exists(), "nothing was made");
    second.configure(&relaying_to(sink.port(), "", "").replace("127.0.0.0/8", "0.0.0.0/0"));
    let told = refused(&second);
    assert!(told.contains("would make this an open relay"), "{told}");
    server.stop();
}

#[test]
fn check_config_and_doctor_tell_of_the_relay() {
    let sink = Sink::start();
    let home = home(sink.port(), BY_DOMAIN, "  deliver: mail.deliver");
    let run = |arguments: &[&str]| {
        let output = home.program().args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let told = run(&["check-config", "tollgate.yaml"]);
    for line in [
        "relay relay.test on smtp://127.0.0.1:0",
        "  deliveries are checked against policy mail.deliver",
        "  127.0.0.0/8 may send without a login, as tenant default",
        "  other mail waits for an account",
        "  the cost of an attempt is its field `recipients`",
    ] {
        assert!(told.lines().any(|told| told == line), "{line} is not in:\n{told}");
    }
    assert!(told.contains("account default/main sends through 127.0.0.1:"), "{told}");
    let told = run(&["doctor", "--config", "tollgate.yaml"]);
    assert!(told.contains("there is no ./queue yet: the server makes it"), "{told}");
    let server = home.start();
    let told = run(&["doctor", "--config", "tollgate.yaml"]);
    assert!(told.contains("a process uses ./queue, as a running server does"), "{told}");
    server.stop();
    let told = run(&["doctor", "--config", "tollgate.yaml"]);
    assert!(told.contains("no process uses ./queue") && told.contains("are free, and"), "{told}");
}

/// An example, served on a free port.
fn example(text: &str) -> Home {
    Home::with(text)
        .variable("TOLLGATE__RELAY__LISTEN", "[{ smtp: 127.0.0.1:0 }]")
        .variable("TOLLGATE__RELAY__QUEUE__MIN_FREE", "0")
}

#[test]
fn the_example_with_a_sink_sends_five_in_ten_seconds() {
    let sink = Sink::start();
    let text =
        include_str!("../../../../../examples/relay-and-sink.yaml").replace("2526", &sink.port().to_string());
    let home = example(&text);
    let server = home.start();
    flood(server.relays[0], 8, "someone@there.example");
    wait_until("five arrive", || sink.count() >= 5);
    wait_until("the others arrive when the window frees", || sink.count() == 8);
    server.stop();
}

#[test]
fn the_examples_for_providers_and_small_hosts_are_served() {
    let provider = example(include_str!("../../../../../examples/relay-provider.yaml"))
        .variable("SES_PASSWORD", "a-password")
        .variable("MAILGUN_PASSWORD", "a-password");
    let small = example(include_str!("../../../../../examples/relay-small-host.yaml"));
    for (home, name) in [(provider, "relay.example.com"), (small, "mail.example.com")] {
        let server = home.start();
        let (mut client, greeting) = Client::connect(server.relays[0]);
        assert_eq!(greeting, format!("220 {name} ESMTP tollgate"));
        client.ask("EHLO client.test").unwrap();
        // Nothing is sent: the next hops are on the internet.
        assert!(client.ask("MAIL FROM:<app@here.test>").unwrap().starts_with("250 "));
        assert!(client.ask("RCPT TO:<someone@there.test>").unwrap().starts_with("250 "));
        server.stop();
    }
}
