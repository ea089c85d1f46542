//! The server and the real queue on a real disk: acknowledged messages are there after a restart, and what a full
//! queue refuses costs nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::{self, Client, Stand, policies, rule};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate_core::Clock;
use tollgate_engine::{Admissions, Leases};
use tollgate_relay::acceptance::{AcceptTerms, Acceptances};
use tollgate_relay::queue::disk::Directory;
use tollgate_relay::queue::{Opened, Queue, QueueOptions};
use tollgate_relay::server::{Kind, Server};
use tollgate_testbed::wait_until;

fn open(directory: &Path, stand: &Stand, max_messages: u64) -> (Queue, Opened) {
    let disk = Arc::new(Directory::open(directory).unwrap());
    let options = QueueOptions { max_messages, min_free: 0, ..QueueOptions::default() };
    Queue::open(disk, Arc::clone(&stand.clock) as Arc<dyn Clock>, options).unwrap()
}

/// A server before this queue, beside the one of the stand.
fn serve(stand: &Stand, queue: &Queue) -> (Server, SocketAddr, JoinHandle<()>) {
    let clock = || Arc::clone(&stand.clock) as Arc<dyn Clock>;
    let leases = Arc::new(Leases::new(Arc::clone(&stand.engine), clock()));
    let admissions = Admissions { engine: Arc::clone(&stand.engine), pacer: None, leases };
    let terms = AcceptTerms { policy: Some("accept".into()), ..AcceptTerms::new("relay.test") };
    let doors = Acceptances::new(terms, admissions, Arc::new(queue.clone()), clock());
    let server = Server::new(support::settings(), Arc::new(doors));
    let listener = stand.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let listening = server.clone();
    let listening = stand.runtime.spawn(async move { listening.listen(listener, Kind::Smtp).await });
    (server, address, listening)
}

fn stand() -> Stand {
    let rules = vec![rule("sender", &["sender"], &["1000/hour"])];
    Stand::new(policies(rules, &[("accept", &["sender"])]), |_| {})
}

#[test]
fn acknowledged_messages_survive_a_restart() {
    let (stand, home) = (stand(), tempfile::tempdir().unwrap());
    let (queue, _) = open(home.path(), &stand, 1_000);
    let (server, address, listening) = serve(&stand, &queue);
    for size in ["500", "200000"] {
        let mut source = Command::new("/usr/sbin/smtp-source");
        source.args(["-s", "10", "-m", "50", "-r", "2", "-f", "a@x.test", "-t", "b@y.test", "-l", size]);
        let output = source.arg(address.to_string()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut client = Client::connect(address);
    client.expect("220 relay.test ESMTP tollgate");
    client.ask("EHLO client.test");
    let reply = client.message("z@x.test", &["b@y.test", "c@z.test"]);
    let id = reply.strip_prefix("250 2.0.0 Ok: queued as ").unwrap().to_owned();
    drop(client);
    stand.runtime.block_on(server.end(std::time::Duration::from_secs(30)));
    stand.runtime.block_on(listening).unwrap();
    drop((server, queue));
    let (queue, opened) = open(home.path(), &stand, 1_000);
    assert_eq!((queue.len(), opened.damaged.len(), opened.waiting.len()), (101, 0, 102));
    let shown = queue.list(None, 1_000).unwrap();
    let last = shown.iter().find(|shown| format!("{:032x}", shown.kept.envelope.id.0) == id).unwrap();
    assert_eq!(last.kept.envelope.sender.as_deref(), Some("z@x.test"));
    let mut text = String::new();
    queue.text(&last.kept).unwrap().bytes.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("Received: from client.test ([127.0.0.1])\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\ntext\r\n"), "{text}");
    let large = shown.iter().filter(|shown| queue.text(&shown.kept).unwrap().size > 200_000).count();
    assert_eq!(large, 50);
}

#[test]
fn a_full_queue_refuses_and_charges_nothing() {
    let (stand, home) = (stand(), tempfile::tempdir().unwrap());
    let (queue, _) = open(home.path(), &stand, 2);
    let (_server, address, _) = serve(&stand, &queue);
    let mut client = Client::connect(address);
    client.reply();
    client.ask("EHLO client.test");
    for _ in 0..2 {
        assert!(client.message("a@x.test", &["b@y.test"]).starts_with("250"));
    }
    assert_eq!(client.message("a@x.test", &["b@y.test"]), "452 4.3.1 Queue is full; try again later");
    assert_eq!(stand.left("accept", &[("sender", "a@x.test")]), [998]);
    let first = queue.list(None, 1).unwrap()[0].kept.envelope.id;
    assert!(stand.runtime.block_on(queue.cancel(first)).unwrap());
    wait_until("there is room again", || client.message("a@x.test", &["b@y.test"]).starts_with("250"));
}
