//! The servers that are measured, each a process of its own.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server that ends with the measurement.
pub struct Running {
    child: Child,
    pub port: u16,
    directory: PathBuf,
}

/// No client reaches this rate.
pub const PLENTY: &str = "100000000/s burst 100000000";
/// A store in the configuration.
pub const MEMORY: &str = "memory";

impl Running {
    /// CPU time of all its threads.
    pub fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let nanos = tasks.filter_map(|task| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// Resident memory, in bytes.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory that was resident, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Its files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Starts a server, and waits until it listens.
    pub fn start(mut command: Command, port: u16, directory: PathBuf) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is installed");
        let server = Self { child, port, directory };
        for _ in 0..6_000 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not listen on {port}");
    }
}

impl Running {
    /// Ends it, and keeps its directory.
    pub fn stop(mut self) -> PathBuf {
        std::mem::take(&mut self.directory)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A port without a listener.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// A directory that ends with its server.
pub fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("tollgate-bench-{}-{name}", std::process::id()));
    std::fs::create_dir_all(directory.join("logs")).expect("a directory");
    directory
}

/// A program on one core, with room for as many connections as may be.
pub fn on_core(core: &str, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core, "sh", "-c", "ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\"", program]);
    command
}

fn start_nginx(name: &str, core: &str, port: u16, http: &str) -> Running {
    let directory = scratch(name);
    let config = format!(
        "daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log stderr crit;
events {{ worker_connections 15000; multi_accept on; }}
http {{ access_log off; keepalive_requests 1000000000; {http} }}\n"
    );
    std::fs::write(directory.join("nginx.conf"), config).expect("our own directory");
    let mut command = on_core(core, "nginx");
    command.args(["-p", directory.to_str().expect("a plain path"), "-c", "nginx.conf", "-e", "stderr"]);
    Running::start(command, port, directory)
}

/// Builds the program as packages do. Returns where it is.
pub fn build() -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let built = Command::new("cargo").args(["build", "--profile", "dist", "-p", "tollgate"]).current_dir(root).status();
    assert!(built.is_ok_and(|status| status.success()), "the program is built");
    format!("{root}/target/dist/tollgate")
}

/// An earlier build of the program to compare with, if the environment names one.
pub fn earlier() -> Option<String> {
    std::env::var("TOLLGATE_BENCH_EARLIER").ok()
}

/// Keeps a process off the core of the proxies.
pub fn on_core_one(pid: u32) {
    let moved = Command::new("taskset").args(["-a", "-c", "-p", "1", &pid.to_string()]).stdout(Stdio::null()).status();
    assert!(moved.is_ok_and(|status| status.success()), "taskset is installed");
}

/// What requests are passed to.
pub fn upstream() -> Running {
    let port = free_port();
    let body = "x".repeat(100);
    start_nginx("upstream", "1", port, &format!("server {{ listen 127.0.0.1:{port}; return 200 \"{body}\"; }}"))
}

/// What the gateway is measured beside.
pub fn nginx(upstream: u16) -> Running {
    let port = free_port();
    let http = format!(
        "upstream shop {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
limit_req_zone $binary_remote_addr zone=api:10m rate=1000000r/s;
limit_req_zone $binary_remote_addr zone=deny:10m rate=1r/m;
limit_req_status 429; limit_req_log_level info;
proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
server {{ listen 127.0.0.1:{port};
  location /plain {{ proxy_pass http://shop; }}
  location /ip {{ limit_req zone=api burst=1000000 nodelay; proxy_pass http://shop; }}
  location /deny {{ limit_req zone=deny; proxy_pass http://shop; }} }}"
    );
    start_nginx("nginx", "0", port, &http)
}

/// The gateway, with its counters in this store.
pub fn proxy(name: &str, program: &str, store: &str, upstream: u16) -> Running {
    let (port, api) = (free_port(), free_port());
    let config = format!(
        "listen: {{ http: 127.0.0.1:{api} }}
store: {store}
rules:
  ip: {{ by: ip, limits: {PLENTY} }}
  all: {{ limits: [1000000000/hour, 4000000000/day] }}
  route: {{ by: route, limits: [1000000000/hour, 4000000000/day] }}
  pair: {{ by: [route, ip], limits: [1000000000/hour, 4000000000/day] }}
  host: {{ by: host, limits: [1000000000/hour, 4000000000/day] }}
  method: {{ by: [method, ip], limits: [1000000000/hour, 4000000000/day] }}
  deny: {{ by: ip, limits: 1/day }}
policies: {{ ip: [ip], five: [all, route, pair, host, method], deny: [deny] }}
gateway:
  listen: 127.0.0.1:{port}
  workers: 1
  upstreams: {{ shop: 127.0.0.1:{upstream} }}
  routes:
    plain: {{ path: /plain, upstream: shop }}
    ip: {{ path: /ip, upstream: shop, policy: ip }}
    five: {{ path: /five, upstream: shop, policy: five }}
    deny: {{ path: /deny, upstream: shop, policy: deny }}\n"
    );
    tollgate(name, program, port, &config)
}

/// The program with this configuration, on the first core.
pub fn tollgate(name: &str, program: &str, port: u16, config: &str) -> Running {
    let directory = scratch(name);
    let file = directory.join("tollgate.yaml");
    std::fs::write(&file, config).expect("our own directory");
    let mut command = on_core("0", program);
    command.args(["serve", "--config", file.to_str().expect("a plain path")]);
    Running::start(command, port, directory)
}
