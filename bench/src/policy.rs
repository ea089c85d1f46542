//! The Postfix policy service over loopback, beside a bare echo of the protocol on the same runtime, and beside a
//! policy daemon of Debian.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_engine::{Admissions, Leases};
use tollgate_postfix::{PolicyAddress, PolicyParts, PolicyServer, PolicySettings};
use tollgate_store::{SteadyClock, SystemClock};

use crate::contenders::engine;
use crate::gateway::servers::{Running, free_port, scratch};
use crate::rounds::{line, measure};

const CONNECTIONS: usize = 16;
const REQUESTS: usize = 16_000;
/// The daemon is slower.
const DAEMON_REQUESTS: usize = 800;
const ROUNDS: usize = 15;
/// How many logins there are.
const USERS: usize = 1_000;
const DUNNO: &[u8] = b"action=DUNNO\n\n";

pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let own = runtime.block_on(own());
    let bare = runtime.block_on(bare());
    let daemon = daemon();
    let daemon_address = SocketAddr::from(([127, 0, 0, 1], daemon.port));
    let sent = std::cell::Cell::new(0);
    let load = |address: SocketAddr, requests: usize| load(address, sent.replace(sent.get() + requests), requests);
    let times = measure(
        ROUNDS,
        &mut [
            &mut || load(bare, REQUESTS),
            &mut || load(own, REQUESTS),
            &mut || load(daemon_address, DAEMON_REQUESTS),
        ],
    );
    let rate = |at: usize| format!("{:.0}/s", 1e9 / times.nanos(at));
    let what = "policy requests of Postfix, one rule";
    line(what, &rate(1), &format!("bare echo {}", rate(0)), times.ratio(0, 1), "≥ 0.90");
    line(what, &rate(1), &format!("policyd-rate-limit {}", rate(2)), times.ratio(2, 1), "≥ 5.0");
}

/// The policy service.
async fn own() -> SocketAddr {
    let engine = Arc::new(engine());
    let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::new(SteadyClock::new())));
    let admissions = Admissions { engine, pacer: None, leases };
    let settings = PolicySettings {
        policy: "api".into(),
        contexts: [].into(),
        ports: [].into(),
        max_connections: 1_000,
    };
    let server = PolicyServer::new(settings, PolicyParts { admissions, clock: Arc::new(SystemClock::new()) });
    let address = PolicyAddress::Tcp(([127, 0, 0, 1], 0).into());
    match server.listen(&address).await.expect("a free port") {
        PolicyAddress::Tcp(address) => address,
        PolicyAddress::Unix(path) => panic!("{} was not asked for", path.display()),
    }
}

/// What anybody would write first: wait for the empty line, and answer.
async fn bare() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let mut buffer = Vec::with_capacity(4_096);
                while let Ok(1..) = stream.read_buf(&mut buffer).await {
                    if buffer.ends_with(b"\n\n") {
                        buffer.clear();
                        if stream.write_all(DUNNO).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// A daemon with counters in SQLite, its default.
fn daemon() -> Running {
    let (port, directory) = (free_port(), scratch("policyd"));
    let path = |name: &str| directory.join(name).display().to_string();
    let config = format!(
        "debug: False\nuser: root\ngroup: root\npidfile: '{}'\nbackend: 0\nsqlite_config: {{ database: '{}' }}\n\
         SOCKET: ['127.0.0.1', {port}]\nlimits: [[100000000, 3600]]\nlimit_by_sasl: True\nlimits_by_id: {{}}\n\
         success_action: DUNNO\ndelay_to_close: 300\n",
        path("pid"),
        path("counts.sqlite3"),
    );
    std::fs::write(directory.join("policyd.yaml"), config).expect("a directory");
    let mut command = Command::new("policyd-rate-limit");
    command.arg("--file").arg(directory.join("policyd.yaml"));
    Running::start(command, port, directory)
}

/// Sends so many requests over connections that stay open, one each in flight. Each is about another message.
fn load(address: SocketAddr, from: usize, requests: usize) -> usize {
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    let mut answer = [0; 1_024];
    let mut number = from;
    for _ in 0..requests / CONNECTIONS {
        for stream in &mut streams {
            number += 1;
            stream.write_all(request(number).as_bytes()).expect("a peer");
        }
        for stream in &mut streams {
            let length = stream.read(&mut answer).expect("a peer");
            // Peers differ in case, and one adds nothing but the two line ends.
            assert!(answer[..length].eq_ignore_ascii_case(DUNNO), "{}", answer[..length].escape_ascii());
        }
    }
    requests / CONNECTIONS * CONNECTIONS
}

/// A request as Postfix 3.7 sends it.
fn request(number: usize) -> String {
    format!(
        "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\nclient_address=192.0.2.7\n\
         client_name=client.example.com\nclient_port=41234\nreverse_client_name=client.example.com\n\
         server_address=192.0.2.1\nserver_port=587\nhelo_name=client.example.com\nsender=app@example.com\n\
         recipient=someone@example.org\nrecipient_count=0\nqueue_id=\ninstance=1f2e.6a5b4c3d.{number:x}.0\n\
         size=2048\netrn_domain=\nstress=\nsasl_method=PLAIN\nsasl_username=user-{:05}\nsasl_sender=\n\
         ccert_subject=\nccert_issuer=\nccert_fingerprint=\nccert_pubkey_fingerprint=\n\
         encryption_protocol=TLSv1.3\nencryption_cipher=TLS_AES_256_GCM_SHA384\nencryption_keysize=256\n\
         policy_context=\n\n",
        number % USERS
    )
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("an open socket");
    stream
}
