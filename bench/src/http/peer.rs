//! `POST /api/v1/check` beside throttlecrab-server, which answers the same question over HTTP: two programs on
//! one core, asked by h2load from the other one.

use std::path::Path;
use std::process::Command;

use crate::gateway::load::Burst;
use crate::gateway::servers::{PLENTY, Running, build, free_port, on_core, scratch, tollgate};
use crate::gateway::{Target, measure, micros};
use crate::rounds::{line, ratio};

const ROUNDS: usize = 100;
const PEER: &str = "throttlecrab-server";
const VERSION: &str = "0.4.40";
const ASKED: &str = r#"{"key":"user-00000007","max_burst":100000000,"count_per_period":100000000,"period":1,"quantity":1}"#;

pub fn run() {
    let (own, peer) = (start_own(&build()), start_peer(&install()));
    let targets = [post(&own, "/api/v1/check", super::ONE), post(&peer, "/throttle", ASKED)];
    let [own, peer] = measure(ROUNDS, &targets, |target| target.cost());
    line("`POST /api/v1/check`, CPU", &micros(&own), &format!("{PEER} {}", micros(&peer)), ratio(&own, &peer), "≤ 1.15");
}

/// A request with this body.
fn post<'s>(server: &'s Running, path: &str, body: &str) -> Target<'s> {
    let file = server.directory().join("body.json");
    std::fs::write(&file, body).expect("our own directory");
    Target::with(server, path, Burst { body: Some(file), ..Burst::default() })
}

fn start_own(program: &str) -> Running {
    let port = free_port();
    let config = format!(
        "listen: {{ http: 127.0.0.1:{port} }}
store: memory
rules: {{ api: {{ by: user, limits: {PLENTY} }} }}
policies: {{ api: [api] }}\n"
    );
    tollgate("own", program, port, &config)
}

fn start_peer(program: &str) -> Running {
    let port = free_port();
    let mut command = on_core("0", program);
    command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &port.to_string(), "--log-level", "error"]);
    Running::start(command, port, scratch("peer"))
}

/// Installs the peer beside the benchmark, built as the program is. Returns where it is.
fn install() -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers");
    let program = format!("{root}/bin/{PEER}");
    if !Path::new(&program).exists() {
        let mut command = Command::new("cargo");
        command.args(["install", "--locked", "--version", VERSION, "--root", root, PEER]);
        command.env("CARGO_PROFILE_RELEASE_LTO", "thin").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
        assert!(command.status().is_ok_and(|status| status.success()), "{PEER} is built; it needs protoc");
    }
    program
}
