//! nginx, Caddy and HAProxy start with a given configuration, respond, and end.
#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use tollgate_testbed::{Front, PATIENCE};

fn started() -> [Front; 3] {
    let nginx = |port, _: &Path| format!("server {{ listen 127.0.0.1:{port}; return 200 'it is nginx'; }}");
    let caddy = |port, _: &Path| {
        format!("{{\n\tadmin off\n}}\nhttp://127.0.0.1:{port} {{\n\trespond \"it is {{$SAID}}\"\n}}\n")
    };
    let haproxy = |port, home: &Path| {
        let said = home.join("said").display().to_string();
        format!(
            "frontend web\n    bind 127.0.0.1:{port}\n    http-request return status 200 content-type text/plain file {said}\n"
        )
    };
    [
        Front::nginx().start(nginx),
        Front::caddy().variable("SAID", "caddy").start(caddy),
        Front::haproxy().file("said", "it is haproxy").start(haproxy),
    ]
}

fn ask(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_web_server_does_what_its_configuration_says_and_ends_when_told() {
    for (front, said) in started().into_iter().zip(["it is nginx", "it is caddy", "it is haproxy"]) {
        let (port, pid) = (front.port(), front.pid());
        assert!(ask(port).ends_with(said), "{said}: {}", front.log());
        assert!(runs(pid));
        front.stop();
        assert!(!runs(pid), "{said}");
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{said}");
    }
}

#[test]
fn a_web_server_ends_with_its_value() {
    let pids: Vec<u32> = started().iter().map(Front::pid).collect();
    assert!(!pids.into_iter().any(runs));
}

#[test]
#[should_panic(expected = "unknown directive \"nonsense\"")]
fn a_wrong_configuration_is_told_with_what_the_server_says_of_it() {
    let _ = Front::nginx().start(|_, _| "nonsense;".to_owned());
}
