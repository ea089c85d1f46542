//! Servers that do not speak Redis, or the wrong server: an outage, no panic, bounded memory, and recovery
//! once the real server is there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::stage::{self, Ask, Node, is_outage, plan, settings, shared, wait};
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Records, Store, StoreError};
use tollgate_testbed::{Kind, Nonsense, Port, Server};

const KINDS: [Kind; 7] = [
    Kind::Garbage,
    Kind::EndlessBulk,
    Kind::DeepArrays,
    Kind::EndlessLine,
    Kind::WrongKinds,
    Kind::Silence,
    Kind::HangUp,
];

/// Checks that every call fails soon, as an outage.
fn is_out(node: &Node, what: &str) {
    let (window, sliding) = (plan("window", "10/min"), plan("sliding", "10/min sliding"));
    for _ in 0..3 {
        for plan in [&window, &sliding] {
            let start = stage::now();
            let answer = node.take(&Ask::one(plan, "k"));
            assert!(answer.as_ref().is_err_and(is_outage), "{what}: {answer:?}");
            assert!(start.elapsed() < Duration::from_secs(5), "{what} hangs");
        }
    }
    let given = node.refund(&Ask::one(&window, "k"), tollgate_core::Timestamp::from_micros(1));
    assert!(given.as_ref().is_err_and(is_outage), "{what}: {given:?}");
    // Garbage may be read as no records or no secret, but never as a secret.
    let _ = wait(node.store.changes(Namespace::Config, None));
    assert!(wait(node.store.secret()).is_err(), "{what}");
}

/// Resident memory of this process, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn nonsense_is_an_outage_until_the_real_server_is_there() {
    if !tollgate_testbed::alone(module_path!(), "nonsense_is_an_outage_until_the_real_server_is_there") {
        return;
    }
    let before = memory();
    thread::scope(|scope| {
        for kind in KINDS {
            scope.spawn(move || {
                let nonsense = Nonsense::start(kind);
                let points = Signpost::to(nonsense.port());
                let node = Node::hasty(&points.url, &format!("{kind:?}"));
                is_out(&node, &format!("{kind:?}"));
                let probed = wait(node.store.probe());
                assert!(probed.is_err(), "{kind:?} passes for a server");
                points.target.store(shared().port(), Ordering::SeqCst);
                drop(nonsense);
                let took = node.recovers();
                println!("{kind:?}: well after {took:?}");
                assert!(wait(node.store.secret()).is_ok());
            });
        }
    });
    let grown = memory().saturating_sub(before);
    println!("memory has grown by {} KiB", grown / 1024);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

/// A port that forwards to another one, which can change. It lasts as long as this process.
struct Signpost {
    url: String,
    target: Arc<AtomicU16>,
}

impl Signpost {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let target = Arc::new(AtomicU16::new(port));
        let leads = Arc::clone(&target);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let port = leads.load(Ordering::SeqCst);
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    carry(&client, &server);
                    carry(&server, &client);
                }
            }
        });
        Self { url, target }
    }
}

/// Copies bytes in one direction until one side closes.
fn carry(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

#[test]
fn replies_of_absurd_size_are_cut_off_whatever_they_are_made_of() {
    // Each part is small enough, but there are infinitely many.
    let sent = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let counter = Arc::clone(&sent);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                let mut stream = stream;
                let mut request = [0; 4096];
                for reply in [&b"+PONG\r\n"[..], b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"] {
                    if stream.read(&mut request).is_err() || stream.write_all(reply).is_err() {
                        return;
                    }
                }
                let _ = stream.read(&mut request);
                let part = [&b"$65536\r\n"[..], &vec![b'x'; 1 << 16], b"\r\n"].concat();
                if stream.write_all(b"*60000\r\n").is_err() {
                    return;
                }
                while stream.write_all(&part).is_ok() {
                    counter.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let node =
        Node::with(tollgate_redis::Settings { connections: 1, ..settings(&url, "endless", stage::PATIENT) });
    let start = stage::now();
    let answer = node.take(&Ask::one(&plan("window", "10/min"), "k"));
    let Err(StoreError::Unavailable { reason }) = &answer else { panic!("{answer:?}") };
    assert!(reason.contains("more than 1 MiB"), "{reason}");
    println!("cut off after {} MiB and {:?}", sent.load(Ordering::Relaxed) >> 20, start.elapsed());
    // 1 MiB is read; the rest is in the buffers of both sockets.
    assert!(sent.load(Ordering::Relaxed) < 24 << 20);
}

#[test]
fn a_port_without_a_listener_is_a_named_outage() {
    let port = Port::claim();
    let node = Node::hasty(&format!("redis://127.0.0.1:{}", port.number()), "nobody");
    is_out(&node, "no listener");
    let Err(StoreError::Unavailable { reason }) = wait(node.store.probe()) else { panic!("it is not there") };
    assert!(reason.contains("cannot connect to 127.0.0.1"), "{reason}");
    let unknown = Node::hasty("redis://no-such-host.invalid", "nobody");
    is_out(&unknown, "no such host");
}

#[test]
fn a_wrong_password_is_an_outage_that_says_so_and_never_repeats_it() {
    let server = Server::redis().password("right").start();
    for (url, word) in [
        (format!("redis://:hunter2@127.0.0.1:{}", server.port()), "WRONGPASS"),
        (format!("redis://somebody:hunter2@127.0.0.1:{}", server.port()), "WRONGPASS"),
        (format!("redis://127.0.0.1:{}", server.port()), "NOAUTH"),
    ] {
        let node = Node::hasty(&url, "password");
        is_out(&node, word);
        let Err(StoreError::Refused { reason }) = wait(node.store.probe()) else { panic!("it was let in") };
        assert!(reason.contains(word) && !reason.contains("hunter2"), "{reason}");
    }
    assert!(Node::hasty(&server.url(), "password").take(&Ask::one(&plan("a", "1/s"), "k")).is_ok());
}
