//! Web servers in front of a service: nginx, Caddy and HAProxy, each with the configuration of a test.
//!
//! Each runs as one process in the foreground, so that ending that process ends all of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::binary;
use crate::guard::{self, Guarded};
use crate::patience::{PATIENCE, now, pause, wait_until};
use crate::port::Port;

/// How often another port is tried if another process took the claimed one.
const TRIES: usize = 5;

/// The further configuration of every nginx here. `@home@` stands for its directory.
const NGINX: &str = "
daemon off;
master_process off;
pid @home@/pid;
error_log stderr info;
events {}
http {
    access_log off;
    client_body_temp_path @home@/body;
    proxy_temp_path @home@/proxy;
    fastcgi_temp_path @home@/fastcgi;
    uwsgi_temp_path @home@/uwsgi;
    scgi_temp_path @home@/scgi;
    include @home@/site;
}
";

/// The further configuration of every HAProxy here.
const HAPROXY: &str = "
global
    log stderr format raw local0
    maxconn 1000
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
";

/// The kind of web server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Nginx,
    Caddy,
    Haproxy,
}

/// A web server that can be started.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    maker: Maker,
    files: Vec<(String, String)>,
    variables: Vec<(String, String)>,
}

/// A running web server. Dropping it stops it and deletes its directory.
#[derive(Debug)]
pub struct Front {
    /// Before the directory, so that it is dropped first.
    process: Guarded,
    port: Port,
    directory: TempDir,
}

impl Front {
    /// An nginx. Its configuration is the content of `http { … }`.
    #[must_use]
    pub fn nginx() -> FrontOptions {
        FrontOptions::of(Maker::Nginx)
    }

    /// A Caddy. Its configuration is a whole Caddyfile, which should say `admin off`, since the admin port is
    /// the same for all.
    #[must_use]
    pub fn caddy() -> FrontOptions {
        FrontOptions::of(Maker::Caddy)
    }

    /// An HAProxy. Its configuration follows fixed `global` and `defaults` sections.
    #[must_use]
    pub fn haproxy() -> FrontOptions {
        FrontOptions::of(Maker::Haproxy)
    }

    /// The port for its configuration.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        log(self.directory.path())
    }

    /// Stops it as an operator would, and waits for that.
    pub fn stop(mut self) {
        self.process.signal(Signal::TERM);
        wait_until("the web server's end", || self.process.has_ended());
    }
}

impl FrontOptions {
    fn of(maker: Maker) -> Self {
        Self { maker, files: Vec::new(), variables: Vec::new() }
    }

    /// Adds a file to its directory.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it with the configuration that `config` returns for a port and a directory, and waits until it
    /// listens.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[must_use]
    pub fn start(self, config: impl Fn(u16, &Path) -> String) -> Front {
        let directory = TempDir::new_in(guard::home()).expect("a directory for the web server");
        for (name, text) in &self.files {
            write(directory.path(), name, text);
        }
        for _ in 0..TRIES {
            let port = Port::claim();
            write(directory.path(), "site", &config(port.number(), directory.path()));
            match self.try_start(directory.path(), &port) {
                Ok(process) => return Front { process, port, directory },
                Err(log) if log.to_ascii_lowercase().contains("address already in use") => {}
                Err(log) => panic!("the web server does not start: {log}"),
            }
        }
        panic!("other programs take every port that is claimed");
    }

    /// Starts it and waits until it listens; the error is its log.
    fn try_start(&self, home: &Path, port: &Port) -> Result<Guarded, String> {
        let output = File::create(home.join("log")).expect("the directory can be written to");
        let mut command = self.maker.command(home);
        command.current_dir(home).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stderr(output.try_clone().expect("a file can be shared")).stdout(output);
        let mut process = Guarded::spawn(&mut command);
        let start = now();
        loop {
            if process.has_ended() {
                return Err(log(home));
            }
            if std::net::TcpStream::connect(("127.0.0.1", port.number())).is_ok()
                && self.maker.serves_all(home)
            {
                return Ok(process);
            }
            assert!(start.elapsed() < PATIENCE, "the web server does not listen: {}", log(home));
            pause(Duration::from_millis(5));
        }
    }
}

impl Maker {
    /// Whether it serves all of its sites, once it serves one.
    fn serves_all(self, home: &Path) -> bool {
        match self {
            Self::Nginx | Self::Haproxy => true,
            // Caddy opens one site after the other.
            Self::Caddy => log(home).contains("serving initial configuration"),
        }
    }

    /// The command that runs it in this directory, with its configuration in the file `site`.
    fn command(self, home: &Path) -> Command {
        match self {
            Self::Nginx => {
                let text = NGINX.replace("@home@", &home.display().to_string());
                let mut command = Command::new(binary::nginx());
                command.arg("-p").arg(home).arg("-c").arg(write(home, "main", &text)).args(["-e", "stderr"]);
                command
            }
            Self::Caddy => {
                let mut command = Command::new(binary::caddy());
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(home.join("site"));
                // Its data directories, instead of those of the user.
                command.env("HOME", home).env("XDG_DATA_HOME", home).env("XDG_CONFIG_HOME", home);
                command
            }
            Self::Haproxy => {
                let mut command = Command::new(binary::haproxy());
                command
                    .arg("-db")
                    .arg("-f")
                    .arg(write(home, "main", HAPROXY))
                    .arg("-f")
                    .arg(home.join("site"));
                command
            }
        }
    }
}

fn write(home: &Path, name: &str, text: &str) -> PathBuf {
    let path = home.join(name);
    std::fs::write(&path, text).expect("the directory can be written to");
    path
}

fn log(home: &Path) -> String {
    std::fs::read(home.join("log")).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
}
