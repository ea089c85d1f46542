//! A pgbouncer in transaction mode.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;

use super::{Postgres, log, own_directory, run_as_server_user};
use crate::binary;
use crate::guard::Guarded;
use crate::patience::{PATIENCE, now, pause};
use crate::port::Port;

/// A pgbouncer in transaction mode before a server. Dropping it stops it.
#[derive(Debug)]
pub struct Pgbouncer {
    _process: Guarded,
    port: Port,
    _directory: TempDir,
}

impl Pgbouncer {
    /// Starts it before a server, with this many connections to it.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start(server: &Postgres, connections: usize) -> Self {
        let directory = own_directory();
        let home = directory.path();
        let port = Port::claim();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 1000\n",
            server.port(),
            port.number(),
        );
        fs::write(home.join("pgbouncer.ini"), config).expect("the directory can be written to");
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
        Self { _process: process, port, _directory: directory }
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
