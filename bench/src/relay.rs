//! The mail relay beside Postfix: the same messages from `smtp-source`, on the same disk.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_testbed::Postfix;

use crate::gateway::servers::{Running, build, free_port, scratch};
use crate::rounds::{line, median, ratio};

const ROUNDS: usize = 7;
/// How many messages a round has.
const MESSAGES: u32 = 2_000;
/// How many messages wait when the relay starts with many.
const DEFERRED: u32 = 1_000_000;
/// A large message, in bytes.
const LARGE: u32 = 50_000_000;

/// Five levels with two limits each, none of which is ever reached.
const LEVELS: &str = "rules:
  global: { limits: [1000000000/hour, 4000000000/day] }
  domain: { by: domain, limits: [1000000000/hour, 4000000000/day] }
  sender: { by: sender, limits: [1000000000/hour, 4000000000/day] }
  ip: { by: ip, limits: [1000000000/hour, 4000000000/day] }
  tenant: { by: tenant, limits: [1000000000/hour, 4000000000/day] }
policies: { mail.accept: [global, domain, sender, ip, tenant] }
";

/// What becomes of messages that were accepted.
#[derive(Clone, Copy)]
enum Sending {
    /// They stay in the queue.
    Never,
    /// They go to this port.
    To(u16),
}

pub fn run() {
    let program = build();
    acceptance(&program);
    end_to_end(&program);
    large(&program);
}

/// A relay with a million messages that wait for their limit.
pub fn run_million() {
    let program = build();
    let relay = tollgate(&program, "million", "", Sending::Never);
    source(relay.port, DEFERRED, 500);
    let (port, directory) = (relay.port, relay.stop());
    let begun = Instant::now();
    let relay = serve(&program, port, directory);
    let start = begun.elapsed();
    let memory = relay.memory() >> 20;
    let took = format!("{:.1} s", start.as_secs_f64());
    line("start with 1,000,000 messages that wait", &took, "bound 30 s", start.as_secs_f64() / 30.0, "≤ 1.0");
    let resident = format!("{memory} MiB");
    line("their memory", &resident, "bound 1 GiB", memory as f64 / 1024.0, "≤ 1.0");
}

/// Accepting alone: nothing is sent meanwhile.
fn acceptance(program: &str) {
    let postfix = Postfix::start_with(9, "defer_transports = smtp relay\n");
    let plain = tollgate(program, "plain", "", Sending::Never);
    let limited = tollgate(program, "limited", LEVELS, Sending::Never);
    let mut rates = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        for (rates, port) in rates.iter_mut().zip([postfix.port(), plain.port, limited.port]) {
            let begun = Instant::now();
            source(port, MESSAGES, 2_000);
            if round > 0 {
                rates.push(f64::from(MESSAGES) / begun.elapsed().as_secs_f64());
            }
        }
    }
    let [postfix, plain, limited] = rates;
    let shown = |rates: &[f64]| format!("{:.0}/s", median(rates.to_vec()));
    let beside = |name: &str, rates: &[f64]| format!("{name} {}", shown(rates));
    line("relay, messages accepted, 20 sessions", &shown(&plain), &beside("Postfix", &postfix), ratio(&plain, &postfix), "≥ 1.0, aim 1.5");
    line("relay, accepted under five levels, ten limits", &shown(&limited), &beside("without", &plain), ratio(&limited, &plain), "≥ 0.95");
}

/// From `smtp-source` through the relay to `smtp-sink`.
fn end_to_end(program: &str) {
    let (postfix_sink, own_sink) = (free_port(), free_port());
    let postfix = Postfix::start_with(postfix_sink, "smtp_tls_security_level = none\n");
    let relay = tollgate(program, "relaying", "", Sending::To(own_sink));
    let mut rates = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        for (rates, (port, sink)) in rates.iter_mut().zip([(postfix.port(), postfix_sink), (relay.port, own_sink)]) {
            let mut sink = Sink::start(sink);
            let begun = Instant::now();
            source(port, MESSAGES, 2_000);
            sink.wait();
            if round > 0 {
                rates.push(f64::from(MESSAGES) / begun.elapsed().as_secs_f64());
            }
        }
    }
    let [postfix, own] = rates;
    let shown = |rates: &[f64]| format!("{:.0}/s", median(rates.to_vec()));
    line("relay, messages from source to sink", &shown(&own), &format!("Postfix {}", shown(&postfix)), ratio(&own, &postfix), "≥ 1.0");
}

/// The memory that a large message takes on its way in.
fn large(program: &str) {
    let relay = tollgate(program, "large", "", Sending::Never);
    source(relay.port, 20, 2_000);
    let before = relay.peak_memory();
    source(relay.port, 1, LARGE);
    let grown = relay.peak_memory().saturating_sub(before) >> 10;
    line("relay, memory for a message of 50 MB", &format!("{grown} KiB"), "the message 48828 KiB", grown as f64 / 48_828.0, "");
}

/// Starts the program with a relay, on a file.
fn tollgate(program: &str, name: &str, rules: &str, sending: Sending) -> Running {
    let (smtp, api) = (free_port(), free_port());
    let directory = scratch(name);
    let accept = if rules.is_empty() { "" } else { "  accept: mail.accept\n" };
    let accounts = match sending {
        Sending::Never => String::new(),
        Sending::To(port) => format!("  accounts: {{ default/sink: {{ host: 127.0.0.1, port: {port}, tls: none }} }}\n"),
    };
    let home = directory.display();
    let config = format!(
        "listen: {{ http: 127.0.0.1:{api} }}
store: {{ file: {home}/state.redb }}
log: {{ level: error }}
{rules}relay:
  hostname: relay.example
  listen: [{{ smtp: 127.0.0.1:{smtp} }}]
  networks: [127.0.0.0/8]
  queue: {{ dir: {home}/queue, min_free: 1MiB, max_messages: 10_000_000 }}
  max_size: 64MiB
{accept}{accounts}"
    );
    fs::write(directory.join("tollgate.yaml"), config).expect("our own directory");
    serve(program, smtp, directory)
}

/// Starts the program with the configuration of a directory.
fn serve(program: &str, port: u16, directory: PathBuf) -> Running {
    let mut command = Command::new(program);
    command.arg("serve").arg(directory.join("tollgate.yaml"));
    Running::start(command, port, directory)
}

/// Sends messages over 20 sessions at once, and waits until all are accepted.
fn source(port: u16, messages: u32, bytes: u32) {
    let sent = Command::new("/usr/sbin/smtp-source")
        .args(["-s", "20", "-m", &messages.to_string(), "-l", &bytes.to_string(), "-d"])
        .args(["-f", "app@here.example", "-t", "someone@there.example"])
        .arg(format!("127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .status();
    assert!(sent.is_ok_and(|status| status.success()), "all messages are accepted");
}

/// A sink that ends when it has all messages of a round.
struct Sink(Child);

impl Sink {
    fn start(port: u16) -> Self {
        let child = Command::new("/usr/sbin/smtp-sink")
            .args(["-u", "root", "-M", &MESSAGES.to_string()])
            .arg(format!("127.0.0.1:{port}"))
            .arg("1000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let sink = Self(child.expect("smtp-sink is installed"));
        for _ in 0..500 {
            // A connection without a message does not count.
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return sink;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the sink does not listen on {port}");
    }

    fn wait(&mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
