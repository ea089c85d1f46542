//! Behaviour on a terminal: colours, questions, and the live screen. The terminal is a pseudo-terminal of 24
//! lines.
#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::responder::{Reply, Responder, program};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

const TOP: &str = r#"{"offenders":[{"rule":"client","key":"10.0.0.1","denied":1234,"last":"2026-01-01T00:00:00Z"}],"totals":[{"policy":"api","rule":"","outcome":"allow","count":1500}]}"#;
const DENIED: &str = r#"{"allowed":false,"verdict":"deny","denied_by":"sender","denied_key":"u","retry_after_ms":1000,"rules":[{"rule":"sender","key":"u","exceeded":true,"observed":false,"limits":[{"limit":"1/s","capacity":1,"remaining":0,"reset_after_ms":1000,"retry_after_ms":1000}]}]}"#;

const ENTERED: &str = "\x1b[?1049h";
const LEFT: &str = "\x1b[?1049l";
const SHOWN_CURSOR: &str = "\x1b[?25h";

/// Both ends of a pseudo-terminal.
struct Terminal {
    user: File,
    program: File,
    printed: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn open() -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let program = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let user = File::from(controller);
        let (sender, printed) = mpsc::channel();
        let mut reader = user.try_clone().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { user, program, printed, seen: String::new() }
    }

    fn start(&self, server: &Responder, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
        let end = || Stdio::from(self.program.try_clone().unwrap());
        program(&server.url(), arguments)
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap()
    }

    /// Reads until this was printed; fails if nothing more comes for long.
    fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let bytes = self.printed.recv_timeout(Duration::from_secs(30));
            let bytes = bytes.unwrap_or_else(|_| panic!("{text:?} never came: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    fn press(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).unwrap();
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(self.program.as_fd()).unwrap().local_modes
    }
}

#[test]
fn the_live_screen_ends_with_a_key_and_gives_the_terminal_back() {
    for key in ["q", "\x03"] {
        let server = Responder::always(Reply::Json(200, TOP));
        let mut terminal = Terminal::open();
        let before = terminal.modes();
        let mut child = terminal.start(&server, &["top", "--interval", "50ms"], &[]);
        terminal.wait_for("10.0.0.1");
        assert!(terminal.seen.contains(ENTERED));
        assert!(!terminal.modes().contains(LocalModes::ICANON), "keys come one by one");
        server.wait_for(3);
        terminal.press(key);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        terminal.wait_for(LEFT);
        assert!(terminal.seen.contains(SHOWN_CURSOR));
        assert_eq!(terminal.modes(), before);
    }
}

#[test]
fn a_signal_gives_the_terminal_back_too() {
    let server = Responder::always(Reply::Json(200, TOP));
    let mut terminal = Terminal::open();
    let before = terminal.modes();
    let mut child = terminal.start(&server, &["top"], &[]);
    terminal.wait_for("10.0.0.1");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    terminal.wait_for(LEFT);
    assert_eq!(terminal.modes(), before);
}

#[test]
fn a_server_that_goes_away_is_said_and_asked_again() {
    let asked = AtomicUsize::new(0);
    let server = Responder::start(move |request| match request.line.contains("/top") {
        true if asked.fetch_add(1, Ordering::Relaxed) == 1 => Reply::Close,
        true => Reply::Json(200, TOP),
        // There is no relay.
        false => Reply::Problem(404, DENIED),
    });
    let mut terminal = Terminal::open();
    let mut child = terminal.start(&server, &["top", "--interval", "50ms"], &[]);
    terminal.wait_for("cannot reach");
    server.wait_for(4);
    terminal.press("q");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_hangs_does_not_hold_up_the_keyboard() {
    let asked = AtomicUsize::new(0);
    let server = Responder::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Json(200, TOP),
        _ => Reply::Hang,
    });
    let mut terminal = Terminal::open();
    let mut child = terminal.start(&server, &["top", "--interval", "10ms", "--timeout", "1h"], &[]);
    server.wait_for(2);
    terminal.wait_for("10.0.0.1");
    terminal.press("q");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn colours_come_on_a_terminal_unless_they_are_not_wanted() {
    let server = Responder::always(Reply::Problem(429, DENIED));
    let mut terminal = Terminal::open();
    let mut child = terminal.start(&server, &["check", "p"], &[]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    terminal.wait_for("0 of 1");
    assert!(terminal.seen.contains("\x1b[31m"), "{:?}", terminal.seen);

    let mut terminal = Terminal::open();
    let mut child = terminal.start(&server, &["check", "p"], &[("NO_COLOR", "1")]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    terminal.wait_for("0 of 1");
    assert!(!terminal.seen.contains('\x1b'), "{:?}", terminal.seen);
}

#[test]
fn no_colour_leaves_the_live_screen_alive() {
    let server = Responder::always(Reply::Json(200, TOP));
    let mut terminal = Terminal::open();
    let mut child = terminal.start(&server, &["top"], &[("NO_COLOR", "1")]);
    terminal.wait_for("10.0.0.1");
    terminal.press("q");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    terminal.wait_for(LEFT);
    assert!(terminal.seen.contains(ENTERED) && !terminal.seen.contains("\x1b[31m"), "{:?}", terminal.seen);
    assert!(!terminal.seen.contains("\x1b[32m") && !terminal.seen.contains("\x1b[1m"));
}

#[test]
fn everything_is_forgotten_only_after_a_yes() {
    for (typed, code, count) in [("yes\n", 0, 1), ("y\n", 2, 0), ("\n", 2, 0), ("\x04", 2, 0)] {
        let server = Responder::always(Reply::Json(200, r#"{"reset":true}"#));
        let mut terminal = Terminal::open();
        let mut child = terminal.start(&server, &["reset", "--all"], &[]);
        terminal.wait_for("Type yes: ");
        assert!(server.asked().is_empty());
        terminal.press(typed);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{typed:?}");
        assert_eq!(server.asked().len(), count, "{typed:?}");
    }
}

#[test]
fn a_load_shows_its_progress_on_a_terminal() {
    let server = Responder::always(Reply::Json(200, r#"{"allowed":true,"verdict":"allow","rules":[]}"#));
    let mut terminal = Terminal::open();
    let mut child =
        terminal.start(&server, &["bench", "--policy", "api", "--duration", "1s", "--connections", "1"], &[]);
    terminal.wait_for("/s, 0 errors");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    terminal.wait_for("requests in ");
}

#[test]
fn a_replay_shows_its_progress_on_a_terminal_and_clears_it() {
    let home = tempfile::tempdir().unwrap();
    let config = "store: memory\nrules: { client: { by: ip, limits: 2/min } }\npolicies: { api: [client] }\n";
    std::fs::write(home.path().join("new.yaml"), config).unwrap();
    let line = |second: u32| {
        format!(
            "192.0.2.7 - - [17/Nov/2026:09:{:02}:{:02} +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"x\"\n",
            second / 60,
            second % 60
        )
    };
    let log: String = (0..200_000).map(|number| line(number / 100)).collect();
    std::fs::write(home.path().join("access.log"), log).unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let server = Responder::always(Reply::Json(200, TOP));
    let mut terminal = Terminal::open();
    let (config, log) = (path("new.yaml"), path("access.log"));
    let mut child = terminal.start(&server, &["replay", "--config", &config, &log], &[]);
    terminal.wait_for("denied ");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let (bar, summary) = terminal.seen.split_once("(combined)").unwrap();
    assert!(bar.contains("%") && bar.contains("/s"), "there is a bar before the summary: {bar:?}");
    assert!(bar.contains("\x1b[2K") || bar.contains("\r"), "the bar is cleared: {bar:?}");
    assert!(!summary.contains("B/s"), "the summary stands alone: {summary:?}");
}

#[test]
fn the_doctor_colours_what_it_finds() {
    let server = Responder::always(Reply::Json(200, TOP));
    let mut terminal = Terminal::open();
    let mut child = terminal.start(&server, &["doctor"], &[("TOLLGATE__STORE", "memory")]);
    terminal.wait_for("\x1b[36mnote");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
