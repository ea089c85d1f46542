//! A real Postfix asks the real program: the lines of the guide's `main.cf` do what the guide says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use crate::mail::Client;
use crate::pages::Page;
use crate::program::{Home, Server, wait_until};
use crate::server::root;
use rustix::process::Signal;
use tollgate_testbed::{Postfix, Sink};

const DOOR: &str = "
log: { format: json }
store: { file: ./tollgate.redb }
listen: { postfix: 127.0.0.1:0 }
postfix: { policy: mail.accept, contexts: { submission: mail.submit } }
policies: { mail.accept: [sender], mail.submit: [ip] }
";

/// Five messages an hour by sender, and two by address for requests with a context.
fn five_an_hour() -> String {
    format!("{DOOR}rules: {{ sender: {{ by: sender, limits: 5/hour }}, ip: {{ by: ip, limits: 2/hour }} }}\n")
}

/// The block of the guide that contains these words, for the port or socket of a test.
fn main_cf(words: &[&str], address: &str) -> String {
    let blocks = Page::at("docs/guides/postfix.md").blocks();
    let fits = |text: &str| words.iter().all(|word| text.contains(word));
    let mut found = blocks.iter().filter(|block| block.language == "postfix" && fits(&block.text));
    let block = found.next().unwrap_or_else(|| panic!("no block has {words:?}"));
    assert!(found.next().is_none(), "several blocks have {words:?}");
    let text = &block.text;
    assert!(text.contains("inet:127.0.0.1:10031") || text.contains("unix:tollgate/policy"), "{text}");
    text.replace("inet:127.0.0.1:10031", address).replace("unix:tollgate/policy", address)
}

/// A Postfix with a block of the guide, in front of a sink.
fn postfix(sink: &Sink, words: &[&str], address: &str) -> Postfix {
    Postfix::start_with(sink.port(), &main_cf(words, address))
}

fn door(server: &Server) -> String {
    format!("inet:{}", server.policy_door.unwrap())
}

fn address(postfix: &Postfix) -> SocketAddr {
    ([127, 0, 0, 1], postfix.port()).into()
}

/// Sends a message in a session of its own; returns the last reply.
fn send(postfix: &Postfix, sender: &str, recipients: &[&str]) -> String {
    send_in(&mut Client::greeted(address(postfix)).unwrap(), sender, recipients)
}

/// Sends a message; returns the reply to it, or the first that refuses it.
fn send_in(client: &mut Client, sender: &str, recipients: &[&str]) -> String {
    let mut commands = vec![format!("MAIL FROM:<{sender}>")];
    commands.extend(recipients.iter().map(|recipient| format!("RCPT TO:<{recipient}>")));
    commands.extend(["DATA".to_owned(), "Subject: test\r\n\r\ntext\r\n.".to_owned()]);
    let mut last = String::new();
    for command in commands {
        last = client.ask(&command).unwrap();
        if !last.starts_with('2') && !last.starts_with('3') {
            client.ask("RSET").unwrap();
            break;
        }
    }
    last
}

fn is_accepted(reply: &str) -> bool {
    reply.starts_with("250 2.0.0 Ok: queued as ")
}

const AT_DATA: [&str; 1] = ["smtpd_data_restrictions = check_policy_service inet:127.0.0.1:10031"];

const AT_RCPT: [&str; 1] = ["check_policy_service inet:127.0.0.1:10031,\n    permit_mynetworks"];

#[test]
fn the_sixth_message_of_a_sender_gets_4xx_and_nothing_is_lost() {
    let sink = Sink::start();
    let home = Home::with(&five_an_hour()).with_moved_clock();
    let server = home.start();
    let postfix = postfix(&sink, &AT_DATA, &door(&server));
    // One after the other in one session, as a mailing program does: each is a message of its own.
    let mut client = Client::greeted(address(&postfix)).unwrap();
    for _ in 0..5 {
        let reply = send_in(&mut client, "app@here.test", &["someone@there.example"]);
        assert!(is_accepted(&reply), "{reply}");
    }
    let refused = send_in(&mut client, "app@here.test", &["someone@there.example"]);
    let expected = "450 4.7.1 <DATA>: Data command rejected: Rate limit exceeded: sender app@here.test, 5/hour; try again in ";
    assert!(refused.starts_with(expected), "{refused}");
    let (seconds, id) = refused.strip_prefix(expected).unwrap().split_once(" s (").unwrap();
    assert!((3_500..=3_600).contains(&seconds.parse::<u32>().unwrap()), "{refused}");
    // The log names the refusal by the queue id, which is in Postfix's log too.
    let id = id.strip_suffix(')').unwrap();
    wait_until("Postfix logs the queue id", || postfix.log().contains(id));
    server.wait_for_log(id);
    let decisions = server.get("/api/v1/decisions").text().to_owned();
    assert!(decisions.contains(id), "{decisions}");
    // Other senders, and bounces, are not affected.
    assert!(is_accepted(&send_in(&mut client, "other@here.test", &["someone@there.example"])));
    assert!(is_accepted(&send_in(&mut client, "", &["someone@there.example"])));
    wait_until("all that was accepted arrives", || sink.count() == 7);
    let metrics = server.get("/metrics").text().to_owned();
    assert!(metrics.contains(r#"tollgate_postfix_requests_total{action="dunno"} 7"#), "{metrics}");
    assert!(metrics.contains(r#"tollgate_postfix_requests_total{action="defer"} 1"#), "{metrics}");
    // An hour later the client's next try succeeds.
    home.shift_clock(3_601);
    wait_until("the hour is over", || server.remaining("sender", "app@here.test") == 5);
    assert!(is_accepted(&send(&postfix, "app@here.test", &["someone@there.example"])));
    wait_until("the deferred message arrives", || sink.count() == 8);
    server.stop();
}

#[test]
fn a_session_that_resets_its_messages_is_not_taken_for_a_repeated_request() {
    let sink = Sink::start();
    let home = Home::with(&five_an_hour());
    let server = home.start();
    let postfix = postfix(&sink, &AT_RCPT, &door(&server));
    let mut client = Client::greeted(address(&postfix)).unwrap();
    let mut replies = Vec::new();
    for _ in 0..6 {
        client.ask("MAIL FROM:<app@here.test>").unwrap();
        replies.push(client.ask("RCPT TO:<someone@there.example>").unwrap());
        client.ask("RSET").unwrap();
    }
    assert!(replies[..5].iter().all(|reply| reply.starts_with("250 ")), "{replies:?}");
    assert!(
        replies[5].starts_with("450 4.7.1 <someone@there.example>: Recipient address rejected: Rate limit"),
        "{replies:?}"
    );
    server.stop();
}

/// Passes connections on to the door, and loses the first answer. Returns where it listens.
fn losing_the_first_answer(door: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (mut client, mut door) = (client.unwrap(), TcpStream::connect(door).unwrap());
            let mut bytes = [0; 64 * 1024];
            while let Ok(length @ 1..) = client.read(&mut bytes) {
                door.write_all(&bytes[..length]).unwrap();
                if bytes[..length].ends_with(b"\n\n") {
                    let length = door.read(&mut bytes).unwrap();
                    if number == 0 {
                        break;
                    }
                    client.write_all(&bytes[..length]).unwrap();
                }
            }
        }
    });
    address
}

#[test]
fn a_request_whose_answer_was_lost_counts_once() {
    let sink = Sink::start();
    let home = Home::with(&five_an_hour());
    let server = home.start();
    let between = losing_the_first_answer(server.policy_door.unwrap());
    let postfix = postfix(&sink, &AT_DATA, &format!("inet:{between}"));
    assert!(is_accepted(&send(&postfix, "app@here.test", &["someone@there.example"])));
    assert_eq!(server.remaining("sender", "app@here.test"), 4);
    let metrics = server.get("/metrics").text().to_owned();
    assert!(metrics.contains("tollgate_postfix_repeated_total 1"), "{metrics}");
    server.stop();
}

#[test]
fn each_recipient_counts_at_rcpt_and_each_message_at_the_end_of_its_text() {
    let sink = Sink::start();
    let config = five_an_hour().replace("5/hour", "[5/hour], count: recipients");
    let home = Home::with(&config);
    let server = home.start();
    let at_rcpt = postfix(&sink, &AT_RCPT, &door(&server));
    assert!(is_accepted(&send(&at_rcpt, "a@here.test", &["1@there.example", "2@there.example"])));
    assert_eq!(server.remaining("sender", "a@here.test"), 3);
    wait_until("the first message arrives", || sink.count() == 1);
    drop(at_rcpt);
    let at_end = postfix(&sink, &["smtpd_end_of_data_restrictions"], &door(&server));
    assert!(is_accepted(&send(&at_end, "b@here.test", &["1@there.example", "2@there.example"])));
    assert_eq!(server.remaining("sender", "b@here.test"), 3);
    let four = ["1@there.example", "2@there.example", "3@there.example", "4@there.example"];
    let reply = send(&at_end, "b@here.test", &four);
    assert!(
        reply.starts_with("450 4.7.1 <END-OF-MESSAGE>: End-of-data rejected: Rate limit exceeded"),
        "{reply}"
    );
    assert_eq!(server.remaining("sender", "b@here.test"), 3);
    wait_until("the second one arrives", || sink.count() == 2);
    server.stop();
}

#[test]
fn behind_permit_mynetworks_the_check_is_never_reached() {
    let sink = Sink::start();
    let home = Home::with(&five_an_hour());
    let server = home.start();
    let trapped = postfix(
        &sink,
        &["permit_mynetworks,\n    reject_unauth_destination,\n    check_policy_service"],
        &door(&server),
    );
    for _ in 0..7 {
        assert!(is_accepted(&send(&trapped, "app@here.test", &["someone@there.example"])));
    }
    assert_eq!(server.remaining("sender", "app@here.test"), 5);
    server.stop();
}

#[test]
fn a_context_chooses_its_policy() {
    let sink = Sink::start();
    let home = Home::with(&five_an_hour());
    let server = home.start();
    let postfix = postfix(&sink, &["policy_context=submission"], &door(&server));
    assert!(is_accepted(&send(&postfix, "a@here.test", &["someone@there.example"])));
    assert!(is_accepted(&send(&postfix, "b@here.test", &["someone@there.example"])));
    let reply = send(&postfix, "c@here.test", &["someone@there.example"]);
    assert!(reply.contains("Rate limit exceeded: ip 127.0.0.1, 2/hour"), "{reply}");
    // A reload applies to connections that Postfix keeps open.
    home.configure(&five_an_hour().replace("submission: mail.submit", "other: mail.submit"));
    server.signal(Signal::HUP);
    server.wait_for_log("the configuration was reloaded");
    assert!(is_accepted(&send(&postfix, "c@here.test", &["someone@there.example"])));
    assert_eq!(server.remaining("sender", "c@here.test"), 4);
    server.stop();
}

/// A home with a Unix socket that the users of Postfix can reach.
fn socket_home() -> (Home, String) {
    let home = Home::empty();
    fs::set_permissions(home.directory(), fs::Permissions::from_mode(0o711)).unwrap();
    let socket = format!("unix:{}", home.path("policy").display());
    home.configure(&five_an_hour().replace("127.0.0.1:0", &socket));
    (home, socket)
}

#[test]
fn without_tollgate_postfix_does_what_default_action_says() {
    let (home, socket) = socket_home();
    let server = home.start();
    let sink = Sink::start();
    let closed = postfix(&sink, &["unix:tollgate/policy"], &socket);
    let open = postfix(&sink, &["default_action=DUNNO"], &socket);
    assert!(is_accepted(&send(&closed, "app@here.test", &["someone@there.example"])));
    assert!(is_accepted(&send(&open, "app@here.test", &["someone@there.example"])));
    assert_eq!(server.remaining("sender", "app@here.test"), 3);
    server.stop();
    assert!(!home.path("policy").exists(), "an orderly end removes the socket");
    let reply = send(&closed, "app@here.test", &["someone@there.example"]);
    assert!(
        reply.starts_with("451 4.3.5 <DATA>: Data command rejected: Server configuration problem"),
        "{reply}"
    );
    assert!(is_accepted(&send(&open, "app@here.test", &["someone@there.example"])));
    // After a restart limits hold again, and the one that was deferred is accepted.
    let server = home.start();
    assert!(is_accepted(&send(&closed, "app@here.test", &["someone@there.example"])));
    assert_eq!(server.remaining("sender", "app@here.test"), 2);
    // A crash leaves the socket behind; the next start replaces it.
    server.end_by(Signal::KILL);
    assert!(home.path("policy").exists());
    let server = home.start();
    assert!(is_accepted(&send(&closed, "app@here.test", &["someone@there.example"])));
    wait_until("all that was accepted arrives", || sink.count() == 5);
    server.stop();
}

#[test]
fn a_path_in_use_and_a_file_that_is_no_socket_stop_the_start() {
    let (home, _) = socket_home();
    let home = home.variable("TOLLGATE__STORE", "memory");
    let server = home.start();
    let refused = home.refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("another program listens there already"), "{said}");
    server.stop();
    fs::write(home.path("policy"), "precious").unwrap();
    let refused = home.refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("there is a file that is not a socket; remove it, or name another path"), "{said}");
    assert_eq!(fs::read_to_string(home.path("policy")).unwrap(), "precious");
}

#[test]
fn the_example_limits_senders_and_logins_apart() {
    let example = fs::read_to_string(format!("{}/examples/postfix.yaml", root().display())).unwrap();
    let example = example.replace("http: 127.0.0.1:8080, postfix: 127.0.0.1:10031", "postfix: 127.0.0.1:0");
    let home = Home::with(&example);
    let server = home.start();
    let mut door = TcpStream::connect(server.policy_door.unwrap()).unwrap();
    let mut ask = |more: &str, number: u32| {
        let request = format!(
            "request=smtpd_access_policy\nprotocol_state=DATA\nsender=a@here.test\nclient_address=192.0.2.7\n\
             recipient_count=1\ninstance=1.{number}\n{more}\n\n"
        );
        door.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 1_024];
        let length = door.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    for number in 0..100 {
        assert_eq!(ask("x=", number), "action=DUNNO\n\n");
    }
    assert!(ask("x=", 100).contains("sender a@here.test, 100/hour"));
    let submission = "policy_context=submission\nsasl_username=anna";
    assert_eq!(ask(submission, 101), "action=DUNNO\n\n");
    assert_eq!(server.remaining("user", "anna"), 199);
    server.stop();
}

#[test]
fn bad_input_gets_one_action_and_costs_nothing() {
    let home = Home::with(&five_an_hour());
    let server = home.start();
    let good = "request=smtpd_access_policy\nprotocol_state=DATA\nsender=a@here.test\ninstance=1\n\n";
    for bad in [
        "\n".to_owned(),
        "EHLO client.test\r\n\n\n".to_owned(),
        format!("request=smtpd_access_policy\n{}\n", "a=b\n".repeat(10_000)),
        "action=OK\n".repeat(100_000),
    ] {
        let mut client = TcpStream::connect(server.policy_door.unwrap()).unwrap();
        let _ = client.write_all(format!("{bad}{good}").as_bytes());
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert_eq!(said, "action=DEFER_IF_PERMIT 4.3.0 Malformed policy request\n\n", "{bad:.40}");
    }
    assert_eq!(server.remaining("sender", "a@here.test"), 5);
    let metrics = server.get("/metrics").text().to_owned();
    assert!(metrics.contains(r#"tollgate_postfix_requests_total{action="malformed"} 4"#), "{metrics}");
    server.stop();
}
