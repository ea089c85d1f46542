//! A message of 50 MB through the real program, over SMTP and over HTTP: it is streamed into the queue and out of it, and
//! memory stays bounded.
//!
//! `TOLLGATE_LONG=1` uploads it for longer than a request may take that is no upload.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use crate::mail::{Client, home, submit};
use crate::program::{Home, Server, now, pause, wait_until};
use tollgate_testbed::Sink;

const SIZE: u64 = 50_000_000;
/// How much more memory the program may need: buffers and the cache of the queue, not the message.
const MOST_GROWTH: u64 = 32 << 20;

/// Writes a message of this size.
fn write_message(path: &Path) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    write!(file, "From: app@here.test\r\nTo: someone@there.test\r\nSubject: large\r\n\r\n").unwrap();
    let line = [b'x'; 998];
    for _ in 0..SIZE / 1_000 {
        file.write_all(&line).unwrap();
        file.write_all(b"\r\n").unwrap();
    }
    file.flush().unwrap();
}

/// The most memory that the program had so far, in bytes.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Uploads the message with curl. `pace` are further options.
fn upload(home: &Home, server: &Server, pace: &[&str]) -> String {
    let url = match pace.first() {
        Some(&"smtp") => format!("smtp://{}", server.relays[0]),
        _ => format!("{}/api/v1/messages", server.url()),
    };
    let mut curl = Command::new("curl");
    curl.current_dir(home.directory()).args(["-sS", "--max-time", "300", &url]);
    if url.starts_with("smtp") {
        curl.args(["--mail-from", "app@here.test", "--mail-rcpt", "someone@there.test", "-T", "large.eml"]);
    } else {
        curl.args(["-H", "Content-Type: message/rfc822", "-X", "POST", "-T", "large.eml"]).args(pace);
    }
    let output = curl.output().expect("curl is installed: run `./test`");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// How many recipients were handed on.
fn sent(server: &Server) -> u64 {
    let page = server.get("/metrics");
    let line = page.text().lines().find(|line| line.starts_with("tollgate_relay_sent_total{"));
    line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0)
}

/// Waits until so many recipients were handed on. Large messages take long on a busy machine.
fn wait_for_sent(server: &Server, recipients: u64) {
    let start = now();
    while sent(server) < recipients {
        assert!(start.elapsed().as_secs() < 120, "{} of {recipients} were handed on", sent(server));
        pause(std::time::Duration::from_millis(100));
    }
}

fn serve() -> (Sink, Home, Server) {
    let sink = Sink::start();
    let home = home(sink.port(), "store: memory", "  max_size: 64MiB");
    let server = home.start();
    write_message(&home.path("large.eml"));
    // What every message needs is there already.
    submit(server.relays[0], "small", &["someone@there.test"]);
    wait_until("the small message is sent", || sent(&server) == 1);
    (sink, home, server)
}

#[test]
fn a_large_message_needs_little_memory_on_its_whole_way() {
    let (sink, home, server) = serve();
    let before = peak(&server);
    // One after the other: the bound is that of one message.
    upload(&home, &server, &["smtp"]);
    wait_for_sent(&server, 2);
    let accepted = upload(&home, &server, &[]);
    assert!(accepted.contains("\"status\":\"queued\""), "{accepted}");
    wait_for_sent(&server, 3);
    let grown = peak(&server) - before;
    assert!(grown < MOST_GROWTH, "{} KiB more", grown / 1024);
    let large: Vec<usize> =
        sink.messages().iter().map(|sunk| sunk.text.len()).filter(|len| *len > 100_000).collect();
    assert_eq!(large.len(), 2, "both arrive");
    assert!(large.iter().all(|len| *len as u64 > SIZE - 200_000), "whole: {large:?}");
    server.stop();
}

#[test]
fn a_slow_and_steady_upload_is_not_cut() {
    #[expect(clippy::disallowed_methods, reason = "the developer who runs the tests chooses the long form")]
    if std::env::var("TOLLGATE_LONG").is_err() {
        return;
    }
    let (_sink, home, server) = serve();
    let start = now();
    let accepted = upload(&home, &server, &["--limit-rate", "1300k"]);
    assert!(accepted.contains("\"status\":\"queued\""), "{accepted}");
    assert!(start.elapsed().as_secs() > 32, "it took longer than other requests may: {:?}", start.elapsed());
    server.stop();
}

#[test]
fn thousands_of_clients_that_stop_in_the_middle_of_a_text_stay_within_the_bound() {
    const CLIENTS: usize = 3_000;
    /// What all texts may take together, and what the connections and the heap need beside them.
    const MOST: u64 = (256 + 128) << 20;
    let sink = Sink::start();
    let home = home(sink.port(), "store: memory", "  max_connections: 5000");
    let server = home.start();
    let piece = format!("Subject: x\r\n\r\n{}", format!("{}\r\n", "x".repeat(998)).repeat(64));
    let before = server.memory();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::greeted(server.relays[0]).unwrap()).collect();
    for client in &mut clients {
        client.ask("MAIL FROM:<app@here.test>").unwrap();
        client.ask("RCPT TO:<someone@there.test>").unwrap();
        assert!(client.ask("DATA").unwrap().starts_with("354"));
        client.write(&piece);
    }
    // A client that comes later is served when all of that was read.
    let mut last = Client::greeted(server.relays[0]).unwrap();
    assert!(last.send("last", &["someone@there.test"]).is_some());
    let grown = server.memory() - before;
    assert!(grown < MOST, "{} MiB more", grown >> 20);
    drop(clients);
    server.stop();
}
