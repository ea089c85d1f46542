//! The door over connections in memory and over a Unix socket, with an engine and a clock of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep};
use tollgate_core::{Clock, Limit, OnOutage, Policies, Policy, Records, Rule, Span, Store, Timestamp};
use tollgate_engine::{Admissions, Engine, Fallback, Leases, Parts};
use tollgate_postfix::{PolicyAddress, PolicyParts, PolicyServer, PolicySettings};
use tollgate_store::faulty::{Call, FaultyStore, Meeting};
use tollgate_store::{ManualClock, MemoryStore};

const START: Timestamp = Timestamp::from_micros(1_794_774_600_000_000);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DUNNO: &str = "action=DUNNO\n\n";

struct Site {
    server: PolicyServer,
    clock: Arc<ManualClock>,
}

fn rule(name: &str, by: &[&str], limit: &str) -> Rule {
    Rule::new(name, by, vec![limit.parse::<Limit>().unwrap()]).unwrap()
}

fn counting(field: &str, rule: Rule) -> Rule {
    Rule { count: Some(field.into()), ..rule }
}

/// A policy of the same name for each rule, and all rules together in `mail`.
fn policies(rules: Vec<Rule>) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let mut made: Vec<Policy> = rules
        .iter()
        .map(|rule| Policy::new(format!("only.{}", rule.name).as_str().into(), vec![Arc::clone(rule)], false))
        .collect();
    made.push(Policy::new("mail".into(), rules.clone(), false));
    Policies::new(true, rules, made)
}

fn settings() -> PolicySettings {
    PolicySettings {
        policy: "mail".into(),
        contexts: BTreeMap::new(),
        ports: BTreeMap::new(),
        max_connections: 100,
    }
}

async fn site(rules: Vec<Rule>) -> Site {
    site_with(rules, settings(), false).await
}

async fn site_with(rules: Vec<Rule>, settings: PolicySettings, is_down: bool) -> Site {
    let clock = Arc::new(ManualClock::at(START));
    let memory = || Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 1_000));
    let records = memory() as Arc<dyn Records>;
    let down = |call: Call<'_>| match call {
        Call::Probe => Meeting::Pass,
        _ => Meeting::unreachable(),
    };
    let store: Arc<dyn Store> =
        if is_down { Arc::new(FaultyStore::over(memory(), down)) } else { memory() as Arc<dyn Store> };
    let fallback = is_down.then(|| Fallback {
        store: memory(),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        probe_every: Span::from_secs(10),
    });
    let engine = Engine::start(policies(rules), Parts { store, records, fallback }).await.unwrap();
    let engine = Arc::new(engine);
    let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::clone(&clock) as Arc<dyn Clock>));
    let admissions = Admissions { engine, pacer: None, leases };
    let parts = PolicyParts { admissions, clock: Arc::clone(&clock) as Arc<dyn Clock> };
    Site { server: PolicyServer::new(settings, parts), clock }
}

impl Site {
    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(256 * 1024);
        self.server.start(theirs, Some(PEER));
        ours
    }

    /// Asks on a connection of its own.
    async fn ask(&self, request: &str) -> String {
        ask(&mut self.connect(), request).await
    }
}

/// A request at `RCPT` from a sender, as the numbered message.
fn rcpt(sender: &str, message: u32) -> String {
    format!(
        "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\nclient_address=192.0.2.7\n\
         client_name=unknown\nhelo_name=client.test\nsender={sender}\nrecipient=b@there.test\n\
         recipient_count=0\nsize=0\ninstance=1f.6a.{message:x}.0\nqueue_id=\nunheard_of=\n\n"
    )
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S, request: &str) -> String {
    client.write_all(request.as_bytes()).await.unwrap();
    answer(client).await
}

async fn answer<S: AsyncRead + Unpin>(client: &mut S) -> String {
    let mut said = Vec::new();
    while !said.ends_with(b"\n\n") {
        said.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(said).unwrap()
}

/// Everything that comes until the connection is closed.
async fn rest(client: &mut DuplexStream) -> String {
    let mut said = String::new();
    client.read_to_string(&mut said).await.unwrap();
    said
}

#[tokio::test(start_paused = true)]
async fn the_sixth_message_of_a_sender_is_deferred_with_the_rule_and_the_seconds() {
    let site = site(vec![rule("sender", &["sender"], "5/hour")]).await;
    let mut client = site.connect();
    for message in 0..5 {
        assert_eq!(ask(&mut client, &rcpt("a@here.test", message)).await, DUNNO);
    }
    site.clock.advance(Span::from_secs(600));
    let deferred = "action=DEFER_IF_PERMIT 4.7.1 Rate limit exceeded: sender a@here.test, 5/hour; \
                    try again in 3000 s (1f.6a.5.0)\n\n";
    assert_eq!(ask(&mut client, &rcpt("A@HERE.test", 5)).await, deferred);
    assert_eq!(ask(&mut client, &rcpt("other@here.test", 6)).await, DUNNO);
    site.clock.advance(Span::from_secs(3_000));
    assert_eq!(ask(&mut client, &rcpt("a@here.test", 8)).await, DUNNO);
}

#[tokio::test(start_paused = true)]
async fn the_null_sender_of_a_user_is_counted_and_reports_of_other_servers_are_not() {
    for (field, key) in
        [("sender", "null-sender@app.user.null-sender.invalid"), ("domain", "app.user.null-sender.invalid")]
    {
        let site = site(vec![rule(field, &[field], "2/hour")]).await;
        let of_user =
            |user: &str, message| rcpt("", message).replace("\n\n", &format!("\nsasl_username={user}\n\n"));
        for message in 0..2 {
            assert_eq!(site.ask(&of_user("app", message)).await, DUNNO);
        }
        let denied = site.ask(&of_user("app", 2)).await;
        assert!(denied.contains(&format!("Rate limit exceeded: {field} {key}, 2/hour")), "{denied}");
        assert_eq!(site.ask(&of_user("other", 3)).await, DUNNO);
        for message in 4..9 {
            assert_eq!(site.ask(&rcpt("", message)).await, DUNNO);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_counts_once_even_on_another_connection() {
    let site = site(vec![rule("sender", &["sender"], "2/hour")]).await;
    let (first, second) = (rcpt("a@here.test", 1), rcpt("a@here.test", 2));
    for _ in 0..3 {
        assert_eq!(site.ask(&first).await, DUNNO);
    }
    // Another recipient, and another state, are other requests.
    assert_eq!(site.ask(&first.replace("b@there.test", "c@there.test")).await, DUNNO);
    let denied = site.ask(&first.replace("RCPT", "DATA")).await;
    assert!(denied.starts_with("action=DEFER_IF_PERMIT 4.7.1 "), "{denied}");
    // A deferred request is decided again; an allowed one stays allowed.
    assert!(site.ask(&second).await.contains("DEFER"));
    assert_eq!(site.ask(&first).await, DUNNO);
    site.clock.advance(Span::from_secs(3_600));
    assert_eq!(site.ask(&second).await, DUNNO);
    // Without an instance nothing tells two requests apart.
    let nameless = second.replace("instance=1f.6a.2.0\n", "");
    assert_eq!(site.ask(&nameless).await, DUNNO);
    assert!(site.ask(&nameless).await.contains("DEFER"));
}

#[tokio::test(start_paused = true)]
async fn recipients_and_bytes_are_counted_from_the_attributes() {
    let rules = vec![
        counting("recipients", rule("recipients", &["ip"], "10/hour")),
        counting("bytes", rule("bytes", &["ip"], "10000/hour")),
    ];
    let site = site(rules).await;
    let at_data = |message: u32, recipients: u32, size: u32| {
        let count = format!("recipient_count={recipients}");
        let size = format!("size={size}");
        rcpt("a@here.test", message)
            .replace("RCPT", "END-OF-MESSAGE")
            .replace("recipient_count=0", &count)
            .replace("size=0", &size)
    };
    assert_eq!(site.ask(&at_data(1, 4, 6_000)).await, DUNNO);
    // A request about one recipient counts one.
    assert_eq!(site.ask(&rcpt("a@here.test", 2)).await, DUNNO);
    let said = site.ask(&at_data(3, 6, 10)).await;
    assert!(
        said.contains("Rate limit exceeded: recipients 192.0.2.7, 10/hour; try again in 3600 s"),
        "{said}"
    );
    let said = site.ask(&at_data(4, 1, 4_001)).await;
    assert!(said.contains("Rate limit exceeded: bytes 192.0.2.7, 10000/hour"), "{said}");
    assert_eq!(site.ask(&at_data(5, 5, 4_000)).await, DUNNO);
    let said = site.ask(&at_data(6, 11, 0)).await;
    assert!(
        said.starts_with("action=DEFER_IF_PERMIT 4.5.3 Too many recipients: recipients 192.0.2.7"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_context_chooses_the_policy_then_the_port() {
    let rules = vec![
        rule("sender", &["sender"], "1/hour"),
        rule("user", &["user"], "1/hour"),
        rule("ip", &["ip"], "1/hour"),
    ];
    let settings = PolicySettings {
        contexts: BTreeMap::from([("submission".to_owned(), "only.user".into())]),
        ports: BTreeMap::from([(587, "only.ip".into())]),
        policy: "only.sender".into(),
        max_connections: 100,
    };
    let site = site_with(rules, settings, false).await;
    let named = |more: &str, message: u32| rcpt("a@here.test", message).replace("unheard_of=", more);
    let denied_by = async |more: &str, message: u32| {
        assert_eq!(site.ask(&named(more, message)).await, DUNNO, "{more}");
        site.ask(&named(more, message + 1)).await
    };
    let submission = "sasl_username=anna\npolicy_context=submission\nserver_port=587";
    assert!(denied_by(submission, 1).await.contains("user anna, 1/hour"));
    assert!(denied_by("server_port=587\npolicy_context=other", 3).await.contains("ip 192.0.2.7, 1/hour"));
    assert!(denied_by("server_port=25", 5).await.contains("sender a@here.test, 1/hour"));
    // Also on open connections.
    let mut client = site.connect();
    assert!(ask(&mut client, &named("server_port=25", 7)).await.contains("DEFER"));
    site.server.reload(PolicySettings { policy: "gone".into(), ..self::settings() });
    let said = ask(&mut client, &named("server_port=25", 8)).await;
    assert_eq!(said, "action=DEFER_IF_PERMIT 4.3.5 Server configuration problem (1f.6a.8.0)\n\n");
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_each_rule_follows_on_outage() {
    for (on_outage, expected) in [
        (OnOutage::Allow, DUNNO),
        (OnOutage::Deny, "action=DEFER_IF_PERMIT 4.3.0 Temporary failure (1f.6a.1.0)\n\n"),
    ] {
        let rules = vec![Rule { on_outage, ..rule("sender", &["sender"], "1/hour") }];
        let site = site_with(rules, settings(), true).await;
        assert_eq!(site.ask(&rcpt("a@here.test", 1)).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_cannot_be_counted_does_not_pass_its_limit() {
    let site = site(vec![rule("sender", &["sender"], "1/hour")]).await;
    for sender in
        ["nobody", "a\u{200b}b@here.test", &format!("{}@here.test", "x".repeat(2_000)), "a@here..test\x07"]
    {
        let said = site.ask(&rcpt(sender, 1)).await;
        assert!(said.starts_with("action=DEFER_IF_PERMIT 4.7.1 Cannot be counted: "), "{said}");
        assert_eq!(said.matches('\n').count(), 2, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_smtp_quotes_is_counted_though_postfix_sends_it_without_quotes() {
    for sender in ["a b@here.test", "a..b@here.test", "a@b@here.test", r#"a"b\c@here.test"#, ".@here.test"] {
        let site = site(vec![rule("sender", &["sender"], "1/hour")]).await;
        assert_eq!(site.ask(&rcpt(sender, 1)).await, DUNNO, "{sender}");
        let said = site.ask(&rcpt(sender, 2)).await;
        assert!(said.starts_with("action=DEFER_IF_PERMIT 4.7.1 Rate limit exceeded: sender \""), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn byte_by_byte_and_fifty_at_once_each_request_gets_one_action() {
    let site = site(vec![rule("sender", &["sender"], "50/hour")]).await;
    let mut client = site.connect();
    for byte in rcpt("a@here.test", 0).bytes() {
        client.write_all(&[byte]).await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(answer(&mut client).await, DUNNO);
    let many: String = (1..=50).map(|message| rcpt("a@here.test", message)).collect();
    client.write_all(many.as_bytes()).await.unwrap();
    for _ in 1..50 {
        assert_eq!(answer(&mut client).await, DUNNO);
    }
    assert!(answer(&mut client).await.starts_with("action=DEFER_IF_PERMIT"));
    drop(client.shutdown().await);
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_looks_like_an_answer_is_only_a_value() {
    let site = site(vec![rule("helo", &["helo"], "1/hour")]).await;
    let request = rcpt("action=OK", 1).replace("client.test", "x\raction=OK\r");
    assert_eq!(site.ask(&request).await, DUNNO);
    let said = site.ask(&request.replace("1f.6a", "2f.action=OK")).await;
    assert!(
        said.starts_with("action=DEFER_IF_PERMIT 4.7.1 Rate limit exceeded: helo x?action=OK?,"),
        "{said:?}"
    );
    assert_eq!(said.lines().filter(|line| line.starts_with("action=")).count(), 1);
    assert!(said.ends_with("\n\n") && said.matches('\n').count() == 2);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_request_is_deferred_once_and_the_connection_closed() {
    let site = site(vec![rule("sender", &["sender"], "1/hour")]).await;
    let good = rcpt("a@here.test", 1);
    for bad in [
        "\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n\n\n",
        "request=smtpd_access_policy\nsize=many\n\n",
        &format!("request=smtpd_access_policy\n{}\n", "a=b\n".repeat(10_000)),
        &"x".repeat(100_000),
    ] {
        let mut client = site.connect();
        client.write_all(format!("{bad}{good}{good}").as_bytes()).await.unwrap();
        assert_eq!(
            rest(&mut client).await,
            "action=DEFER_IF_PERMIT 4.3.0 Malformed policy request\n\n",
            "{bad:.40}"
        );
    }
    assert_eq!(site.ask(&good).await, DUNNO, "nothing behind a malformed request was counted");
}

#[tokio::test(start_paused = true)]
async fn slow_and_idle_connections_are_closed() {
    let site = site(vec![rule("sender", &["sender"], "1/hour")]).await;
    let (mut partial, mut idle) = (site.connect(), site.connect());
    let request = rcpt("a@here.test", 1);
    partial.write_all(request.trim_end().as_bytes()).await.unwrap();
    let start = Instant::now();
    // A byte now and then does not buy more time.
    while start.elapsed() < Duration::from_secs(22) {
        sleep(Duration::from_secs(3)).await;
        partial.write_all(b"x").await.unwrap();
    }
    assert_eq!(rest(&mut partial).await, "");
    assert!((25..=31).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(ask(&mut idle, &request).await, DUNNO);
    let start = Instant::now();
    assert_eq!(rest(&mut idle).await, "");
    assert!((590..=606).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_answers_is_disconnected() {
    let site = site(vec![rule("sender", &["sender"], "1/hour")]).await;
    let (mut ours, theirs) = duplex(1_024);
    site.server.start(theirs, Some(PEER));
    let many = rcpt("a@here.test", 1).repeat(200);
    let start = Instant::now();
    assert!(ours.write_all(many.as_bytes()).await.is_err());
    assert!(start.elapsed() <= Duration::from_secs(11), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_max_connections_are_closed() {
    let settings = PolicySettings { max_connections: 2, ..settings() };
    let site = site_with(vec![rule("sender", &["sender"], "9/hour")], settings, false).await;
    let (mut first, second) = (site.connect(), site.connect());
    assert_eq!(rest(&mut site.connect()).await, "");
    assert_eq!(ask(&mut first, &rcpt("a@here.test", 1)).await, DUNNO);
    drop(second);
    tokio::task::yield_now().await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(site.ask(&rcpt("a@here.test", 2)).await, DUNNO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_requests_that_have_begun() {
    let site = site(vec![rule("sender", &["sender"], "9/hour")]).await;
    let (mut idle, mut begun) = (site.connect(), site.connect());
    let request = rcpt("a@here.test", 1);
    let (head, tail) = request.split_at(40);
    assert_eq!(ask(&mut idle, &request).await, DUNNO);
    begun.write_all(head.as_bytes()).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let start = Instant::now();
    let server = site.server.clone();
    let ending = tokio::spawn(async move { server.end(Duration::from_secs(10)).await });
    assert_eq!(rest(&mut idle).await, "");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(ask(&mut begun, tail).await, DUNNO);
    assert_eq!(rest(&mut begun).await, "");
    ending.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_unix_socket_is_a_listener_like_any_other() {
    let site = site(vec![rule("sender", &["sender"], "9/hour")]).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy");
    let address = PolicyAddress::Unix(path.clone());
    assert_eq!(site.server.listen(&address).await.unwrap(), address);
    let mut client = UnixStream::connect(&path).await.unwrap();
    assert_eq!(ask(&mut client, &rcpt("a@here.test", 1)).await, DUNNO);
    site.server.end(Duration::from_secs(10)).await;
    while path.exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_thousand_idle_connections_do_not_delay_an_active_one() {
    let settings = PolicySettings { max_connections: 1_001, ..settings() };
    let site = site_with(vec![rule("sender", &["sender"], "2000/hour")], settings, false).await;
    let PolicyAddress::Tcp(address) =
        site.server.listen(&PolicyAddress::Tcp(([127, 0, 0, 1], 0).into())).await.unwrap()
    else {
        panic!("it was asked for a port")
    };
    let mut idle = Vec::new();
    for number in 0..1_000 {
        let mut client = TcpStream::connect(address).await.unwrap();
        // Half of them have begun a request.
        if number % 2 == 0 {
            client.write_all(b"request=smtpd_access_policy\n").await.unwrap();
        }
        idle.push(client);
    }
    let mut active = TcpStream::connect(address).await.unwrap();
    for message in 0..100 {
        assert_eq!(ask(&mut active, &rcpt("a@here.test", message)).await, DUNNO);
    }
    for (number, client) in (100..).zip(&mut idle) {
        let request = rcpt("a@here.test", number);
        let rest = if number % 2 == 0 { &request[28..] } else { &request };
        assert_eq!(ask(client, rest).await, DUNNO, "connection {number}");
    }
}

#[tokio::test]
async fn a_line_of_a_megabyte_gets_its_action_over_a_real_socket() {
    let site = site(vec![rule("sender", &["sender"], "1/hour")]).await;
    let PolicyAddress::Tcp(address) =
        site.server.listen(&PolicyAddress::Tcp(([127, 0, 0, 1], 0).into())).await.unwrap()
    else {
        panic!("it was asked for a port")
    };
    let mut client = TcpStream::connect(address).await.unwrap();
    let line = format!("request=smtpd_access_policy\nhelo_name={}\n\n", "x".repeat(1 << 20));
    // The door may stop reading before everything is sent.
    let _ = client.write_all(line.as_bytes()).await;
    let mut said = String::new();
    client.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "action=DEFER_IF_PERMIT 4.3.0 Malformed policy request\n\n");
    assert_eq!(site.ask(&rcpt("a@here.test", 1)).await, DUNNO);
}
