//! A real Postfix that hands all its mail on to one server.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tollgate_testbed::{Port, wait_until};

/// Runs Postfix until its input ends: also if the process that started it is killed.
const RUN: &str = r#"
postfix -c "$1/etc" start-fg >"$1/out" 2>&1 &
read -r _
postfix -c "$1/etc" stop >/dev/null 2>&1
wait
"#;

/// Its services: what receives, what sends, and what these need.
const SERVICES: &str = "
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
";

pub(crate) struct Postfix {
    shell: Child,
    port: Port,
    home: TempDir,
}

impl Postfix {
    /// A Postfix that relays to this port of loopback, with these settings besides.
    pub(crate) fn relaying_to(next_hop: u16, settings: &str) -> Self {
        let home = tempfile::Builder::new().prefix("postfix-").tempdir().unwrap();
        let port = Port::claim();
        let path = home.path().display();
        // Its processes run as other users.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for directory in ["etc", "queue", "data"] {
            fs::create_dir(home.path().join(directory)).unwrap();
        }
        let id = Command::new("id").args(["-u", "postfix"]).output().unwrap();
        let user = String::from_utf8(id.stdout).unwrap().trim().parse().expect("there is a user postfix");
        chown(home.path().join("data"), Some(user), None).unwrap();
        let main = format!(
            "compatibility_level = 3.6\nqueue_directory = {path}/queue\ndata_directory = {path}/data\n\
             command_directory = /usr/sbin\ndaemon_directory = /usr/lib/postfix/sbin\n\
             mail_owner = postfix\nsetgid_group = postdrop\nmyhostname = client.test\nmydestination =\n\
             inet_interfaces = 127.0.0.1\ninet_protocols = ipv4\nmynetworks = 127.0.0.0/8\n\
             relayhost = [127.0.0.1]:{next_hop}\nalias_maps =\nalias_database =\n\
             maillog_file = {path}/log\nmaillog_file_prefixes = {path}\n{settings}\n"
        );
        fs::write(home.path().join("etc/main.cf"), main).unwrap();
        let master = format!("127.0.0.1:{} inet n - n - - smtpd{SERVICES}", port.number());
        fs::write(home.path().join("etc/master.cf"), master).unwrap();
        let shell = Command::new("sh")
            .args(["-c", RUN, "sh"])
            .arg(home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let postfix = Self { shell, port, home };
        wait_until("Postfix listens", || std::net::TcpStream::connect(postfix.address()).is_ok());
        postfix
    }

    /// Where it receives mail.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// How many messages are in its queue.
    pub(crate) fn queued(&self) -> usize {
        let listed = self.queue(&["-j"]);
        listed.lines().count()
    }

    /// Tries to send everything that is in its queue.
    pub(crate) fn flush(&self) {
        self.queue(&["-f"]);
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    fn queue(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("/usr/sbin/postqueue");
        let output = command.arg("-c").arg(self.home.path().join("etc")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        if let Some(mut input) = self.shell.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        let _ = self.shell.wait();
    }
}
