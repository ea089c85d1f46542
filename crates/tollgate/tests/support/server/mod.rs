//! A real server, started for one test and stopped with it.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A running `tollgate serve`.
pub(crate) struct Server {
    process: Child,
    /// Its address, as in `127.0.0.1:41234`.
    pub(crate) address: String,
    /// The address of its gateway, if it has one.
    pub(crate) gateway: Option<String>,
    /// The address of its relay, if it has one.
    pub(crate) relay: Option<String>,
    /// Its log, which is read so that the pipe never fills up.
    log: Option<std::thread::JoinHandle<String>>,
}

/// The top of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

impl Server {
    /// Serves a configuration, or the starter if no file is given, with counters in memory and on a free
    /// port.
    pub(crate) fn start(config: Option<&Path>, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("serve");
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        command
            .env_clear()
            .env("TOLLGATE__STORE", "memory")
            .env("TOLLGATE__LISTEN__HTTP", "127.0.0.1:0")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
        let (mut address, mut gateway, mut relay) = (None, None, None);
        for line in lines {
            let Some((door, place)) = line.split_once(" listens on ") else { continue };
            let place = place.trim_end().rsplit('/').next().map(ToOwned::to_owned);
            match door {
                "the gateway" => gateway = place,
                "the relay" => relay = place,
                _ if door.starts_with("tollgate ") => {
                    address = place;
                    break;
                }
                _ => {}
            }
        }
        let mut errors = process.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            let _ = errors.read_to_string(&mut log);
            log
        });
        let Some(address) = address else {
            let _ = process.wait();
            panic!("{config:?} is not served: {}", log.join().unwrap());
        };
        Self { process, address, gateway, relay, log: Some(log) }
    }

    /// Sends JSON. Returns the status and the response.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let agent = agent();
        let url = format!("http://{}{path}", self.address);
        let answer = agent.post(&url).send(body.to_string()).unwrap();
        read(answer)
    }

    /// Sends a request without a body.
    pub(crate) fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        let agent = agent();
        let url = format!("http://{}{path}", self.address);
        let answer = match method {
            "GET" => agent.get(&url).call(),
            "DELETE" => agent.delete(&url).call(),
            other => panic!("no test sends {other}"),
        };
        read(answer.unwrap())
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self) -> String {
        let mut answer = agent().get(format!("http://{}/metrics", self.address)).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    }

    /// Stops it and returns its log.
    pub(crate) fn end(&mut self) -> String {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.log.take().map(|log| log.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into()
}

fn read(mut answer: ureq::http::Response<ureq::Body>) -> (u16, Value) {
    let status = answer.status().as_u16();
    let text = answer.body_mut().read_to_string().unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
