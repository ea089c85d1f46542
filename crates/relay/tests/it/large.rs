//! A message of 50 MB over SMTP into a queue on disk: it is streamed, and memory stays bounded.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::support;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate_core::{Clock, Policies, Records, Store};
use tollgate_engine::{Admissions, Engine, Leases, Parts};
use tollgate_relay::acceptance::{AcceptTerms, Acceptances};
use tollgate_relay::queue::disk::Directory;
use tollgate_relay::queue::{Queue, QueueOptions};
use tollgate_relay::server::{Kind, Server};
use tollgate_store::{MemoryStore, SystemClock};

const CHILD: &str = "TOLLGATE_RELAY_LARGE_CHILD";
const NAME: &str = "a_large_message_needs_little_memory";
const SIZE: usize = 50_000_000;
/// How much more memory the server may need at its worst, in KiB: buffers, not the message.
const MOST_GROWTH: u64 = 12 * 1024;

/// Serves a queue in a directory until the process ends, and tells the port.
fn serve(directory: &Path) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Runtime::new().unwrap().block_on(async {
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock), 1_000));
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: store as Arc<dyn Records>,
            fallback: None,
        };
        let engine = Arc::new(Engine::start(Policies::new(true, vec![], vec![]), parts).await.unwrap());
        let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::clone(&clock)));
        let disk = Arc::new(Directory::open(directory).unwrap());
        let options = QueueOptions { min_free: 0, ..QueueOptions::default() };
        let (queue, _opened) = Queue::open(disk, Arc::clone(&clock), options).unwrap();
        let admissions = Admissions { engine, pacer: None, leases };
        let terms = AcceptTerms::new("relay.test");
        let doors = Acceptances::new(terms, admissions, Arc::new(queue), clock);
        let server = Server::new(support::settings(), Arc::new(doors));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("port {}", listener.local_addr().unwrap().port());
        server.listen(listener, Kind::Smtp).await;
    });
}

/// The most memory that a process had so far, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends a message with a body of about this size.
fn send(port: u16, size: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut expect = |code: &str| loop {
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        assert!(line.starts_with(code), "{line}");
        if line.as_bytes()[3] == b' ' {
            return;
        }
    };
    expect("220");
    for (command, code) in [
        ("EHLO client.test", "250"),
        ("MAIL FROM:<a@x.test>", "250"),
        ("RCPT TO:<b@y.test>", "250"),
        ("DATA", "354"),
    ] {
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        expect(code);
    }
    stream.write_all(b"Subject: large\r\n\r\n").unwrap();
    let piece = [[b'x'; 998].as_slice(), b"\r\n"].concat().repeat(64);
    for _ in 0..size.div_ceil(piece.len()) {
        stream.write_all(&piece).unwrap();
    }
    stream.write_all(b".\r\n").unwrap();
    expect("250");
}

#[test]
fn a_large_message_needs_little_memory() {
    if let Some((_, path)) = std::env::vars_os().find(|(name, _)| name == CHILD) {
        return serve(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = tollgate_testbed::rerun(module_path!(), NAME)
        .env(CHILD, directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port = lines.find_map(|line| line.strip_prefix("port ")?.parse().ok()).unwrap();
    // What every message of its kind needs is there after the first ones.
    send(port, 1_000);
    send(port, 1_000_000);
    let before = peak(child.id());
    send(port, SIZE);
    let growth = peak(child.id()) - before;
    child.kill().unwrap();
    child.wait().unwrap();
    let texts = std::fs::read_dir(directory.path().join("texts")).unwrap();
    let longest = texts.map(|text| text.unwrap().metadata().unwrap().len()).max().unwrap();
    assert!(longest >= SIZE as u64, "it is in the queue: {longest}");
    assert!(growth <= MOST_GROWTH, "the server needed {growth} KiB more for {SIZE} bytes");
}
