//! Load from other processes: wrk for as much as goes, h2load for a moment and at a pace.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How many answers the slowest of a hundred is taken from.
const PACED: usize = 4000;

/// Sixty-four connections, each with one request on its way, for so long: so many that a proxy which
/// answers by itself hardly ever waits for the load. Returns how many went through in a second.
pub fn wrk(url: &str, time: Duration) -> f64 {
    let duration = format!("{}s", time.as_secs());
    let arguments = ["-c", "1", "wrk", "-t", "1", "-c", "64", "-d", &duration, url];
    let output = Command::new("taskset").args(arguments).output().expect("wrk is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.contains("Non-2xx"), "{url}: {text}");
    let line = text.lines().find(|line| line.contains(" requests in ")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let requests: f64 = words[0].parse().expect("a number of requests");
    let seconds: f64 = words[3].trim_end_matches([',', 's']).parse().expect("a number of seconds");
    requests / seconds
}

/// Requests over sixty-four connections: a moment's load, where what is compared has to come close after one
/// another.
#[derive(Default)]
pub struct Burst {
    /// A file of JSON to post.
    pub body: Option<PathBuf>,
    /// Whether every answer is a 429, except one that the limit admits.
    pub refused: bool,
}

impl Burst {
    /// How many requests are in a burst.
    pub const REQUESTS: usize = 8_000;

    pub fn send(&self, url: &str) {
        let requests = Self::REQUESTS.to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", "1", "h2load", "--h1", "-t", "1", "-c", "64", "-n", &requests]);
        if let Some(body) = &self.body {
            command.arg("-d").arg(body).args(["-H", "content-type: application/json"]);
        }
        let output = command.arg(url).output().expect("h2load is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = |refused: usize| format!("status codes: {} 2xx, 0 3xx, {refused} 4xx, 0 5xx", Self::REQUESTS - refused);
        // The limit admits one request now and then.
        let answered = if self.refused { [Self::REQUESTS, Self::REQUESTS - 1] } else { [0; 2] };
        let answered = answered.iter().any(|refused| text.contains(&expected(*refused)));
        assert!(output.status.success() && answered, "{url}: {text}");
    }
}

/// The slowest of a hundred answers at two thousand requests a second, in microseconds.
pub fn p99(url: &str, port: u16) -> f64 {
    let log = std::env::temp_dir().join(format!("tollgate-bench-{}-{port}.log", std::process::id()));
    let file = log.to_str().expect("a plain path");
    let requests = PACED.to_string();
    let arguments = ["-c", "1", "h2load", "--h1", "-c", "16", "-n", &requests, "--rps", "125", "--log-file", file, url];
    let output = Command::new("taskset").args(arguments).output().expect("h2load is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = std::fs::read_to_string(&log).expect("a log");
    std::fs::remove_file(&log).expect("our own file");
    let mut times: Vec<f64> = text.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
    assert_eq!(times.len(), PACED);
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// A connection that was used once.
pub fn ask_once(port: u16, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("room for a connection");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("a peer");
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer).expect("a peer");
    assert!(buffer[..read].starts_with(b"HTTP/1.1 200"));
    stream
}
