//! File descriptors: the program raises its limit, warns if it is low, and does not fill the log when none
//! are left.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Once;
use std::time::Duration;

use crate::program::{Home, Server, now, pause, wait_until};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The soft and hard limits of the programs started here.
const SOFT: u64 = 256;
const HARD: u64 = 1024;

const CONFIG: &str = "
store: memory
rules: { one: { by: ip, limits: 1000000/day } }
policies: { p: [one] }
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: { shop: 127.0.0.1:9 }
  routes: { all: { upstream: shop } }
";

const FEW: &str = "the limit of file descriptors is lower";
const NOT_ACCEPTED: &str = "a connection could not be accepted";

/// Starts the program with few descriptors. The bound is of the whole process, so each test has its own.
fn start(config: &str) -> Server {
    static LOWERED: Once = Once::new();
    LOWERED.call_once(|| {
        let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(HARD);
        assert!(allowed >= HARD, "this test needs {HARD} file descriptors");
        let few = Rlimit { current: Some(SOFT), maximum: Some(HARD) };
        setrlimit(Resource::Nofile, few).unwrap();
    });
    Home::with(config).start()
}

fn pid(server: &Server) -> Pid {
    Pid::from_raw(server.pid().try_into().unwrap()).unwrap()
}

#[test]
fn the_program_takes_as_many_as_it_may_and_says_if_they_are_few() {
    if !tollgate_testbed::alone(
        module_path!(),
        "the_program_takes_as_many_as_it_may_and_says_if_they_are_few",
    ) {
        return;
    }
    let server = start(&format!("{CONFIG}  bounds: {{ connections: 30000 }}\n"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>());
    assert_eq!([numbers.next(), numbers.next()], [Some(Ok(HARD)), Some(Ok(HARD))]);
    let log = server.stop();
    assert_eq!(log.matches(FEW).count(), 1, "{log}");
    assert!(log.contains("60000"), "{log}");

    let bounded = start(&format!("{CONFIG}  bounds: {{ connections: 512 }}\n"));
    assert!(!bounded.stop().contains(FEW), "1024 are enough for them");
    assert!(!start(CONFIG).stop().contains(FEW), "the default is no wish of the operator");
}

#[test]
fn when_there_are_none_left_the_log_says_so_once_in_a_while() {
    if !tollgate_testbed::alone(module_path!(), "when_there_are_none_left_the_log_says_so_once_in_a_while") {
        return;
    }
    let server = start(CONFIG);
    let began = now();
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
    let limit = |current| Rlimit { current: Some(current), maximum: Some(HARD) };
    prlimit(Some(pid(&server)), Resource::Nofile, limit(open)).unwrap();
    // More connections than free descriptors below the limit.
    let waiting: Vec<_> = (0..50).map(|_| [server.connect(), server.gateway()]).collect();
    for component in ["server", "gateway"] {
        wait_until(component, || {
            server.log().lines().any(|line| line.contains(NOT_ACCEPTED) && line.contains(component))
        });
    }
    // Time for many more lines, if they were not rate-limited.
    pause(Duration::from_millis(500));
    prlimit(Some(pid(&server)), Resource::Nofile, limit(HARD)).unwrap();
    drop(waiting);
    assert_eq!(server.get("/livez").status, 200, "it goes on");
    let log = server.stop();
    let most = 2 * (1 + began.elapsed().as_secs() / 10);
    assert!(log.matches(NOT_ACCEPTED).count() as u64 <= most, "{log}");
}
