//! Each kind of nonsense arrives as intended.
#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate_testbed::{Kind, Nonsense, PATIENCE, Wire};

/// The first bytes of the answer to a command.
fn first_bytes(kind: Kind, count: usize) -> Vec<u8> {
    let server = Nonsense::start(kind);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.take(count as u64).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_connection_receives_nonsense() {
    assert!(first_bytes(Kind::Garbage, 8).starts_with(b"HTTP/1.1"));
    assert_eq!(first_bytes(Kind::DeepArrays, 4_000_000).len(), 4_000_000);
    let bulk = first_bytes(Kind::EndlessBulk, 5_000_000);
    assert!(bulk.starts_with(b"$99999999999\r\nxx") && bulk.len() == 5_000_000);
    let line = first_bytes(Kind::EndlessLine, 5_000_000);
    assert!(line.starts_with(b"+xx") && line.len() == 5_000_000 && !line.contains(&b'\n'));
    assert_eq!(first_bytes(Kind::HangUp, 1), b"");
}

#[test]
fn wrong_kinds_are_good_answers() {
    let server = Nonsense::start(Kind::WrongKinds);
    let mut wire = Wire::tcp(server.port(), PATIENCE).unwrap();
    let replies: Vec<_> = (0..12).map(|_| wire.command(&["PING"]).unwrap()).collect();
    assert_eq!(replies[..6], replies[6..]);
    assert!(replies[..6].iter().enumerate().all(|(at, reply)| !replies[..at].contains(reply)));
}

#[test]
fn silence_keeps_the_connection() {
    let server = Nonsense::start(Kind::Silence);
    let mut wire = Wire::tcp(server.port(), Duration::from_millis(200)).unwrap();
    for _ in 0..2 {
        let error = wire.command(&["PING"]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it waits for more: {error}");
    }
}
