//! Both ends of the relay of the real program: how clients come in, and where mail goes out without an account.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "shared with the tests of the relay, which use the rest")]
#[path = "../../../../relay/tests/it/keeping/dns.rs"]
mod dns;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::mail::{Client, home, submit};
use crate::program::{Home, wait_until};
use dns::Known;
use tollgate_testbed::Sink;

/// The relay of the manual's configuration, word for word.
const SAMPLE: &str = "relay:
  hostname: relay.example.com
  listen: [{ smtp: 127.0.0.1:2525 }, { smtps: 0.0.0.0:465 }]
  tls: { certificate: cert.pem, key: key.pem }
  connect: smtp.connect          # policy over `ip`
  accept: mail.accept            # policy over sender, domain, ip, user, api_key, recipients
  deliver: mail.deliver          # policy over tenant, account, recipient_domain, recipients
  queue: { dir: ./queue, max_messages: 1_000_000, min_free: 1GiB, lifetime: 5d }
  networks: [127.0.0.0/8]        # may send without AUTH
  users: [{ name: app, tenant: acme, password_env: APP_PASSWORD, senders: [acme.example] }]
  accounts:
    acme/primary: { host: smtp.example.com, port: 587, tls: starttls, user: u, password_env: P, limits: [10/min sliding, 100/hour sliding, 1000/day sliding] }
  direct: false                  # true: deliver to MX hosts where no account fits
";

/// The policies that it names.
const POLICIES: &str = "store: { file: ./tollgate.redb }
rules:
  ip: { by: ip, limits: 50 at once for 60s }
  sender: { by: sender, limits: 100/hour }
  recipient_domain: { by: recipient_domain, limits: 200/hour, on_exceed: defer }
policies: { smtp.connect: [ip], mail.accept: [sender], mail.deliver: [recipient_domain] }
";

/// Writes a certificate for localhost, and its key.
fn certify(home: &Home) {
    let keys = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(home.path("cert.pem"), keys.cert.pem()).unwrap();
    std::fs::write(home.path("key.pem"), keys.signing_key.serialize_pem()).unwrap();
}

/// Logs in with TLS from the first byte, and sends a message, as Python's own client does.
fn send_over_tls(home: &Home, port: u16, sender: &str) {
    let script = "
import smtplib, ssl, sys
context = ssl.create_default_context(cafile='cert.pem')
smtp = smtplib.SMTP_SSL('localhost', int(sys.argv[1]), timeout=20, context=context)
smtp.login('app', 'correct horse battery')
smtp.sendmail(sys.argv[2], ['b@there.test'], 'Subject: hello\\r\\n\\r\\ntext\\r\\n')
assert not smtp.has_extn('starttls'), 'TLS is in use already'
smtp.quit()
";
    let mut python = Command::new("python3");
    python.current_dir(home.directory()).args(["-c", script, &port.to_string(), sender]);
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_sample_configuration_is_valid_and_serves_both_listeners() {
    let home = Home::with(&format!("{POLICIES}{SAMPLE}"))
        .variable("APP_PASSWORD", "correct horse battery")
        .variable("P", "hunter22");
    certify(&home);
    let checked = home.program().args(["check-config", "tollgate.yaml"]).output().unwrap();
    let told = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(told.contains("smtp://127.0.0.1:2525") && told.contains("smtps://0.0.0.0:465"), "{told}");
    assert!(told.contains("acme/primary"), "{told}");
    // The same, but for ports that are free.
    let listen = "[{ smtp: 127.0.0.1:0 }, { smtps: 127.0.0.1:0 }]";
    let home =
        home.variable("TOLLGATE__RELAY__LISTEN", listen).variable("TOLLGATE__RELAY__QUEUE__MIN_FREE", "0");
    let server = home.start();
    let (_, greeting) = Client::connect(server.relays[0]);
    assert_eq!(greeting, "220 relay.example.com ESMTP tollgate");
    // Nothing arrives anywhere: the account's server is on the internet.
    send_over_tls(&home, server.relays[1].port(), "app@acme.example");
    server.stop();
}

#[test]
fn a_listener_with_tls_from_the_first_byte_takes_mail() {
    let sink = Sink::start();
    let users = "  tls: { certificate: cert.pem, key: key.pem }\n  guard: smtp.login\n  \
                 users: [{ name: app, tenant: default, password_env: APP_PASSWORD, senders: [here.test] }]";
    let home = home(sink.port(), "guards: { smtp.login: 'by user, ip' }", users)
        .variable("APP_PASSWORD", "correct horse battery")
        .variable("TOLLGATE__RELAY__LISTEN", "[{ smtps: 127.0.0.1:0 }]");
    certify(&home);
    let server = home.start();
    send_over_tls(&home, server.relays[0].port(), "app@here.test");
    wait_until("the message arrives", || sink.count() == 1);
    let text = &sink.messages()[0].text;
    assert!(text.contains("with ESMTPSA"), "{text}");
    server.stop();
}

#[test]
fn direct_mail_goes_to_the_hosts_that_dns_names_and_a_null_mx_returns_it() {
    let sink = Sink::start();
    let here = Known { a: vec![Ipv4Addr::LOCALHOST], ..Known::default() };
    let names = HashMap::from([
        ("there.test", Known { mx: vec![(20, "mx2.test"), (10, "mx1.test")], ..Known::default() }),
        // An address without a listener.
        ("mx1.test", Known { a: vec![Ipv4Addr::new(127, 0, 0, 99)], ..Known::default() }),
        ("mx2.test", here.clone()),
        ("null.test", Known { mx: vec![(0, "")], ..Known::default() }),
        ("here.test", here),
        // A stranger's domain that leads into this machine.
        ("inside.test", Known { a: vec![Ipv4Addr::new(127, 0, 0, 2)], ..Known::default() }),
        ("alias.test", Known { cname: Some("inside.test"), ..Known::default() }),
    ]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let name_server = runtime.block_on(dns::start(names));
    let config = format!(
        "log: {{ format: json }}\nrelay:\n  hostname: relay.test\n  listen: [{{ smtp: '127.0.0.1:0' }}]\n  \
         networks: [127.0.0.0/8]\n  queue: {{ dir: ./queue, min_free: 0 }}\n  \
         direct: {{ name_server: '{name_server}', port: {}, allow: [127.0.0.1, 127.0.0.99] }}\n",
        sink.port()
    );
    let home = Home::with(&config);
    let server = home.start();
    submit(server.relays[0], "direct", &["b@there.test"]);
    wait_until("the message arrives", || sink.count() == 1);
    submit(server.relays[0], "null", &["b@null.test"]);
    wait_until("the report arrives", || sink.count() == 2);
    let report =
        sink.messages().into_iter().find(|sunk| sunk.recipients[0].contains("app@here.test")).unwrap();
    assert!(report.text.contains("Status: 5.1.10\n"), "{}", report.text);
    let inside = ["b@inside.test", "b@alias.test", "b@[127.0.0.2]", "b@[169.254.169.254]"];
    for (already, inside) in (2..).zip(inside) {
        submit(server.relays[0], "inside", &[inside]);
        wait_until("the report arrives", || sink.count() > already);
        let report = sink.messages().into_iter().find(|sunk| sunk.text.contains(inside)).unwrap();
        assert!(report.text.contains("Status: 5.4.4\n"), "{}", report.text);
    }
    server.stop();
}

#[test]
fn connections_of_an_address_are_held_until_they_end_however_they_end() {
    let sink = Sink::start();
    let file = "rules: { ip: { by: ip, limits: 3 at once for 60s } }\npolicies: { smtp.connect: [ip] }";
    let home = home(sink.port(), file, "  connect: smtp.connect");
    let server = home.start();
    let connect = || Client::connect(server.relays[0]);
    let mut open: Vec<(Client, String)> = (0..3).map(|_| connect()).collect();
    assert!(open.iter().all(|(_, greeting)| greeting.starts_with("220 ")));
    let (_, refused) = connect();
    assert!(refused.starts_with("421 4.7.0 "), "{refused}");
    // One says goodbye, one disappears, and one is cut in the middle of a message.
    assert!(open[0].0.ask("QUIT").unwrap().starts_with("221"));
    for line in ["EHLO c", "MAIL FROM:<a@here.test>", "RCPT TO:<b@there.test>", "DATA"] {
        open[1].0.ask(line).unwrap();
    }
    drop(open);
    let mut open = Vec::new();
    wait_until("all places are free", || {
        let (client, greeting) = connect();
        if greeting.starts_with("220 ") {
            open.push(client);
        }
        open.len() == 3
    });
    assert!(connect().1.starts_with("421 4.7.0 "));
    server.stop();
}

/// In a network of its own, because the guide names ports.
#[test]
fn the_first_lines_of_the_guide_run_as_they_are_written() {
    run_first_lines(&["--user", "--map-user=1000", "--map-group=1000", "--keep-caps"]);
}

#[test]
fn the_first_lines_of_the_guide_run_as_root_too() {
    let user = Command::new("id").arg("-u").output().unwrap();
    if user.stdout == b"0\n" {
        run_first_lines(&[]);
    }
}

/// Runs the first lines of the guide as the user that these options of `unshare` make.
fn run_first_lines(user: &[&str]) {
    let guide = include_str!("../../../../../docs/guides/relay.md");
    let block = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let lines: Vec<&str> = block.lines().collect();
    assert_eq!(lines.len(), 3, "{block}");
    let home = Home::empty();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    std::os::unix::fs::symlink(examples, home.path("examples")).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let mut shell = Command::new("unshare");
    shell.args(user).args(["--net", "--pid"]);
    shell.args(["--fork", "--kill-child", "bash", "-e"]).current_dir(home.directory()).env_clear();
    shell.env("PATH", format!("{}:/usr/bin:/usr/sbin:/bin:/sbin", program.display()));
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = shell.spawn().unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    writeln!(keyboard, "ip link set lo up").unwrap();
    writeln!(keyboard, "{}\n{}", lines[0], lines[1]).unwrap();
    // A reader of the guide sees that it listens.
    writeln!(keyboard, "until (exec 3<>/dev/tcp/127.0.0.1/2525) 2>/dev/null; do sleep 0.1; done").unwrap();
    writeln!(keyboard, "{}\necho; echo all are accepted", lines[2]).unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("all are accepted") {
        let read = screen.read_line(&mut shown).unwrap();
        assert!(read > 0, "{shown}");
    }
    // The sink counts on one line, and rewrites it.
    let count = |shown: &str| {
        shown.rsplit("mesg=").next().and_then(|rest| rest.split_whitespace().next()?.parse().ok())
    };
    let mut piece = [0; 256];
    while count(&shown).unwrap_or(0) < 10 {
        let read = screen.read(&mut piece).unwrap();
        assert!(read > 0, "{shown}");
        shown.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn mail_of_a_tenant_without_an_account_gets_a_temporary_refusal_and_check_config_warns() {
    let home = Home::with(
        "log: { format: json }
relay:
  hostname: relay.test
  listen: [{ smtp: '127.0.0.1:0' }]
  networks: [127.0.0.0/8]
  queue: { dir: ./queue, min_free: 0 }
  accounts: { acme/main: { host: 127.0.0.1, port: 1, tls: none } }
",
    );
    let output = home.program().args(["check-config", "--strict", "tollgate.yaml"]).output().unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && told.contains("mail from `networks` is refused"), "{told}");
    let server = home.start();
    let mut client = Client::greeted(server.relays[0]).unwrap();
    let reply = client.send("x", &["b@there.test"]).unwrap();
    assert!(reply.starts_with("451 4.3.5 Not configured: tenant default has no account"), "{reply}");
    home.run(
        &server,
        &"accounts add --tenant default --host 127.0.0.1 --port 1 --tls none".split(' ').collect::<Vec<_>>(),
    );
    let reply = Client::greeted(server.relays[0]).unwrap().send("x", &["b@there.test"]).unwrap();
    assert!(reply.starts_with("250 "), "{reply}");
    server.stop();
}

#[test]
fn a_password_is_hashed_with_a_work_factor_of_today() {
    let home = Home::empty();
    let hash = |input: &str| {
        let mut program = home.program();
        program.args(["relay", "hash-password"]);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let printed = String::from_utf8(hash("correct horse\nanother line\n").stdout).unwrap();
    assert!(printed.starts_with("pbkdf2-sha256$600000$") && printed.lines().count() == 1, "{printed}");
    let config = format!(
        "relay: {{ users: [{{ name: app, tenant: acme, password_hash: '{}' }}], direct: true }}\n",
        printed.trim()
    );
    let checked = Home::with(&config).program().args(["check-config", "tollgate.yaml"]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let short = hash("short\n");
    let said = String::from_utf8(short.stderr).unwrap();
    assert!(!short.status.success() && said.contains("at least 8 are needed"), "{said}");
    assert!(!hash(&"x".repeat(1_025)).status.success());
}
