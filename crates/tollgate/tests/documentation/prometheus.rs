//! A real Prometheus that scrapes servers and evaluates recording rules every second.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tollgate_testbed::{Port, wait_until};

/// A running Prometheus. It ends with the test.
pub(crate) struct Prometheus {
    process: Child,
    address: String,
    directory: tempfile::TempDir,
    _port: Port,
}

impl Prometheus {
    /// Starts one with these `scrape_configs` and this file of rules.
    pub(crate) fn start(scrape_configs: &str, rules: Option<&Path>) -> Self {
        let (directory, port) = (tempfile::tempdir().unwrap(), Port::claim());
        let rules = rules.map(|rules| format!("rule_files: ['{}']\n", rules.display())).unwrap_or_default();
        let config =
            format!("global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n{rules}{scrape_configs}");
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let address = format!("127.0.0.1:{}", port.number());
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("`./test` installs Prometheus");
        let mut this = Self { process, address, directory, _port: port };
        wait_until("Prometheus is ready", || {
            assert!(this.process.try_wait().unwrap().is_none(), "Prometheus ended: {}", this.log());
            ureq::get(format!("http://{}/-/ready", this.address)).call().is_ok()
        });
        this
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// The series that a query returns now.
    pub(crate) fn query(&self, query: &str) -> Vec<Value> {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let url = format!("http://{}/api/v1/query", self.address);
        let mut answer = agent.get(&url).query("query", query).call().unwrap();
        let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Waits until a query returns data.
    pub(crate) fn wait_for_data(&self, query: &str) {
        wait_until(&format!("data for {query}"), || !self.query(query).is_empty());
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
