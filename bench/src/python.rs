//! A check by the Python client, beside a bare call with `http.client` over a connection that is kept.

use std::path::Path;
use std::process::Command;

use crate::http::serve;
use crate::rounds::{line, median, ratio};

const SCRIPT: &str = include_str!("python.py");

pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = runtime.block_on(serve());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("python3")
        .args(["-c", SCRIPT, &address.port().to_string()])
        .env("PYTHONPATH", root.join("clients/python/src"))
        .output()
        .expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("the script prints numbers");
    let columns = |at: usize| -> Vec<f64> {
        let number = |line: &str| line.split(' ').nth(at).and_then(|word| word.parse().ok());
        printed.lines().map(|line| number(line).expect("a line has three numbers")).collect()
    };
    let (bare, sync, tasks) = (columns(0), columns(1), columns(2));
    let micros = |times: &[f64]| format!("{:.0} µs", median(times.to_vec()));
    let beside = format!("bare `http.client` {}", micros(&bare));
    line("Python client, `check`", &micros(&sync), &beside, ratio(&sync, &bare), "≤ 1.5");
    line("Python client of asyncio, `check`", &micros(&tasks), &beside, ratio(&tasks, &bare), "");
}
