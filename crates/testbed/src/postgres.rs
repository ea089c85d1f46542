//! A PostgreSQL server, and a pgbouncer before one, which a test can stop, kill, pause and start again.
//!
//! Neither runs as root. If the tests do, both run as Debian's user `postgres`.

mod pgbouncer;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

pub use pgbouncer::Pgbouncer;

use crate::certificates::Certificates;
use crate::guard::{self, Guarded};
use crate::patience::{PATIENCE, now, pause, wait_until};
use crate::port::Port;

/// How often another port is tried if another process took the claimed one.
const TRIES: usize = 5;

/// A PostgreSQL server. Dropping it stops it and deletes its directory.
#[derive(Debug)]
pub struct Postgres {
    /// Before the directory, so that it is dropped first.
    process: Option<Guarded>,
    port: Port,
    config: String,
    certificates: Option<Certificates>,
    directory: TempDir,
}

/// The user of the servers if the tests run as root.
#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// Starts a server with one superuser, `postgres`, without a password. It does not wait for the disk, so
    /// that many tests can run in parallel.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with("fsync = off\nsynchronous_commit = off\n")
    }

    /// Starts a server with further lines for its `postgresql.conf`.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start_with(config: &str) -> Self {
        Self::first_start(config.to_owned(), None)
    }

    /// Starts a server with TLS, with a certificate for `localhost` and `127.0.0.1` by its own authority.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start_with_tls() -> Self {
        Self::first_start("fsync = off\nssl = on\n".to_owned(), Some(Certificates::make()))
    }

    /// As [`Postgres::start_with_tls`], and accepts over TCP only clients with a certificate by its authority.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start_with_client_certificates() -> Self {
        let config = "fsync = off\nssl = on\nssl_ca_file = 'authority.crt'\n".to_owned();
        let server = Self::first_start(config, Some(Certificates::make()));
        let rules = "local all all trust\nhostssl all all all trust clientcert=verify-ca\n";
        fs::write(server.directory.path().join("data/pg_hba.conf"), rules).expect("the file is ours");
        server.sql("SELECT pg_reload_conf()");
        server
    }

    fn first_start(config: String, certificates: Option<Certificates>) -> Self {
        let directory = own_directory();
        let data = directory.path().join("data");
        let mut command = program("initdb", directory.path());
        command.arg("-D").arg(&data);
        command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let output = command.output().expect("initdb runs");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        if let Some(files) = &certificates {
            for (from, to) in [
                (&files.certificate, "server.crt"),
                (&files.key, "server.key"),
                (&files.authority, "authority.crt"),
            ] {
                let to = data.join(to);
                fs::copy(from, &to).expect("a file can be copied");
                fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("the file is ours");
                give_away(&to);
            }
        }
        Self { process: None, port: Port::claim(), config, certificates, directory }.started()
    }

    fn started(mut self) -> Self {
        for _ in 0..TRIES {
            match self.try_start() {
                Ok(()) => return self,
                Err(log) if log.contains("Address already in use") => self.port = Port::claim(),
                Err(log) => panic!("PostgreSQL does not start: {log}"),
            }
        }
        panic!("every port that is claimed is taken");
    }

    /// Starts a replica that follows this server. Returns once it does.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn replica(&self) -> Self {
        let directory = own_directory();
        let mut command = program("pg_basebackup", directory.path());
        command.arg("-h").arg(self.directory.path()).args(["-p", &self.port().to_string()]);
        command
            .args(["-U", "postgres", "-R", "-c", "fast", "--no-sync", "-D"])
            .arg(directory.path().join("data"));
        let output = command.output().expect("pg_basebackup runs");
        assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
        let (port, config) = (Port::claim(), self.config.clone());
        let replica = Self { process: None, port, config, certificates: None, directory }.started();
        wait_until("the replica follows", || {
            self.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "0"
        });
        replica
    }

    /// Promotes a replica to a primary.
    pub fn promote(&self) {
        self.sql("SELECT pg_promote()");
    }

    /// Starts it again after it was stopped or killed: same port, same data.
    ///
    /// # Panics
    ///
    /// If it runs, or does not start.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "the server runs");
        if let Err(log) = self.try_start() {
            panic!("PostgreSQL does not start: {log}");
        }
    }

    fn try_start(&mut self) -> Result<(), String> {
        let home = self.directory.path();
        let config = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             max_connections = 200\nautovacuum_naptime = 5s\n{}\n",
            self.port(),
            home.display(),
            self.config,
        );
        let path = home.join("test.conf");
        fs::write(&path, config).expect("the directory can be written to");
        let log = File::create(home.join("log")).expect("the directory can be written to");
        let mut command = program("postgres", home);
        command.arg("-D").arg(home.join("data")).arg(format!("--config_file={}", path.display()));
        command.arg(format!("--hba_file={}", home.join("data/pg_hba.conf").display()));
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a file can be shared")).stdout(log);
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
            assert!(start.elapsed() < PATIENCE, "PostgreSQL does not answer: {}", self.log());
            pause(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let mut command = program("pg_isready", self.directory.path());
        command.args(["-q", "-h", "127.0.0.1", "-p", &self.port().to_string()]);
        command.status().is_ok_and(|status| status.success())
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

    /// The certificate of its authority.
    ///
    /// # Panics
    ///
    /// If it was not started with TLS.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.certificates.as_ref().expect("the server was started with TLS").authority
    }

    /// A certificate by its authority, and its key.
    ///
    /// # Panics
    ///
    /// If it was not started with TLS.
    #[must_use]
    pub fn identity(&self) -> [&Path; 2] {
        let files = self.certificates.as_ref().expect("the server was started with TLS");
        [&files.certificate, &files.key]
    }

    /// Runs SQL as the superuser. Returns the selected rows: a line for each, columns separated by `|`.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As [`Postgres::sql`]; the error is the server's.
    ///
    /// # Errors
    ///
    /// The output of `psql`.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        let mut command = program("psql", self.directory.path());
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"]);
        command.arg(self.directory.path()).args(["-p", &self.port().to_string(), "-c", sql]);
        let output = command.output().expect("psql runs");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Asks everybody who comes over the network for a password from now on.
    ///
    /// # Panics
    ///
    /// If its configuration cannot be written.
    pub fn ask_for_passwords(&self) {
        let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(self.directory.path().join("data/pg_hba.conf"), rules).expect("the file is ours");
        self.sql("SELECT pg_reload_conf()");
        // It is read by the process that accepts connections, which may be about to accept one.
        wait_until("the rules are in force", || {
            self.sql("SELECT bool_or(auth_method = 'scram-sha-256') FROM pg_hba_file_rules") == "t"
        });
    }

    /// Its log since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        log(self.directory.path())
    }

    fn running(&self) -> &Guarded {
        self.process.as_ref().expect("the server runs")
    }

    /// The id of the process that accepts connections.
    ///
    /// # Panics
    ///
    /// If it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Pauses the server and all its connections.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Keeps some processes of the server from doing anything, by their ids: [`Postgres::pid`] is the one
    /// that accepts connections, [`Postgres::backends`] are those that serve them.
    pub fn pause_only(&self, pids: &[u32]) {
        for pid in pids {
            signal(*pid, Signal::STOP);
        }
    }

    /// The processes that serve the connections of programs of a name.
    ///
    /// # Panics
    ///
    /// If the server does not tell.
    #[must_use]
    pub fn backends(&self, application: &str) -> Vec<u32> {
        let pids = format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{application}'");
        self.sql(&pids).lines().map(|pid| pid.parse().expect("a number")).collect()
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        self.running().signal(signal);
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            self::signal(child, signal);
        }
    }

    /// Stops it as `pg_ctl stop -m fast` does, and waits for that. The port stays claimed.
    pub fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// Stops it as `pg_ctl stop -m immediate` does, which equals a crash. The port stays claimed.
    pub fn stop_immediately(&mut self) {
        self.end(Signal::QUIT);
    }

    fn end(&mut self, signal: Signal) {
        self.resume();
        let mut process = self.process.take().expect("the server runs");
        process.signal(signal);
        wait_until("the server's end", || process.has_ended());
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killing only the first process would leave the others and their memory to end later.
        if self.process.as_mut().is_some_and(|process| !process.has_ended()) {
            self.stop_immediately();
        }
    }
}

/// Sends a signal to a process of a server, which may have ended meanwhile.
fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let _ = pid.map(|pid| rustix::process::kill_process(pid, signal));
}

/// A directory that belongs to the servers' user.
fn own_directory() -> TempDir {
    // Other users may pass through, but read nothing.
    fs::set_permissions(guard::home(), Permissions::from_mode(0o711)).expect("the directory is ours");
    let directory = TempDir::new_in(guard::home()).expect("a directory for the server");
    give_away(directory.path());
    directory
}

/// Gives a file to the servers' user, if that is another one.
fn give_away(path: &Path) {
    if let Some(User { uid, gid }) = server_user() {
        chown(path, Some(uid), Some(gid)).expect("root may give files away");
    }
}

/// The user `postgres` if the tests run as root.
fn server_user() -> Option<User> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let line = line.expect("there is no user postgres: run `./test`, or `apt-get install postgresql`");
    let mut numbers = line.split(':').skip(2).map(|number| number.parse().expect("a number"));
    let mut number = || numbers.next().expect("a user has two numbers");
    Some(User { uid: number(), gid: number() })
}

/// A program of PostgreSQL, run by the servers' user.
fn program(name: &str, home: &Path) -> Command {
    run_as_server_user(&binary(name), home)
}

fn run_as_server_user(binary: &Path, home: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(home).env("HOME", home).env("LC_ALL", "C");
    if let Some(User { uid, gid }) = server_user() {
        command.uid(uid).gid(gid);
    }
    command
}

fn binary(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found
        .pop()
        .unwrap_or_else(|| panic!("{name} is not installed: run `./test`, or `apt-get install postgresql`"))
}

fn log(home: &Path) -> String {
    fs::read(home.join("log")).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
}
