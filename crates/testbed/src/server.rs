//! One server of Redis or Valkey, which a test can stop, kill, pause and start again.

mod options;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

pub use options::Options;

use crate::binary::Flavour;
use crate::clock::ShiftedClock;
use crate::guard::{self, Guarded};
use crate::patience::{PATIENCE, now, pause, real_time_secs, wait_until};
use crate::port::Port;
use crate::reply::Reply;
use crate::wire::Wire;

/// How often another port is tried if another process took the claimed one.
const TRIES: usize = 5;

/// A server. Dropping it stops it and deletes its directory.
#[derive(Debug)]
pub struct Server {
    /// Before the directory, so that it is dropped first.
    process: Option<Guarded>,
    options: Options,
    port: Port,
    bus: Option<Port>,
    clock: Option<ShiftedClock>,
    directory: TempDir,
}

impl Server {
    /// A Redis server that can be started.
    #[must_use]
    pub fn redis() -> Options {
        Options::new(Flavour::Redis)
    }

    /// A Valkey server that can be started.
    #[must_use]
    pub fn valkey() -> Options {
        Options::new(Flavour::Valkey)
    }

    pub(crate) fn first_start(options: Options) -> Self {
        let directory = TempDir::new_in(guard::home()).expect("a directory for the server");
        let clock = options.ahead_secs.map(|ahead| ShiftedClock::new(directory.path(), ahead));
        let bus = options.cluster.then(Port::claim);
        let port = Port::claim();
        let mut server = Self { process: None, options, port, bus, clock, directory };
        server.write_files();
        for _ in 0..TRIES {
            match server.try_start() {
                Ok(()) => return server,
                Err(log) if log.contains("Address already in use") => {
                    server.port = Port::claim();
                    server.bus = server.options.cluster.then(Port::claim);
                }
                Err(log) => panic!("the server does not start: {log}"),
            }
        }
        panic!("other programs take every port that is claimed");
    }

    fn write_files(&self) {
        for (name, text) in
            [("users.acl", self.options.users_file()), ("server.conf", self.options.config.clone())]
        {
            if let Some(text) = text {
                std::fs::write(self.path(name), text).expect("the directory can be written to");
            }
        }
    }

    /// Starts it again after it was stopped or killed: same port, same directory.
    ///
    /// # Panics
    ///
    /// If it runs, or does not start.
    pub fn start(&mut self) {
        assert!(self.process.is_none(), "the server runs");
        if let Err(log) = self.try_start() {
            panic!("the server does not start: {log}");
        }
    }

    /// Starts it and waits until it answers; the error is its log.
    fn try_start(&mut self) -> Result<(), String> {
        let log = File::create(self.path("log")).expect("the directory can be written to");
        let mut command = Command::new(self.options.flavour.binary());
        command.current_dir(self.directory.path()).args(self.options.arguments(self));
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a file can be shared")).stdout(log);
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        let mut process = Guarded::spawn(&mut command);
        let start = now();
        loop {
            if process.has_ended() {
                return Err(self.log());
            }
            if self.answers() {
                self.process = Some(process);
                return Ok(());
            }
            assert!(start.elapsed() < PATIENCE, "the server does not answer: {}", self.log());
            pause(Duration::from_millis(5));
        }
    }

    fn answers(&self) -> bool {
        let ping = self.try_wire().and_then(|mut wire| wire.command(&["PING"]));
        // A replica without a master, and a node without a cluster, answer too.
        ping.is_ok_and(|reply| reply == Reply::Status("PONG".to_owned()))
    }

    fn try_wire(&self) -> std::io::Result<Wire> {
        let mut wire = Wire::unix(&self.socket(), PATIENCE)?;
        if let Some(login) = self.options.login() {
            let reply = wire.command(&login)?;
            if reply.is_error() {
                return Err(std::io::Error::other(reply.text()));
            }
        }
        Ok(wire)
    }

    /// A connection of the test itself, with every permission. It uses the socket instead of the port, so it
    /// works whatever the port requires.
    ///
    /// # Panics
    ///
    /// If the server does not run.
    #[must_use]
    pub fn wire(&self) -> Wire {
        self.try_wire().unwrap_or_else(|error| panic!("the server answers: {error}; its log: {}", self.log()))
    }

    /// Sends a command over a new connection, with every permission.
    ///
    /// # Panics
    ///
    /// If the server does not run, or is paused for longer than a test waits.
    pub fn command<P: AsRef<[u8]>>(&self, parts: &[P]) -> Reply {
        self.wire().command(parts).unwrap_or_else(|error| panic!("the server answers: {error}"))
    }

    /// Its URL for the configuration, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(&self.login())
    }

    /// Its URL for a user of the ACL.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{}:{}@", escape(user), escape(password)))
    }

    fn url_with(&self, login: &str) -> String {
        format!("{}://{login}127.0.0.1:{}", self.scheme(), self.port())
    }

    /// The scheme of its URL, for Redis or Valkey, with TLS or without.
    pub(crate) fn scheme(&self) -> String {
        let tls = if self.options.tls.is_some() { "s" } else { "" };
        format!("{}{tls}", self.options.flavour.scheme())
    }

    /// The login part of its URL.
    pub(crate) fn login(&self) -> String {
        self.options.password.as_ref().map_or_else(String::new, |password| format!(":{}@", escape(password)))
    }

    /// The port it listens on, with or without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn bus_port(&self) -> Option<u16> {
        self.bus.as_ref().map(Port::number)
    }

    /// The socket it also listens on, without TLS.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    /// The URL of that socket.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// The certificate of its authority.
    ///
    /// # Panics
    ///
    /// If it was not started with TLS.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.options.tls.as_ref().expect("the server was started with TLS").authority
    }

    /// A certificate by its authority, and its key.
    ///
    /// # Panics
    ///
    /// If the server was not started with TLS.
    #[must_use]
    pub fn identity(&self) -> [&Path; 2] {
        let files = self.options.tls.as_ref().expect("the server was started with TLS");
        [&files.certificate, &files.key]
    }

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its log since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(self.path("log"))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// The id of its process.
    ///
    /// # Panics
    ///
    /// If it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Whether it was started through this value and not stopped or killed since.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    fn running(&self) -> &Guarded {
        self.process.as_ref().expect("the server runs")
    }

    /// Pauses it: connections are accepted, but nothing is answered.
    pub fn pause(&self) {
        self.running().signal(Signal::STOP);
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.running().signal(Signal::CONT);
    }

    /// Stops it as an operator would, and waits for that. The port stays claimed.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("the server runs");
        process.signal(Signal::CONT);
        process.signal(Signal::TERM);
        wait_until("the server's end", || process.has_ended());
    }

    /// Kills it as a crash would. The port stays claimed.
    pub fn kill9(&mut self) {
        drop(self.process.take().expect("the server runs"));
    }

    /// Moves its clock this many seconds ahead of the real one; back if negative. Waits until the server,
    /// which reads the time only now and then, has seen it.
    ///
    /// # Panics
    ///
    /// If it was not started with [`Options::faketime`], or does not run.
    pub fn shift_clock(&self, ahead_secs: i64) {
        let clock = self.clock.as_ref().expect("the server was started with `faketime`");
        clock.shift(ahead_secs);
        let mut wire = self.wire();
        wait_until("the server sees its clock move", || {
            let time = wire.command(&["TIME"]).expect("the server answers");
            // A second or two may begin between the two readings.
            (time.parts()[0].number() - real_time_secs() - ahead_secs).abs() <= 2
        });
    }
}

/// Escapes special characters of a URL as `%` and two digits.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
