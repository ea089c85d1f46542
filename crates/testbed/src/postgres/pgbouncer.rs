//! A pgbouncer in transaction mode.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Postgres, log, own_directory, run_as_server_user};
use crate::binary;
use crate::guard::Guarded;
use crate::patience::{PATIENCE, now, pause, wait_until};
use crate::port::Port;

/// A pgbouncer in transaction mode before a server. Dropping it stops it.
#[derive(Debug)]
pub struct Pgbouncer {
    process: Guarded,
    port: Port,
    directory: TempDir,
}

impl Pgbouncer {
    /// Starts it before a server, with this many connections to it.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start(server: &Postgres, connections: usize) -> Self {
        Self::start_with(server, connections, "")
    }

    /// Starts one with more lines for its configuration.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start_with(server: &Postgres, connections: usize, more: &str) -> Self {
        let directory = own_directory();
        let home = directory.path();
        let port = Port::claim();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 1000\n{more}\n",
            server.port(),
            port.number(),
        );
        fs::write(home.join("pgbouncer.ini"), config).expect("the directory can be written to");
        let process = run(home, &port);
        Self { process, port, directory }
    }

    /// Kills it and starts it again: same port, same server.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    pub fn restart(&mut self) {
        self.process.signal(Signal::KILL);
        wait_until("pgbouncer's end", || self.process.has_ended());
        self.process = run(self.directory.path(), &self.port);
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its URL for the superuser.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port())
    }
}

fn run(home: &Path, port: &Port) -> Guarded {
    let output = File::create(home.join("log")).expect("the directory can be written to");
    let mut command = run_as_server_user(&binary::pgbouncer(), home);
    command.arg(home.join("pgbouncer.ini")).stdin(Stdio::null());
    command.stderr(output.try_clone().expect("a file can be shared")).stdout(output);
    let mut process = Guarded::spawn(&mut command);
    let start = now();
    while std::net::TcpStream::connect(("127.0.0.1", port.number())).is_err() {
        assert!(!process.has_ended(), "pgbouncer does not start: {}", log(home));
        assert!(start.elapsed() < PATIENCE, "pgbouncer does not listen: {}", log(home));
        pause(Duration::from_millis(10));
    }
    process
}
