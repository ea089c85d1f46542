//! A WebSocket through the gateway of the real program, with an independent client and server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::program::{Home, PATIENCE};
use tungstenite::{Message, accept, client};

/// Echoes everything until the client closes.
fn echo(stream: TcpStream) {
    let mut socket = accept(stream).unwrap();
    while let Ok(message) = socket.read() {
        let _ = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message),
            _ => Ok(()),
        };
    }
}

#[test]
fn messages_go_both_ways_and_only_their_beginning_is_limited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(|| echo(stream.unwrap()));
        }
    });
    let home = Home::with(&format!(
        "store: memory
rules: {{ open: {{ by: ip, limits: 2/day }} }}
policies: {{ chat: [open] }}
gateway:
  listen: 127.0.0.1:0
  upstreams: {{ chat: {upstream} }}
  routes: {{ chat: {{ path: /chat, upstream: chat, policy: chat }} }}
"
    ));
    let server = home.start();
    let open = || {
        let stream = TcpStream::connect(server.gateways[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        client(format!("ws://{}/chat", server.gateways[0]), stream).map_err(Box::new)
    };
    let (mut first, answer) = open().unwrap();
    assert_eq!(answer.status(), 101);
    for size in [1, 1_000, 100_000] {
        for message in [Message::text("x".repeat(size)), Message::binary(vec![7; size])] {
            first.send(message.clone()).unwrap();
            assert_eq!(first.read().unwrap(), message);
        }
    }
    let (mut second, _) = open().unwrap();
    let tungstenite::HandshakeError::Failure(tungstenite::Error::Http(refused)) = *open().unwrap_err() else {
        panic!("the third is refused");
    };
    assert_eq!(refused.status(), 429);
    second.send(Message::text("still there")).unwrap();
    assert_eq!(second.read().unwrap(), Message::text("still there"));
    first.close(None).unwrap();
    while first.read().is_ok() {}
}
