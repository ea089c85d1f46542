//! Clients that others wrote: Python's smtplib, swaks, and Postfix's smtp-source.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::process::{Command, Output};

use crate::support::{Stand, policies, rule, tls};
use tollgate_core::Policies;
use tollgate_relay::message::Needs;

/// Debian keeps Postfix's tools outside of many users' paths.
const SMTP_SOURCE: &str = "/usr/sbin/smtp-source";

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a script of Python, with `port`, `secure_port` and `ca` (a file) defined.
fn python(stand: &Stand, script: &str) -> String {
    let mut ca = tempfile::NamedTempFile::new().unwrap();
    ca.write_all(tls::certificate().as_bytes()).unwrap();
    let (port, secure) = (stand.address.port(), stand.secure_address.port());
    let head = format!(
        "import smtplib, ssl, email.message\nport, secure_port, ca = {port}, {secure}, {:?}\n\
         context = ssl.create_default_context(cafile=ca)\n",
        ca.path()
    );
    let output = run("python3", &["-c", &(head + script)]);
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn unlimited() -> Policies {
    policies(vec![], &[])
}

#[test]
fn smtplib_sends_with_starttls_and_a_login() {
    let stand = Stand::new(unlimited(), |settings| settings.networks.clear());
    let said = python(
        &stand,
        r"
message = email.message.EmailMessage()
message['From'], message['To'], message['Bcc'] = 'a@acme.example', 'b@y.test', 'c@z.test'
message['Subject'] = 'Grüße'
message.set_content('.\n..\nÄ line\n')
with smtplib.SMTP('localhost', port) as client:
    client.starttls(context=context)
    client.login('app', 'secret')
    print(sorted(client.esmtp_features))
    print(client.send_message(message))
with smtplib.SMTP_SSL('localhost', secure_port, context=context) as client:
    client.login('other', 'sesame', initial_response_ok=False)
    print(client.sendmail('x@any.test', ['b@y.test'], b'Subject: s\r\n\r\ntext', ['RET=HDRS'], ['NOTIFY=NEVER']))
",
    );
    let features =
        "['8bitmime', 'auth', 'dsn', 'enhancedstatuscodes', 'limits', 'pipelining', 'size', 'smtputf8']";
    assert_eq!(said, format!("{features}\n{{}}\n{{}}\n"));
    let kept = stand.intake.kept();
    let (envelope, text) = &kept[0];
    assert_eq!((&*envelope.tenant, envelope.recipients.len()), ("acme", 2));
    let text = str::from_utf8(text).unwrap();
    assert!(text.contains("\r\n\r\n.\r\n..\r\n"), "{text}");
    assert!(!text.contains("Bcc") && text.contains("\r\nMessage-ID: <") && text.contains("\r\nDate: "));
    assert!(!kept[1].0.recipients[0].notify.failure && kept[1].0.tenant == "globex");
}

#[test]
fn smtplib_sees_the_codes() {
    let rules = vec![rule("sender", &["sender"], &["1/hour"])];
    let stand =
        Stand::new(policies(rules, &[("accept", &["sender"])]), |settings| settings.terms.max_recipients = 2);
    let said = python(
        &stand,
        r"
with smtplib.SMTP('localhost', port) as client:
    print(client.sendmail('a@x.test', ['1@y.test', '2@y.test', '3@y.test'], 'text'))
    try:
        client.sendmail('a@x.test', ['1@y.test'], 'text')
    except smtplib.SMTPDataError as error:
        print(error.smtp_code, error.smtp_error.decode())
    try:
        client.login('app', 'secret')
    except smtplib.SMTPNotSupportedError as error:
        print('no AUTH without TLS')
    print(client.docmd('AUTH', 'PLAIN AGFwcABzZWNyZXQ='))
    client.starttls(context=context)
    try:
        client.login('app', 'wrong')
    except smtplib.SMTPAuthenticationError as error:
        print(error.smtp_code, error.smtp_error.decode())
    print(client.sendmail('b@x.test', ['ü@y.test'], 'text', ['SMTPUTF8']))
",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("{'3@y.test': (452, b'4.5.3 Too many recipients"), "{}", lines[0]);
    let refused = "451 4.7.1 Rate limit exceeded: sender a@x.test, 1/hour; try again in 3600 s (";
    assert!(lines[1].starts_with(refused), "{}", lines[1]);
    assert_eq!(lines[2], "no AUTH without TLS");
    assert_eq!(lines[3], "(538, b'5.7.11 Encryption required: begin TLS first')");
    assert_eq!(lines[4], "535 5.7.8 Authentication failed");
    assert_eq!(lines[5], "{}");
    let (envelope, _) = &stand.intake.kept()[1];
    assert_eq!((&*envelope.recipients[0].address, envelope.needs.utf8), ("ü@y.test", true));
}

#[test]
fn swaks_pipelines_and_is_told_what_is_wrong() {
    let rules = vec![rule("ip", &["ip"], &["2/hour"])];
    let stand = Stand::new(policies(rules, &[("accept", &["ip"])]), |_| {});
    let server = format!("127.0.0.1:{}", stand.address.port());
    let base = ["--server", &server, "--helo", "client.test", "--to", "b@y.test,c@y.test"];
    let swaks = |more: &[&str]| run("swaks", &[&base[..], more].concat());
    let sent = swaks(&["--from", "a@acme.example", "--pipeline"]);
    assert!(sent.status.success(), "{}", text(&sent));
    let sent = swaks(&[
        "--from",
        "a@acme.example",
        "--tls",
        "--auth",
        "LOGIN",
        "--auth-user",
        "app",
        "--auth-password",
        "secret",
    ]);
    assert!(sent.status.success(), "{}", text(&sent));
    let kept = stand.intake.kept();
    assert_eq!((&*kept[0].0.tenant, &*kept[1].0.tenant), ("default", "acme"));
    // swaks ends with 25 where DATA is refused, and with 28 where AUTH is.
    let refused = swaks(&["--from", "a@acme.example"]);
    assert_eq!(refused.status.code(), Some(25), "{}", text(&refused));
    assert!(
        text(&refused)
            .contains("<** 451 4.7.1 Rate limit exceeded: ip 127.0.0.1, 2/hour; try again in 3600 s")
    );
    let wrong = swaks(&[
        "--from",
        "a@acme.example",
        "--tls",
        "--auth",
        "PLAIN",
        "--auth-user",
        "app",
        "--auth-password",
        "no",
    ]);
    assert_eq!(wrong.status.code(), Some(28), "{}", text(&wrong));
    assert!(text(&wrong).contains("535 5.7.8 Authentication failed"));
    let foreign = swaks(&[
        "--from",
        "a@evil.example",
        "--tls",
        "--auth",
        "PLAIN",
        "--auth-user",
        "app",
        "--auth-password",
        "secret",
    ]);
    assert_eq!(foreign.status.code(), Some(23), "{}", text(&foreign));
    assert!(text(&foreign).contains("550 5.7.1 You may not send as evil.example"));
}

#[test]
fn smtp_source_delivers_every_message_over_many_sessions() {
    let stand = Stand::new(unlimited(), |_| {});
    let server = format!("127.0.0.1:{}", stand.address.port());
    let arguments =
        ["-s", "20", "-m", "500", "-r", "3", "-l", "20000", "-f", "a@x.test", "-t", "b@y.test", &server];
    let sent = run(SMTP_SOURCE, &arguments);
    assert!(sent.status.success(), "{}", text(&sent));
    let kept = stand.intake.kept();
    assert_eq!(kept.len(), 500);
    assert!(kept.iter().all(|(envelope, text)| envelope.recipients.len() == 3 && text.len() > 20_000));
    assert!(kept.iter().all(|(envelope, _)| envelope.needs == Needs::default()));
}

#[test]
fn of_1000_messages_a_limit_of_200_accepts_200() {
    let rules = vec![rule("sender", &["sender"], &["200/hour"])];
    let stand = Stand::new(policies(rules, &[("accept", &["sender"])]), |_| {});
    let server = format!("127.0.0.1:{}", stand.address.port());
    // -A: goes on after a refusal.
    let arguments = ["-A", "-s", "10", "-m", "1000", "-f", "a@x.test", "-t", "b@y.test", &server];
    let sent = run(SMTP_SOURCE, &arguments);
    assert!(sent.status.success(), "{}", text(&sent));
    assert_eq!(stand.intake.count(), 200);
    assert_eq!(stand.left("accept", &[("sender", "a@x.test")]), [0]);
}
