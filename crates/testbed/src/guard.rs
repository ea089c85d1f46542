//! Makes sure that no server outlives the process that started it, however that ends.
//!
//! Dropping a server stops it. But a killed test process drops nothing, and statics are never dropped.
//! `PR_SET_PDEATHSIG` would need `unsafe`, and depends on the thread that started the child, not on the
//! process. So each test process has one shell that reads from a pipe the ids of processes that were started
//! and of those that ended. When the pipe closes, for any reason, the shell kills the remaining ones and
//! removes their common directory.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;

/// The script of the shell. It ignores the signals that a terminal sends to all processes.
const WATCH: &str = r#"
trap '' HUP INT TERM
left=
while read -r word pid; do
  rest=
  for each in $left; do [ "$each" = "$pid" ] || rest="$rest $each"; done
  left=$rest
  [ "$word" = started ] && left="$left $pid"
done
for each in $left; do kill -9 "$each" 2>/dev/null; done
rm -rf -- "$1"
"#;

struct Watcher {
    told: Mutex<ChildStdin>,
    home: TempDir,
}

#[expect(clippy::zombie_processes, reason = "the shell outlives this process, which is its purpose")]
fn watcher() -> &'static Watcher {
    static WATCHER: OnceLock<Watcher> = OnceLock::new();
    WATCHER.get_or_init(|| {
        let home = tempfile::Builder::new().prefix("testbed-").tempdir().expect("a temporary directory");
        let mut shell = Command::new("sh")
            .args(["-c", WATCH, "sh"])
            .arg(home.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        let told = Mutex::new(shell.stdin.take().expect("its input is a pipe"));
        Watcher { told, home }
    })
}

fn tell(word: &str, pid: u32) {
    let mut told = watcher().told.lock().unwrap_or_else(PoisonError::into_inner);
    // One write is one line, so a killed process leaves it complete or out.
    told.write_all(format!("{word} {pid}\n").as_bytes()).expect("the watching shell runs");
}

/// The parent of all server directories of this process.
pub(crate) fn home() -> &'static Path {
    watcher().home.path()
}

/// A child process that ends with this value, or with this process.
#[derive(Debug)]
pub(crate) struct Guarded(Child);

impl Guarded {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        let child =
            child.unwrap_or_else(|error| panic!("{} starts: {error}", command.get_program().display()));
        tell("started", child.id());
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        // Not `try_wait`: until it is waited for, no other process can get its id.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        stat.is_err()
            || stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("the server runs");
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // It may have ended already. Its id is removed before another process can get it.
        let _ = self.0.kill();
        tell("ended", self.0.id());
        let _ = self.0.wait();
    }
}
