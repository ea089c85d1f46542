//! The client against a server that misbehaves: it knows how far each transaction came, and never waits for ever.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::keeping::script::{Act, Script, Scripted, Tls, polite, with};
use crate::keeping::{client_options, envelope, plain, text};
use tollgate_relay::client::{
    Answer, Client, ClientOptions, Delivery, Destination, Login, Progress, Stage, TlsMode,
};
use tollgate_relay::message::Envelope;
use tollgate_relay::replies::{Rest, Verdict};

const TEXT: &[u8] = b"Subject: x\r\n\r\n.hidden\r\nbody\r\n";

async fn transact(client: &Client, destination: &Destination, envelope: &Envelope) -> Delivery {
    let mut connection = match client.idle(destination) {
        Some(connection) => connection,
        None => loop {
            match client.connect(destination).await {
                Err(error) if error.stage == Stage::Busy => tokio::task::yield_now().await,
                connected => break connected.unwrap(),
            }
        },
    };
    let recipients: Vec<_> = envelope.recipients.iter().collect();
    let times = &client.options().timeouts;
    let delivery = connection.transact(envelope, &recipients, text(TEXT), times).await;
    client.give_back(connection);
    delivery
}

/// One transaction with two recipients against a script.
async fn against(script: Script) -> (Delivery, Scripted) {
    let server = Scripted::start(script).await;
    let client = Client::new(client_options(server.roots.clone()));
    let envelope = envelope(1, &["a@there.example", "b@there.example"]);
    (transact(&client, &plain(server.port), &envelope).await, server)
}

fn codes(delivery: &Delivery) -> Vec<(char, String)> {
    let code = |answer: &Answer| match answer {
        Answer::Sent(reason) => ('s', reason.status.clone()),
        Answer::Temporary(reason) => ('t', reason.status.clone()),
        Answer::Permanent(reason) => ('p', reason.status.clone()),
        Answer::Another => ('a', String::new()),
    };
    delivery.answers.iter().map(code).collect()
}

fn both(kind: char, status: &str) -> Vec<(char, String)> {
    vec![(kind, status.to_owned()); 2]
}

#[tokio::test]
async fn a_message_goes_out_with_the_options_that_the_server_offers() {
    let (delivery, server) = against(polite()).await;
    assert_eq!((delivery.progress, codes(&delivery)), (Progress::Answered, both('s', "2.0.0")));
    assert_eq!(*server.texts.lock(), ["Subject: x\r\n\r\n..hidden\r\nbody\r\n"]);
    let heard = server.heard.lock().join("\n");
    let size = TEXT.len();
    assert!(heard.contains(&format!("MAIL FROM:<app@here.example> SIZE={size} RET=HDRS\n")), "{heard}");
    assert!(heard.contains("RCPT TO:<a@there.example> NOTIFY=FAILURE\n"), "{heard}");
    let bare = ("EHLO", Act::Say("250 script.example\r\n"));
    let (delivery, server) = against(with(&[bare])).await;
    assert_eq!(delivery.progress, Progress::Answered);
    assert!(server.heard.lock().contains(&"MAIL FROM:<app@here.example>".to_owned()));
}

#[tokio::test]
async fn wishes_about_reports_are_passed_on() {
    let server = Scripted::start(polite()).await;
    let client = Client::new(client_options(server.roots.clone()));
    let mut envelope = envelope(1, &["a@there.example", "b@there.example"]);
    envelope.report.full = true;
    envelope.report.envelope_id = Some("QQ+314=159".to_owned());
    envelope.recipients[0].original = Some("rfc822;old+name@there.example".to_owned());
    envelope.recipients[0].notify.success = true;
    envelope.recipients[1].original = Some("utf-8;\\x{E4}+@there.example".to_owned());
    envelope.recipients[1].notify.failure = false;
    transact(&client, &plain(server.port), &envelope).await;
    let heard = server.heard.lock().join("\n");
    for part in [
        " RET=FULL ENVID=QQ+2B314+3D159\n",
        "<a@there.example> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;old+2Bname@there.example\n",
        "<b@there.example> NOTIFY=NEVER ORCPT=utf-8;\\x{E4}+@there.example\n",
    ] {
        assert!(heard.contains(part), "{part:?} is missing in {heard}");
    }
}

#[tokio::test]
async fn each_recipient_gets_its_own_answer() {
    let (delivery, server) = against(with(&[("RCPT TO:<b@", Act::Say("550 5.1.1 gone\r\n"))])).await;
    assert_eq!(delivery.progress, Progress::Answered);
    assert_eq!(codes(&delivery), [('s', "2.0.0".into()), ('p', "5.1.1".into())]);
    assert_eq!(server.texts.lock().len(), 1);
    let (delivery, _) = against(with(&[("RCPT TO:<b@", Act::Say("452 4.5.3 too many\r\n"))])).await;
    assert_eq!(codes(&delivery), [('s', "2.0.0".into()), ('a', String::new())]);
    // RFC 821 had another code for too many recipients. A full mailbox is no such case.
    for said in ["552 too many recipients\r\n", "552 5.5.3 too many recipients\r\n"] {
        let (delivery, _) = against(with(&[("RCPT TO:<b@", Act::Say(said))])).await;
        assert_eq!(codes(&delivery), [('s', "2.0.0".into()), ('a', String::new())], "{said}");
        let (delivery, _) = against(with(&[("RCPT", Act::Say(said))])).await;
        assert_eq!(codes(&delivery), both('t', "4.5.3"), "{said}");
    }
    let (delivery, _) = against(with(&[("RCPT TO:<b@", Act::Say("552 5.2.2 mailbox full\r\n"))])).await;
    assert_eq!(codes(&delivery), [('s', "2.0.0".into()), ('p', "5.2.2".into())]);
    let (delivery, server) = against(with(&[("RCPT", Act::Say("450 4.7.1 slow down\r\n"))])).await;
    assert_eq!((delivery.progress, codes(&delivery)), (Progress::BeforeData, both('t', "4.7.1")));
    assert_eq!(delivery.slows_domain.as_deref(), Some("450 4.7.1 slow down"));
    assert!(!server.heard.lock().contains(&"DATA".to_owned()), "no text without recipients");
}

#[tokio::test]
async fn the_outcome_says_how_far_it_went() {
    let cases: [(&str, &'static str, Act, Progress, char, &str); 9] = [
        ("refused at MAIL", "MAIL", Act::Say("550 5.7.1 no\r\n"), Progress::BeforeData, 't', "5.7.1"),
        ("dropped at MAIL", "MAIL", Act::Drop, Progress::BeforeMail, 't', "4.4.2"),
        ("dropped at DATA", "DATA", Act::Drop, Progress::BeforeData, 't', "4.4.2"),
        ("refused at DATA", "DATA", Act::Say("451 4.3.0 later\r\n"), Progress::BeforeData, 't', "4.3.0"),
        ("refused at the dot", ".", Act::Say("554 5.6.0 bad\r\n"), Progress::Answered, 'p', "5.6.0"),
        ("dropped after the dot", ".", Act::Drop, Progress::Unknown, 't', "4.4.2"),
        ("silent after the dot", ".", Act::Hang, Progress::Unknown, 't', "4.4.2"),
        ("nonsense after the dot", ".", Act::Say("what?\r\n"), Progress::Unknown, 't', "4.4.2"),
        ("a question after the dot", ".", Act::Say("354 more\r\n"), Progress::Unknown, 't', "4.5.0"),
    ];
    for (name, word, act, progress, kind, status) in cases {
        let (delivery, _server) = against(with(&[(word, act)])).await;
        assert_eq!((delivery.progress, codes(&delivery)), (progress, both(kind, status)), "{name}");
    }
}

#[tokio::test]
async fn a_server_that_answers_2xx_to_everything_gets_no_message_and_none_is_sent() {
    let (delivery, server) = against(vec![("", Act::Say("250 2.0.0 ok\r\n"))]).await;
    assert_eq!((delivery.progress, codes(&delivery)), (Progress::BeforeData, both('t', "4.5.0")));
    assert_eq!(server.texts.lock().len(), 0);
    let heard = server.heard.lock().clone();
    assert_eq!(heard.last().map(String::as_str), Some("DATA"), "nothing follows on such a connection");
}

#[tokio::test]
async fn replies_that_are_shifted_are_never_taken_for_an_answer() {
    // One reply too many, at each place: nothing is sent, and no connection is used again.
    for (word, act) in [
        ("EHLO", "250 script.example\r\n250 again\r\n"),
        ("MAIL", "250 2.1.0 ok\r\n250 2.1.0 again\r\n"),
        ("RCPT", "250 2.1.5 ok\r\n250 2.1.5 again\r\n"),
        ("RCPT TO:<b@", "250 2.1.5 ok\r\n354 go\r\n250 2.0.0 taken\r\n"),
        ("DATA", "354 go\r\n250 2.0.0 taken\r\n"),
        ("DATA", "250 2.0.0 taken\r\n354 go\r\n"),
    ] {
        for hello in ["250-script.example\r\n250 PIPELINING\r\n", "250 script.example\r\n"] {
            let (delivery, server) = against(with(&[(word, Act::Say(act)), ("EHLO", Act::Say(hello))])).await;
            assert!(delivery.progress < Progress::Answered, "{word}: {delivery:?}");
            assert!(codes(&delivery).iter().all(|(kind, _)| *kind == 't'), "{word}: {delivery:?}");
            assert_eq!(server.texts.lock().len(), 0, "{word}: no dot was sent");
        }
    }
    let server = Scripted::start(with(&[("GREETING", Act::Say("220 a\r\n220 b\r\n"))])).await;
    let client = Client::new(client_options(server.roots.clone()));
    let error = client.connect(&plain(server.port)).await.unwrap_err();
    assert!(error.reason.contains("before it was asked"), "{error}");
}

#[tokio::test]
async fn a_connection_with_unread_bytes_is_not_used_again() {
    for act in
        [Act::Say("250 2.0.0 ok\r\n421 4.4.2 idle\r\n"), Act::SayAndDrop("250 2.0.0 ok\r\n421 bye\r\n")]
    {
        let server = Scripted::start(with(&[(".", act)])).await;
        let client = Client::new(client_options(server.roots.clone()));
        let envelope = envelope(1, &["a@there.example"]);
        for _ in 0..3 {
            let delivery = transact(&client, &plain(server.port), &envelope).await;
            assert_eq!((delivery.progress, &delivery.refused), (Progress::Answered, &None), "{delivery:?}");
        }
        assert_eq!((*server.connections.lock(), server.texts.lock().len()), (3, 3));
    }
}

#[tokio::test]
async fn an_early_refusal_of_a_text_is_believed() {
    let (delivery, server) = against(with(&[("DATA", Act::Say("354 go\r\n552 5.3.4 too large\r\n"))])).await;
    assert_eq!((delivery.progress, codes(&delivery)), (Progress::BeforeDot, both('p', "5.3.4")));
    assert_eq!(server.texts.lock().len(), 0);
}

#[tokio::test]
async fn a_server_that_dribbles_or_floods_is_cut() {
    let slow = Act::Dribble("250 2.1.0 this takes far more than the time of a command\r\n", 100);
    let (delivery, _server) = against(with(&[("MAIL", slow)])).await;
    assert_eq!((delivery.progress, codes(&delivery)), (Progress::BeforeMail, both('t', "4.4.2")));
    let quick = Act::Dribble("250 2.1.0 ok\r\n", 1);
    let (delivery, _server) = against(with(&[("MAIL", quick)])).await;
    assert_eq!(delivery.progress, Progress::Answered, "slow within the time is fine");
    let flood: &'static str = Box::leak("250-more\r\n".repeat(10_000).into_boxed_str());
    let (delivery, _server) = against(with(&[("MAIL", Act::Say(flood))])).await;
    assert_eq!((delivery.progress, codes(&delivery)), (Progress::BeforeMail, both('t', "4.4.2")));
}

#[tokio::test]
async fn a_message_that_the_server_cannot_take_is_not_sent() {
    let script = || with(&[("EHLO", Act::Say("250-script.example\r\n250 SIZE 10\r\n"))]);
    let (delivery, server) = against(script()).await;
    assert_eq!((delivery.progress, codes(&delivery)), (Progress::BeforeMail, both('p', "5.3.4")));
    assert_eq!(server.heard.lock().len(), 1, "only EHLO");
    let server = Scripted::start(with(&[("EHLO", Act::Say("250 script.example\r\n"))])).await;
    let client = Client::new(client_options(server.roots.clone()));
    let mut foreign = envelope(1, &["a@there.example", "b@there.example"]);
    foreign.needs.utf8 = true;
    let delivery = transact(&client, &plain(server.port), &foreign).await;
    assert_eq!(codes(&delivery), both('p', "5.6.7"));
    let mut envelope = envelope(1, &["a@there.example", "b@there.example"]);
    envelope.recipients[1].address = "b@there.example>\r\nRCPT TO:<c@there.example".to_owned();
    let delivery = transact(&client, &plain(server.port), &envelope).await;
    assert_eq!(codes(&delivery), [('a', String::new()), ('p', "5.1.3".into())]);
    assert_eq!(server.texts.lock().len(), 0);
}

#[tokio::test]
async fn a_damaged_text_is_not_completed() {
    let server = Scripted::start(polite()).await;
    let client = Client::new(client_options(server.roots.clone()));
    let envelope = envelope(1, &["a@there.example"]);
    let mut connection = client.connect(&plain(server.port)).await.unwrap();
    let damaged = tollgate_relay::queue::Text { checksum: 7, ..text(TEXT) };
    let recipients: Vec<_> = envelope.recipients.iter().collect();
    let times = client.options().timeouts.clone();
    let delivery = connection.transact(&envelope, &recipients, damaged, &times).await;
    assert_eq!(delivery.progress, Progress::BeforeDot);
    drop(connection);
    assert_eq!(server.texts.lock().len(), 0, "no dot was sent");
}

#[tokio::test]
async fn connections_are_reused_and_limited() {
    let server = Scripted::start(polite()).await;
    let client = Arc::new(Client::new(client_options(server.roots.clone())));
    let destination = plain(server.port);
    let envelope = envelope(1, &["a@there.example"]);
    for _ in 0..5 {
        assert_eq!(transact(&client, &destination, &envelope).await.progress, Progress::Answered);
    }
    assert_eq!(*server.connections.lock(), 1);
    let many = (0..20).map(|_| {
        let (client, destination, envelope) = (Arc::clone(&client), destination.clone(), envelope.clone());
        tokio::spawn(async move { transact(&client, &destination, &envelope).await })
    });
    for one in many.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap().progress, Progress::Answered);
    }
    assert_eq!(server.texts.lock().len(), 25);
    assert!(*server.connections.lock() <= 2, "two connections are the most");
}

/// Waits until the server has heard so many goodbyes.
async fn until_quit(server: &Scripted, times: usize) {
    let heard = || server.heard.lock().iter().filter(|line| *line == "QUIT").count();
    let waiting = async {
        while heard() < times {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(tollgate_testbed::PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{} of {times} QUIT", heard());
}

#[tokio::test]
async fn a_connection_carries_so_many_messages_and_ends_with_quit() {
    let server = Scripted::start(polite()).await;
    let options = ClientOptions { per_connection: 2, ..client_options(server.roots.clone()) };
    let client = Client::new(options);
    let envelope = envelope(1, &["a@there.example"]);
    for _ in 0..5 {
        let delivery = transact(&client, &plain(server.port), &envelope).await;
        assert_eq!(delivery.progress, Progress::Answered);
    }
    assert_eq!(*server.connections.lock(), 3, "two messages on each connection");
    until_quit(&server, 2).await;
    client.close().await;
    until_quit(&server, 3).await;
}

#[tokio::test]
async fn an_unused_connection_is_closed_with_quit_and_a_silent_server_is_not_waited_for() {
    for act in [Act::Say("221 bye\r\n"), Act::Hang] {
        let server = Scripted::start(with(&[("QUIT", act)])).await;
        let options =
            ClientOptions { idle: std::time::Duration::ZERO, ..client_options(server.roots.clone()) };
        let client = Client::new(options);
        let envelope = envelope(1, &["a@there.example"]);
        transact(&client, &plain(server.port), &envelope).await;
        client.close_idle();
        until_quit(&server, 1).await;
        transact(&client, &plain(server.port), &envelope).await;
        assert_eq!(*server.connections.lock(), 2, "the next message does not wait for the goodbye");
    }
}

#[tokio::test]
async fn logins_work_by_plain_and_login_and_are_refused_clearly() {
    let login = Some(Login { user: "me".to_owned(), password: "pässword".to_owned() });
    let offers = |text| ("EHLO", Act::Say(text));
    let plainly = with(&[
        offers("250-script.example\r\n250 AUTH PLAIN LOGIN\r\n"),
        ("AUTH PLAIN AG1lAHDDpHNzd29yZA==", Act::Say("235 2.7.0 welcome\r\n")),
        ("AUTH", Act::Say("535 5.7.8 wrong\r\n")),
    ]);
    let step_by_step = with(&[
        offers("250-script.example\r\n250 AUTH LOGIN\r\n"),
        ("AUTH LOGIN", Act::Say("334 VXNlcm5hbWU6\r\n")),
        ("bWU=", Act::Say("334 UGFzc3dvcmQ6\r\n")),
        ("cMOkc3N3b3Jk", Act::Say("235 2.7.0 welcome\r\n")),
    ]);
    for script in [plainly, step_by_step] {
        let server = Scripted::start(script).await;
        let client = Client::new(client_options(server.roots.clone()));
        let destination = Destination { login: login.clone(), ..plain(server.port) };
        client.connect(&destination).await.unwrap();
        let wrong = Some(Login { user: "me".to_owned(), password: "other".to_owned() });
        let printed = format!("{wrong:?}");
        assert!(!printed.contains("other"), "{printed}");
    }
    for (act, rest) in [("535 5.7.8 wrong\r\n", Rest::Login), ("454 4.7.0 later\r\n", Rest::Slow)] {
        let script = with(&[offers("250-s\r\n250 AUTH PLAIN\r\n"), ("AUTH", Act::Say(act))]);
        let server = Scripted::start(script).await;
        let client = Client::new(client_options(server.roots.clone()));
        let destination = Destination { login: login.clone(), ..plain(server.port) };
        let error = client.connect(&destination).await.unwrap_err();
        assert_eq!((error.stage, error.verdict), (Stage::Login, Some(Verdict::Rest(rest))), "{error}");
    }
}

#[tokio::test]
async fn tls_is_verified_and_required() {
    let secure = |port, host: &str, tls| Destination { host: host.to_owned(), port, tls, login: None };
    let starttls = || {
        with(&[
            ("EHLO", Act::Say("250-script.example\r\n250 STARTTLS\r\n")),
            ("STARTTLS", Act::Say("220 go\r\n")),
        ])
    };
    for (script, how, mode) in
        [(starttls(), Tls::No, TlsMode::StartTls), (polite(), Tls::Implicit, TlsMode::Implicit)]
    {
        let server = Scripted::start_with(script, how).await;
        let client = Client::new(client_options(server.roots.clone()));
        let envelope = envelope(1, &["a@there.example"]);
        let delivery = transact(&client, &secure(server.port, "localhost", mode), &envelope).await;
        assert_eq!(delivery.progress, Progress::Answered);
        let stranger = client.connect(&secure(server.port, "127.0.0.1", mode)).await.unwrap_err();
        assert_eq!(stranger.stage, Stage::Tls, "the certificate is for localhost");
        let untrusting = Client::new(client_options(rustls::RootCertStore::empty()));
        let error = untrusting.connect(&secure(server.port, "localhost", mode)).await.unwrap_err();
        assert_eq!(error.stage, Stage::Tls);
    }
    let server = Scripted::start(polite()).await;
    let client = Client::new(client_options(server.roots.clone()));
    let error = client.connect(&secure(server.port, "localhost", TlsMode::StartTls)).await.unwrap_err();
    assert!(error.reason.contains("does not offer STARTTLS"), "{error}");
    let injected = with(&[
        ("EHLO", Act::Say("250-script.example\r\n250 STARTTLS\r\n")),
        ("STARTTLS", Act::Say("220 go\r\n250-injected\r\n250 AUTH PLAIN\r\n")),
    ]);
    let server = Scripted::start(injected).await;
    let client = Client::new(client_options(server.roots.clone()));
    let error = client.connect(&secure(server.port, "localhost", TlsMode::StartTls)).await.unwrap_err();
    assert!(error.reason.contains("between"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_get_ready_is_named() {
    for (word, act, stage, refused) in [
        ("GREETING", Act::Say("421 4.7.0 too many connections\r\n"), Stage::Greeting, true),
        ("GREETING", Act::Drop, Stage::Greeting, false),
        ("EHLO", Act::Hang, Stage::Hello, false),
    ] {
        let server = Scripted::start(with(&[(word, act)])).await;
        let client = Client::new(client_options(server.roots.clone()));
        let error = client.connect(&plain(server.port)).await.unwrap_err();
        assert_eq!((error.stage, error.verdict.is_some()), (stage, refused), "{error}");
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let client = Client::new(client_options(rustls::RootCertStore::empty()));
    assert_eq!(client.connect(&plain(port)).await.unwrap_err().stage, Stage::Connect);
}
