//! The real program in its own directory: how tests start it, send requests to it, and stop it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

mod faked;
pub mod http2;
mod wire;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

#[allow(unused_imports, reason = "every test crate uses its own part of this")]
pub use faked::faketime;
pub use rustix::process::Signal;
#[allow(unused_imports, reason = "every test crate uses its own part of this")]
pub use wire::{Connection, Reply, request};

/// The longest wait for an event on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that a server runs in, with its configuration, its file and its variables.
pub struct Home {
    directory: TempDir,
    variables: Vec<(String, String)>,
}

/// A running server. It ends with the test.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// The addresses of its gateway, if it has one.
    pub gateways: Vec<SocketAddr>,
    /// Where its relay listens, if it has one.
    pub relays: Vec<SocketAddr>,
    /// Where its Postfix policy service listens, if that is an address and a port.
    pub policy_door: Option<SocketAddr>,
    log: Log,
    reading: Option<JoinHandle<()>>,
    out: Option<BufReader<ChildStdout>>,
}

/// The server's standard error so far.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// How a server ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub log: String,
    pub took: Duration,
}

impl Home {
    /// An empty directory.
    pub fn empty() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// A directory with this configuration.
    pub fn with(config: &str) -> Self {
        let home = Self::empty();
        home.configure(config);
        home
    }

    /// Adds a variable to the environment of everything that runs here.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the configuration.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.path("tollgate.yaml"), config).unwrap();
    }

    /// The program, to be run here with only these variables.
    pub fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.current_dir(self.directory()).env_clear().stdin(Stdio::null());
        command.env("TOLLGATE__LISTEN__HTTP", "127.0.0.1:0");
        let config = std::fs::read_to_string(self.path("tollgate.yaml")).unwrap_or_default();
        if !config.contains("drain:") {
            // Tests that are not about draining should not wait for it.
            command.env("TOLLGATE__DRAIN", "3s");
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn serve(&self) -> Command {
        let mut command = self.program();
        command.arg("serve");
        if self.path("tollgate.yaml").exists() {
            command.args(["--config", "tollgate.yaml"]);
        }
        command
    }

    /// Starts a server and waits until it listens.
    pub fn start(&self) -> Server {
        let mut child =
            self.serve().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let log = Log::default();
        let (stderr, kept) = (child.stderr.take().unwrap(), log.clone());
        let reading = Some(thread::spawn(move || kept.follow(stderr)));
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let (mut gateways, mut relays, mut policy_door) = (Vec::new(), Vec::new(), None);
        out.read_line(&mut line).unwrap();
        // Before the address are the configuration file, the store, and the addresses of gateway, relay and policy service.
        let is_address = |line: &str| line.starts_with("the ") && line.contains(" listens on ");
        while line.starts_with("reads ") || line.starts_with("keeps ") || is_address(&line) {
            if let Some((who, address)) = line.trim_end().split_once(" listens on ") {
                let parsed = address.rsplit('/').next().unwrap().parse();
                match who {
                    "the relay" => relays.push(parsed.unwrap()),
                    "the gateway" => gateways.push(parsed.unwrap()),
                    _ => policy_door = parsed.ok(),
                }
            }
            line.clear();
            out.read_line(&mut line).unwrap();
        }
        let Some((_, address)) = line.trim_end().split_once(" listens on http://") else {
            let _ = child.kill();
            let status = child.wait();
            panic!("the first line was {line:?}, {status:?}; the log: {}", log.text());
        };
        let address = address.parse().unwrap();
        Server { child, address, gateways, relays, policy_door, log, reading, out: Some(out) }
    }

    /// Starts a server and closes both of its output pipes as soon as it listens.
    pub fn start_unread(&self) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = self.serve();
        command.env("TOLLGATE__LISTEN__HTTP", address.to_string());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop((child.stdout.take(), child.stderr.take()));
        wait_until("the server listens", || TcpStream::connect(address).is_ok());
        Server {
            child,
            address,
            gateways: Vec::new(),
            relays: Vec::new(),
            policy_door: None,
            log: Log::default(),
            reading: None,
            out: None,
        }
    }

    /// Starts a server that is expected to fail, and waits for its end.
    pub fn refused(&self) -> Output {
        let mut child =
            self.serve().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let start = now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("the server runs: {:?}", child.wait_with_output());
            }
            pause(Duration::from_millis(10));
        }
        child.wait_with_output().unwrap()
    }

    /// Runs a command against a server.
    pub fn run(&self, server: &Server, arguments: &[&str]) -> Output {
        let mut command = self.program();
        command.env("TOLLGATE_SERVER", server.url()).args(arguments);
        command.output().expect("the program starts")
    }
}

impl Server {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line on standard output.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// A connection to its gateway.
    pub fn gateway(&self) -> Connection {
        Connection::open(self.gateways[0])
    }

    /// Sends a request over a new connection.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        self.connect().ask(method, path, &[], body)
    }

    /// Sends a request with a token.
    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let bearer = format!("Bearer {token}");
        self.connect().ask(method, path, &[("authorization", &bearer)], body)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path, Some(body))
    }

    /// Checks an attempt.
    pub fn check(&self, body: &Value) -> Reply {
        self.post("/api/v1/check", body)
    }

    /// How much of a rule's first limit is left at a key.
    pub fn remaining(&self, rule: &str, key: &str) -> u64 {
        let shown = self.get(&format!("/api/v1/counters/{rule}/{key}")).ok();
        shown["limits"][0]["remaining"].as_u64().unwrap_or_else(|| panic!("{shown}"))
    }

    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until the log contains this.
    pub fn wait_for_log(&self, what: &str) {
        wait_until(what, || self.log().contains(what));
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the server runs");
    }

    /// Ends it by a signal and waits for that.
    pub fn end_by(self, signal: Signal) -> Ended {
        self.signal(signal);
        self.ended()
    }

    /// Stops it as an operator would; it must succeed.
    pub fn stop(self) -> String {
        let ended = self.end_by(Signal::TERM);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        ended.log
    }

    /// Waits for its end.
    pub fn ended(mut self) -> Ended {
        let start = now();
        let mut status = None;
        wait_until("the server's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let took = start.elapsed();
        if let Some(reading) = self.reading.take() {
            reading.join().unwrap();
        }
        Ended { status: status.unwrap(), log: self.log(), took }
    }

    /// Resident memory, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Log {
    fn follow(&self, mut stderr: impl Read) {
        let mut part = [0; 8192];
        while let Ok(read @ 1..) = stderr.read(&mut part) {
            self.0.lock().unwrap().extend_from_slice(&part[..read]);
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("the log is text")
    }
}

#[expect(clippy::disallowed_methods, reason = "a process of its own lives in real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Lets real time pass for another process.
#[expect(clippy::disallowed_methods, reason = "a process of its own lives in real time")]
pub fn pause(time: Duration) {
    thread::sleep(time);
}

/// Waits until something has happened in another process.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        pause(Duration::from_millis(10));
    }
}

/// What a program printed, as text.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the program prints text")
}
