//! Mail servers of Postfix: `smtp-sink`, which accepts everything and keeps it in files, and Postfix itself
//! as a next hop that relays to a sink.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::guard::{self, Guarded};
use crate::patience::{PATIENCE, now, pause, wait_until};
use crate::port::Port;

/// A server that accepts every message and keeps it in a file. Dropping it stops it.
#[derive(Debug)]
pub struct Sink {
    process: Guarded,
    port: Port,
    directory: TempDir,
}

/// A message that a sink accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sunk {
    /// The text after `MAIL FROM:`.
    pub sender: String,
    /// The text after each `RCPT TO:`.
    pub recipients: Vec<String>,
    /// The text, with LF as line end.
    pub text: String,
    /// When the last byte of it was written.
    pub arrived: SystemTime,
}

/// A Postfix that relays everything from loopback to a sink. Dropping it stops it.
#[derive(Debug)]
pub struct Postfix {
    process: Guarded,
    port: Port,
    certificates: Certificates,
    directory: TempDir,
}

impl Sink {
    /// Starts a sink.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a sink with more options, such as `-r RCPT`.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        let directory = TempDir::new_in(guard::home()).expect("a directory for the sink");
        fs::create_dir(directory.path().join("mail")).expect("the directory can be written to");
        let port = Port::claim();
        let log = File::create(directory.path().join("log")).expect("the directory can be written to");
        let mut command = Command::new("/usr/sbin/smtp-sink");
        command.current_dir(directory.path());
        if rustix::process::getuid().is_root() {
            command.args(["-u", "root"]);
        }
        command.args(options).args(["-d", "mail/m."]).arg(format!("127.0.0.1:{}", port.number())).arg("1000");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut process = Guarded::spawn(&mut command);
        wait_for(&mut process, &port, &directory.path().join("log"));
        Self { process, port, directory }
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// How many messages it accepted.
    ///
    /// # Panics
    ///
    /// If its directory cannot be read.
    #[must_use]
    pub fn count(&self) -> usize {
        self.messages().len()
    }

    /// The messages that it accepted and has written completely.
    ///
    /// # Panics
    ///
    /// If its directory cannot be read.
    #[must_use]
    pub fn messages(&self) -> Vec<Sunk> {
        let entries = fs::read_dir(self.directory.path().join("mail")).expect("the sink's directory");
        let files = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let text = fs::read(&path).ok()?;
            Some((text, fs::metadata(&path).and_then(|file| file.modified()).ok()?))
        });
        files.filter_map(|(text, at)| Sunk::parse(&String::from_utf8_lossy(&text), at)).collect()
    }

    /// Pauses it: connections are accepted, but nothing is answered.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }
}

impl Sunk {
    /// Parses a file of the sink; `None` if it is incomplete. The sink ends each one with an empty line.
    fn parse(file: &str, arrived: SystemTime) -> Option<Self> {
        let (mut sender, mut recipients) = (None, Vec::new());
        let mut rest = file;
        while let Some((line, more)) = rest.split_once('\n') {
            if let Some(args) = line.strip_prefix("X-Mail-Args: ") {
                sender = Some(args.to_owned());
            } else if let Some(args) = line.strip_prefix("X-Rcpt-Args: ") {
                recipients.push(args.to_owned());
            } else if line.starts_with("Received: ") {
                // Two lines of the sink itself follow.
                let text = more.split_inclusive('\n').skip_while(|line| line.starts_with('\t'));
                let text: String = text.collect();
                let text = text.strip_suffix('\n')?.to_owned();
                return Some(Self { sender: sender?, recipients, text, arrived });
            }
            rest = more;
        }
        None
    }
}

impl Postfix {
    /// Starts a Postfix that relays to a loopback port. It offers STARTTLS. Like Postfix, this needs root.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start(relay_to: u16) -> Self {
        Self::start_with(relay_to, "")
    }

    /// As [`Postfix::start`], with more lines in its `main.cf`.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start_with(relay_to: u16, settings: &str) -> Self {
        // Its processes run as other users, who must reach their directories.
        fs::set_permissions(guard::home(), fs::Permissions::from_mode(0o711)).expect("it is our directory");
        let directory = TempDir::new_in(guard::home()).expect("a directory for Postfix");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
            .expect("it is our directory");
        let certificates = Certificates::make();
        let port = Port::claim();
        for part in ["config", "queue", "data"] {
            fs::create_dir(directory.path().join(part)).expect("the directory can be written to");
        }
        let owned = Command::new("chown").arg("postfix").arg(directory.path().join("data")).status();
        assert!(owned.expect("there is chown").success(), "there is a user for Postfix");
        let home = directory.path().display().to_string();
        let fill = |text: &str| {
            text.replace("@home@", &home)
                .replace("@port@", &port.number().to_string())
                .replace("@relay@", &relay_to.to_string())
                .replace("@certificate@", &certificates.certificate.display().to_string())
                .replace("@key@", &certificates.key.display().to_string())
        };
        let config = directory.path().join("config");
        fs::write(config.join("main.cf"), fill(MAIN) + settings).expect("the directory can be written to");
        fs::write(config.join("master.cf"), fill(MASTER)).expect("the directory can be written to");
        let log = File::create(directory.path().join("log")).expect("the directory can be written to");
        // Creates the directories of the queue, and checks the configuration.
        let checked = Command::new("/usr/sbin/postfix").arg("-c").arg(&config).arg("check").output();
        let checked = checked.expect("there is Postfix");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        // `postfix start-fg` would start the same from a shell, but leave it running if it is killed itself.
        let mut command = Command::new("/usr/lib/postfix/sbin/master");
        command.arg("-c").arg(&config).arg("-d").current_dir("/").stdin(Stdio::null());
        command.stderr(log.try_clone().expect("a file can be shared")).stdout(log);
        let mut process = Guarded::spawn(&mut command);
        wait_for(&mut process, &port, &directory.path().join("log"));
        Self { process, port, certificates, directory }
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The certificate of its authority, for `localhost`.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.certificates.authority
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        let path: PathBuf = self.directory.path().join("maillog");
        fs::read(path).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        // It ends its own processes when it is asked to end.
        if !self.process.has_ended() {
            self.process.signal(Signal::TERM);
        }
        let start = now();
        while !self.process.has_ended() && start.elapsed() < PATIENCE {
            pause(Duration::from_millis(10));
        }
    }
}

fn wait_for(process: &mut Guarded, port: &Port, log: &Path) {
    let told = || fs::read(log).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default();
    wait_until("the mail server listens", || {
        assert!(!process.has_ended(), "the mail server does not start: {}", told());
        TcpStream::connect(("127.0.0.1", port.number())).is_ok()
    });
}

const MAIN: &str = "
compatibility_level = 3.6
queue_directory = @home@/queue
data_directory = @home@/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
myhostname = postfix.example
mydestination =
relayhost = [127.0.0.1]:@relay@
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_recipient_restrictions = permit_mynetworks, reject
smtpd_tls_cert_file = @certificate@
smtpd_tls_key_file = @key@
smtpd_tls_security_level = may
smtpd_peername_lookup = no
smtp_dns_support_level = disabled
alias_maps =
alias_database =
local_recipient_maps =
maillog_file = @home@/maillog
maillog_file_prefixes = @home@
";

const MASTER: &str = "
@port@    inet  n - n - - smtpd
pickup    unix  n - n 60 1 pickup
cleanup   unix  n - n - 0 cleanup
qmgr      unix  n - n 300 1 qmgr
rewrite   unix  - - n - - trivial-rewrite
bounce    unix  - - n - 0 bounce
defer     unix  - - n - 0 bounce
trace     unix  - - n - 0 bounce
verify    unix  - - n - 1 verify
flush     unix  n - n 1000? 0 flush
proxymap  unix  - - n - - proxymap
smtp      unix  - - n - - smtp
relay     unix  - - n - - smtp
error     unix  - - n - - error
retry     unix  - - n - - error
discard   unix  - - n - - discard
tlsmgr    unix  - - n 1000? 1 tlsmgr
anvil     unix  - - n - 1 anvil
scache    unix  - - n - 1 scache
postlog   unix-dgram n - n - 1 postlogd
";
