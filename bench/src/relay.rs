//! The mail relay beside Postfix: the same messages from `smtp-source`, on the same disk.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate_testbed::Postfix;

use crate::gateway::servers::{Running, build, free_port, scratch};
use crate::rounds::{line, median, ratio};

const ROUNDS: usize = 7;
/// How many messages a round has.
const MESSAGES: u32 = 2_000;
/// How many messages wait when the relay starts with many.
const DEFERRED: u32 = 1_000_000;
/// To how many domains.
const DOMAINS: u32 = 100;
/// One message for each domain in this time.
const PERIOD: Duration = Duration::from_secs(20);
const SLOW: &str = "rules: { pace: { by: recipient_domain, limits: 1/20s sliding } }
policies: { mail.deliver: [pace] }
";
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

/// A relay with a million messages that wait for their limits.
pub fn run_million() {
    let program = build();
    let arrivals = Arrivals::listen();
    let relay = tollgate(&program, "million", SLOW, Sending::To(arrivals.port));
    for domain in 0..DOMAINS {
        source_to(relay.port, DEFERRED / DOMAINS, 500, &format!("someone@d{domain}.example"));
    }
    let (port, directory) = (relay.port, relay.stop());
    let begun = Instant::now();
    let relay = serve(&program, port, directory);
    greeting(port);
    let start = begun.elapsed();
    let took = format!("{:.1} s", start.as_secs_f64());
    line("relay, start with 1,000,000 messages that wait", &took, "30 s", start.as_secs_f64() / 30.0, "< 1");
    arrivals.forget();
    std::thread::sleep(4 * PERIOD);
    let memory = relay.peak_memory() >> 20;
    line("relay, memory with 1,000,000 messages that wait", &format!("{memory} MiB"), "1 GiB", memory as f64 / 1024.0, "< 1");
    let late = arrivals.lateness();
    let latest = late.last().expect("lanes wake");
    let what = format!("relay, the latest of {} wakes of {DOMAINS} lanes", late.len());
    line(&what, &format!("{:.0} ms", latest * 1e3), "100 ms", latest * 10.0, "< 1");
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
    let policies = ["accept", "deliver"].map(|door| {
        if rules.contains(&format!("mail.{door}")) { format!("  {door}: mail.{door}\n") } else { String::new() }
    });
    let policies = policies.concat();
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
{policies}{accounts}"
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

/// Waits for the relay's greeting: it accepts connections earlier.
fn greeting(port: u16) {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a greeting");
    assert!(line.starts_with("220 "), "{line}");
}

fn source(port: u16, messages: u32, bytes: u32) {
    source_to(port, messages, bytes, "someone@there.example");
}

/// Sends messages over 20 sessions at once, and waits until all are accepted.
fn source_to(port: u16, messages: u32, bytes: u32, recipient: &str) {
    let sent = Command::new("/usr/sbin/smtp-source")
        .args(["-s", "20", "-m", &messages.to_string(), "-l", &bytes.to_string(), "-d"])
        .args(["-f", "app@here.example", "-t", recipient])
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

/// An SMTP server that notes when a message for which domain arrives.
struct Arrivals {
    port: u16,
    seen: Arc<Mutex<HashMap<String, Vec<Instant>>>>,
}

impl Arrivals {
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let seen: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
        let noted = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || receive(&stream, &noted));
            }
        });
        Self { port, seen }
    }

    fn forget(&self) {
        self.seen.lock().expect("no thread has panicked").clear();
    }

    /// How much later than a period after the message before it each message came, in seconds, in order.
    fn lateness(&self) -> Vec<f64> {
        let seen = self.seen.lock().expect("no thread has panicked");
        let gaps = seen.values().flat_map(|times| times.windows(2).map(|two| two[1] - two[0]));
        let mut late: Vec<f64> = gaps.map(|gap| gap.as_secs_f64() - PERIOD.as_secs_f64()).collect();
        late.sort_by(f64::total_cmp);
        late
    }
}

/// Accepts everything on one connection.
fn receive(stream: &TcpStream, seen: &Mutex<HashMap<String, Vec<Instant>>>) {
    let mut writer = stream;
    let _ = writer.write_all(b"220 sink\r\n");
    let (mut domain, mut is_text) = (String::new(), false);
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let reply: &[u8] = match line.as_str() {
            "." if is_text => {
                is_text = false;
                let mut seen = seen.lock().expect("no thread has panicked");
                seen.entry(std::mem::take(&mut domain)).or_default().push(Instant::now());
                b"250 ok\r\n"
            }
            _ if is_text => continue,
            "DATA" => {
                is_text = true;
                b"354 go on\r\n"
            }
            "QUIT" => return,
            line => {
                if let Some((_, rest)) = line.split_once('@').filter(|_| line.starts_with("RCPT")) {
                    domain = rest.split('>').next().unwrap_or_default().to_owned();
                }
                if line.starts_with("EHLO") { b"250-sink\r\n250 PIPELINING\r\n" } else { b"250 ok\r\n" }
            }
        };
        if writer.write_all(reply).is_err() {
            return;
        }
    }
}
