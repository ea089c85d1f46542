//! The services of the guide to the layer, `crates/layer/examples/axum.rs` and `crates/layer/examples/configured.rs`, run
//! as their own processes. Each is in a network of its own, because it listens on a fixed port.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// An example that Cargo built beside this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.is_file(), "{} is missing: run `cargo build --workspace --examples`", path.display());
    path
}

/// Starts an example in a directory with this configuration, runs commands when it listens, and returns what they print.
fn run(name: &str, config: &str, commands: &str) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("layer-{name}"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("tollgate.yaml"), config).unwrap();
    let script = format!(
        "ip link set lo up\n{} >started &\n\
         until (exec 3<>/dev/tcp/127.0.0.1/3000) 2>/dev/null; do kill -0 $! || exit 1; sleep 0.05; done\n{commands}",
        built(name).display()
    );
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "bash",
            "-e",
            "-c",
            &script,
        ])
        .current_dir(directory)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    printed
}

#[test]
fn the_service_of_the_guide_limits_requests_and_failed_logins() {
    let status = "curl -s -o /dev/null -w '%{http_code}\\n'";
    let printed = run(
        "axum",
        "",
        &format!(
            "cat started; curl -s http://127.0.0.1:3000/\n\
             for i in 1 2 3 4 5 6; do {status} -X POST -H 'x-password: open sesame' http://127.0.0.1:3000/login; done\n\
             for i in 1 2 3 4 5 6; do {status} -X POST http://127.0.0.1:3000/login; done\n\
             {status} 'http://127.0.0.1:3000/?[1-200]' | sort -u | tail -1\n"
        ),
    );
    let lines: Vec<&str> = printed.lines().collect();
    let expected = ["listens on http://127.0.0.1:3000", "hello"];
    assert_eq!(lines[..2], expected, "{printed}");
    assert_eq!(lines[2..8], ["204"; 6], "{printed}");
    assert_eq!(lines[8..14], ["401", "401", "401", "401", "401", "429"], "{printed}");
    assert_eq!(lines[14..], ["429"], "two hundred exceed the burst of thirty: {printed}");
}

#[test]
fn the_configured_service_of_the_guide_has_limits_and_metrics() {
    let config =
        "store: memory\nrules: { client: { by: ip, limits: 2/hour } }\npolicies: { api: [client] }\n";
    let printed = run(
        "configured",
        config,
        "for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:3000/; done\n\
         curl -s http://127.0.0.1:3000/metrics | grep '^tollgate_decisions_total'\n",
    );
    assert!(printed.starts_with("200\n200\n429\ntollgate_decisions_total"), "{printed}");
}
