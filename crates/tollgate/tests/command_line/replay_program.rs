//! `tollgate replay` and `tollgate suggest` as a program: what they print, write and return.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const CONFIG: &str = "store: memory
rules:
  client: { by: ip, limits: 2/min }
policies: { api: [client] }
";

/// A busy client, an office with many browsers, and quiet ones; in whole seconds.
fn log() -> String {
    let line = |second: u64, ip: &str, agent: &str| {
        format!(
            "{ip} - - [17/Nov/2026:09:00:{second:02} +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"{agent}\"\n"
        )
    };
    let mut log = String::new();
    for second in 0..60 {
        log += &line(second, "203.0.113.9", "bot");
        if second % 6 == 0 {
            log += &line(second, "198.51.100.1", &format!("browser {second}"));
            log += &line(second, &format!("192.0.2.{second}"), "browser");
        }
    }
    log + "not a line\n"
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("new.yaml"), CONFIG).unwrap();
    std::fs::write(home.path().join("old.yaml"), CONFIG.replace("2/min", "10/min")).unwrap();
    std::fs::write(home.path().join("access.log"), log()).unwrap();
    home
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).current_dir(home).env_clear().stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn replayed(home: &Path, arguments: &[&str]) -> Value {
    let arguments: Vec<&str> =
        ["replay", "--json", "--config", "new.yaml"].into_iter().chain(arguments.iter().copied()).collect();
    let output = run(home, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(home: &Path, arguments: &[&str]) -> String {
    let output = run(home, arguments);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{arguments:?}");
    text(&output.stderr)
}

#[test]
fn the_summary_names_clients_that_would_be_denied_and_how_often() {
    let home = home();
    let output = run(home.path(), &["replay", "--config", "new.yaml", "access.log"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for line in [
        "access.log (combined): 81 lines, 1 unreadable",
        "  access.log:81: it does not have the format: not a line",
        "denied 66 of 80 attempts (82.5 %), first at 2026-11-17T09:00:02Z",
        "denied 2 of 12 clients (16.7 %) at least once",
        "note: The log has whole seconds.",
    ] {
        assert!(printed.contains(line), "{line:?} is not in\n{printed}");
    }
    assert_eq!(text(&output.stderr), "", "there is no progress bar without a terminal");
}

#[test]
fn the_json_has_stable_members() {
    let home = home();
    let report = replayed(home.path(), &["access.log"]);
    let counts =
        ["lines", "unreadable", "attempts", "allowed", "denied"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(counts, [81, 1, 80, 14, 66]);
    assert_eq!(report["rules"][0]["rule"], json!("client"));
    assert_eq!(report["rules"][0]["denied"], json!(66));
    let keys: Vec<_> = report["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (key["key"].as_str().unwrap(), key["denied"].as_u64().unwrap()))
        .collect();
    assert_eq!(keys, [("203.0.113.9", 58), ("198.51.100.1", 8)]);
    assert_eq!(report["keys"][0]["first"], json!("2026-11-17T09:00:02Z"));
    assert!(report["keys"][1]["agents"].as_u64().unwrap() >= 6, "an office: {}", report["keys"][1]);
    assert_eq!(
        report["clients"],
        json!({ "all": 12, "denied": 2, "observed": 0, "deferred": 0, "exact": true })
    );
    assert_eq!((&report["observed"], &report["last_eviction"]), (&json!(0), &json!(null)));
}

#[test]
fn the_json_has_every_rule_and_every_key_unless_top_says_how_many() {
    let home = home();
    let config = "store: memory
rules:
  client: { by: ip, limits: 1/min }
  page: { by: path, limits: 1000000/min }
  elsewhere: { by: path, limits: 1/min }
policies: { api: [page, client], other: [elsewhere] }
";
    std::fs::write(home.path().join("new.yaml"), config).unwrap();
    let line = |client: u32| {
        let ip = format!("198.51.100.{client}");
        format!("{ip} - - [17/Nov/2026:09:00:00 +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"x\"\n").repeat(2)
    };
    std::fs::write(home.path().join("clients.log"), (0..25).map(line).collect::<String>()).unwrap();
    let report = replayed(home.path(), &["--policy", "api", "clients.log"]);
    assert_eq!(report["keys"].as_array().unwrap().len(), 25);
    let rules: Vec<_> = report["rules"].as_array().unwrap().iter().collect();
    let rules: Vec<_> = rules.iter().map(|rule| (&rule["rule"], &rule["denied"])).collect();
    assert_eq!(rules.len(), 2, "{rules:?}");
    assert!(rules.contains(&(&json!("client"), &json!(25))) && rules.contains(&(&json!("page"), &json!(0))));
    let report = replayed(home.path(), &["--policy", "api", "--top", "3", "clients.log"]);
    assert_eq!(report["keys"].as_array().unwrap().len(), 3);
    let error = refused(
        home.path(),
        &["replay", "--config", "new.yaml", "--policy", "api", "--curve", "elsewhere", "clients.log"],
    );
    assert!(error.contains("--curve elsewhere: no attempt passes the rule `elsewhere`"), "{error}");
}

#[test]
fn a_rule_that_observes_or_defers_has_its_share_of_clients_and_its_curve() {
    let home = home();
    for (on_exceed, way, line) in [
        ("observe", "observed", "observing rules would deny 2 of 12 clients (16.7 %) at least once"),
        ("defer", "deferred", "deferred 2 of 12 clients (16.7 %) at least once"),
    ] {
        let config = CONFIG.replace("2/min", &format!("2/min, on_exceed: {on_exceed}"));
        std::fs::write(home.path().join("new.yaml"), config).unwrap();
        let arguments = ["replay", "--config", "new.yaml", "--curve", "client", "access.log"];
        let output = run(home.path(), &arguments);
        let printed = text(&output.stdout);
        assert!(printed.contains(line), "{line:?} is not in\n{printed}{}", text(&output.stderr));
        assert!(printed.contains(&format!("limits  {way}  clients")), "{printed}");
        let report = replayed(home.path(), &["--curve", "client", "access.log"]);
        let points = report["curve"]["points"].as_array().unwrap();
        let counts: Vec<_> = points.iter().map(|point| (&point[way], &point["clients"])).collect();
        assert_eq!(
            counts,
            [(68, 2), (66, 2), (62, 2), (54, 2)]
                .map(|(a, b)| (json!(a), json!(b)))
                .each_ref()
                .map(|(a, b)| (a, b)),
            "{on_exceed}"
        );
        assert_eq!((&report[way], &report["clients"][way]), (&json!(66), &json!(2)), "{on_exceed}");
    }
}

#[test]
fn evicted_counters_are_told() {
    let home = home();
    let config = CONFIG.replace("store: memory", "store: { memory: { max_keys: 1000 } }");
    std::fs::write(home.path().join("new.yaml"), config).unwrap();
    let line = |client: u32| {
        let ip = format!("10.0.{}.{}", client / 250, client % 250);
        format!(
            "{ip} - - [17/Nov/2026:09:00:{:02} +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"x\"\n",
            client / 100
        )
    };
    std::fs::write(home.path().join("clients.log"), (0..5_000).map(line).collect::<String>()).unwrap();
    let report = replayed(home.path(), &["clients.log"]);
    let at = report["last_eviction"].as_str().unwrap();
    assert!(at.starts_with("2026-11-17T09:00:"), "{at}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("There was room for 1,000 keys only. Counters were evicted"), "{notes}");
}

#[test]
fn a_limit_on_denials_needs_attempts() {
    let home = home();
    let line = "192.0.2.7 - - [17/Nov/2099:09:00:00 +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"x\"\n";
    std::fs::write(home.path().join("future.log"), line.repeat(3)).unwrap();
    std::fs::write(home.path().join("empty.log"), "").unwrap();
    for (log, lines) in [("future.log", 3), ("empty.log", 0)] {
        let output =
            run(home.path(), &["replay", "--config", "new.yaml", "--fail-if-denied", "100%", "--json", log]);
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        let expected =
            format!("--fail-if-denied: there was no attempt to decide: {lines} lines, {lines} unreadable");
        assert!(error.contains(&expected), "{error}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["attempts"], json!(0), "the summary is printed all the same");
    }
}

#[test]
fn two_thousand_rotated_files_need_few_descriptors() {
    let home = home();
    let line = |second: u64| {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!(
            "192.0.2.7 - - [17/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"x\"\n"
        )
    };
    for number in 0..2_000_u64 {
        let text: String = (0..3).map(|step| line(number * 30 + step * 10)).collect();
        std::fs::write(home.path().join(format!("access.log.{}", 2_000 - number)), text).unwrap();
    }
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("ulimit -n 64 && exec \"$0\" replay --json --config new.yaml access.log.*");
    let output =
        shell.arg(env!("CARGO_BIN_EXE_tollgate")).current_dir(home.path()).env_clear().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["lines"], &report["late"], &report["unreadable"]),
        (&json!(6_000), &json!(0), &json!(0))
    );
}

#[test]
fn a_limit_on_denials_decides_the_exit_code() {
    let home = home();
    let code = |most: &str| {
        let output =
            run(home.path(), &["replay", "--config", "new.yaml", "--fail-if-denied", most, "access.log"]);
        output.status.code()
    };
    assert_eq!(
        (code("0.1%"), code("82.5%"), code("82.4%"), code("100%")),
        (Some(1), Some(0), Some(1), Some(0))
    );
    assert_eq!(code("1"), Some(2), "a share is in per cent");
}

#[test]
fn compressed_logs_and_standard_input_are_the_same_log() {
    let home = home();
    let plain = replayed(home.path(), &["access.log"]);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd =
        |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    // Several members or frames in one file are one text.
    let log = log();
    let (first, second) = log.as_bytes().split_at(log.len() / 2);
    std::fs::write(home.path().join("access.log.1"), [gzip(first), gzip(second)].concat()).unwrap();
    std::fs::write(home.path().join("access.log.2"), [zstd(first), zstd(second)].concat()).unwrap();
    for name in ["access.log.1", "access.log.2"] {
        let mut report = replayed(home.path(), &[name]);
        for sample in report["unreadable_lines"].as_array_mut().unwrap() {
            sample["log"] = json!("access.log");
        }
        report["logs"] = json!(["access.log"]);
        assert_eq!(report, plain, "{name}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["replay", "--json", "--config", "new.yaml", "-"]).current_dir(home.path()).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let report: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&report["denied"], &report["keys"]), (&plain["denied"], &plain["keys"]));
}

#[test]
fn skippable_frames_of_zstd_are_skipped_wherever_they_are() {
    let home = home();
    let plain = replayed(home.path(), &["access.log"]);
    let zstd =
        |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    let skippable = |kind: u8, text: &[u8]| {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        [&[0x50 + kind, 0x2a, 0x4d, 0x18][..], &length, text].concat()
    };
    let log = log();
    let (first, second) = log.as_bytes().split_at(log.len() / 2);
    // As pzstd writes them: each frame after one with its size.
    let parts = [
        skippable(0, &[1, 2, 3, 4]),
        zstd(first),
        skippable(0, b""),
        skippable(15, &[7; 100_000]),
        zstd(second),
        skippable(1, b"the end"),
    ];
    std::fs::write(home.path().join("access.log.3"), parts.concat()).unwrap();
    let report = replayed(home.path(), &["access.log.3"]);
    assert_eq!((&report["denied"], &report["keys"]), (&plain["denied"], &plain["keys"]));
    let cut = [zstd(first), skippable(0, &[0; 50])[..20].to_vec()].concat();
    std::fs::write(home.path().join("cut.zst"), cut).unwrap();
    let error = refused(home.path(), &["replay", "--config", "new.yaml", "cut.zst"]);
    assert!(error.contains("it ends inside of a skippable frame"), "{error}");
}

#[test]
fn a_zstd_window_over_128_mib_is_refused() {
    let home = home();
    // A frame with a window of 2 GiB, and one whose single segment has 3 GiB; one empty block each.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 1, 0, 0].to_vec();
    let segment = [0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0xc0, 1, 0, 0].to_vec();
    for (name, bytes, size) in [("window.zst", window, "2048"), ("segment.zst", segment, "3072")] {
        std::fs::write(home.path().join(name), bytes).unwrap();
        let error = refused(home.path(), &["replay", "--config", "new.yaml", name]);
        let expected = format!("a frame of it needs a window of {size} MiB, and at most 128 MiB are allowed");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_report_replaces_nothing_that_is_read_and_no_file_without_force() {
    use std::os::unix::fs::symlink;
    let home = home();
    let at = home.path();
    std::fs::create_dir(at.join("directory")).unwrap();
    std::fs::write(at.join("precious.html"), "precious").unwrap();
    symlink("precious.html", at.join("link.html")).unwrap();
    symlink("access.log", at.join("log.html")).unwrap();
    let read = || {
        ["new.yaml", "old.yaml", "access.log", "precious.html"]
            .map(|name| std::fs::read(at.join(name)).unwrap())
    };
    let before = read();
    let table = [
        ("access.log", "access.log: this is one of the logs: name another file"),
        ("./access.log", "./access.log: this is one of the logs: name another file"),
        ("log.html", "log.html: this is one of the logs: name another file"),
        ("new.yaml", "new.yaml: this is the configuration: name another file"),
        ("old.yaml", "old.yaml: this is the configuration: name another file"),
        ("link.html", "link.html: this is not a regular file: name another one"),
        ("directory", "directory: this is not a regular file: name another one"),
        ("/dev/null", "/dev/null: this is not a regular file: name another one"),
    ];
    for (name, expected) in table {
        let arguments = [
            "replay",
            "--config",
            "new.yaml",
            "--against",
            "old.yaml",
            "--force",
            "--report",
            name,
            "access.log",
        ];
        assert_eq!(refused(at, &arguments), format!("error: {expected}\n"));
    }
    let arguments = ["replay", "--config", "new.yaml", "--report", "precious.html", "access.log"];
    let error = refused(at, &arguments);
    assert_eq!(
        error,
        "error: precious.html: the file exists: name another one, or replace it with --force\n"
    );
    assert!(read() == before, "nothing was written");
    replayed(at, &["--report", "precious.html", "--force", "access.log"]);
    assert!(std::fs::read_to_string(at.join("precious.html")).unwrap().starts_with("<!"));
    assert!(
        std::fs::read_dir(at).unwrap().all(|file| !file
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with('.'))
    );
}

#[test]
fn a_device_without_lines_is_given_up() {
    let home = home();
    for arguments in [&["replay", "--config", "new.yaml", "/dev/zero"][..], &["suggest", "/dev/zero"]] {
        let error = refused(home.path(), arguments);
        assert!(error.ends_with("/dev/zero: 64 MiB of it have no line that can be read\n"), "{error}");
    }
    let random = ["replay", "--config", "new.yaml", "--format", "combined", "/dev/urandom"];
    let error = refused(home.path(), &random);
    assert!(error.ends_with("/dev/urandom: 64 MiB of it have no line that can be read\n"), "{error}");
}

/// Each of them waits as long as a pipe may stay silent.
#[test]
fn a_pipe_that_no_program_writes_to_is_given_up() {
    let home = home();
    for name in ["pipe.log", "pipe.yaml", "pipe.token"] {
        assert!(Command::new("mkfifo").arg(home.path().join(name)).status().unwrap().success());
    }
    let commands: [&[&str]; 5] = [
        &["replay", "--config", "new.yaml", "pipe.log"],
        &["suggest", "pipe.log"],
        &["check-config", "pipe.yaml"],
        &["import", "pipe.yaml"],
        &["top", "--once", "--token-file", "pipe.token"],
    ];
    let start = |arguments: &&[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(*arguments).current_dir(home.path()).env_clear().stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = commands.iter().map(start).collect();
    for (arguments, child) in commands.iter().zip(started) {
        let output = child.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(
            error.contains("it is a pipe, and no program has written to it for 10 s"),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn a_damaged_archive_is_an_error() {
    let home = home();
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd];
    bytes.extend_from_slice(b"damaged beyond repair");
    std::fs::write(home.path().join("bad.zst"), &bytes).unwrap();
    std::fs::write(home.path().join("bad.gz"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9]).unwrap();
    for name in ["bad.zst", "bad.gz"] {
        let error = refused(home.path(), &["replay", "--config", "new.yaml", name]);
        assert!(error.contains(&format!("{name}: cannot be read")), "{error}");
    }
    let error = refused(home.path(), &["replay", "--config", "new.yaml", "."]);
    assert!(error.contains("it is a directory"), "{error}");
    let error = refused(home.path(), &["replay", "--config", "new.yaml", "missing.log"]);
    assert!(error.contains("missing.log: cannot be opened"), "{error}");
}

#[test]
fn two_configurations_are_compared() {
    let home = home();
    let report = replayed(home.path(), &["--against", "old.yaml", "--curve", "client", "access.log"]);
    let difference = &report["difference"];
    assert_eq!(difference["newly_denied"], json!(16));
    assert_eq!((&difference["denied_before"], &difference["newly_allowed"]), (&json!(50), &json!(0)));
    let denied: Vec<_> = report["curve"]["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| (&point["times"], &point["denied"], &point["clients"]))
        .collect();
    assert_eq!(
        denied,
        [
            (&json!(0.5), &json!(68), &json!(2)),
            (&json!(1.0), &json!(66), &json!(2)),
            (&json!(2.0), &json!(62), &json!(2)),
            (&json!(4.0), &json!(54), &json!(2)),
        ]
    );
}

#[test]
fn the_gateways_routes_choose_the_policy() {
    let home = home();
    let config = "store: memory
rules:
  client: { by: ip, limits: 2/min }
  page: { by: [route, path], limits: 1/min }
policies: { api: [client], pages: [page] }
gateway:
  listen: 127.0.0.1:0
  upstreams: { shop: 127.0.0.1:9 }
  routes:
    api: { path: /api/*, policy: api, upstream: shop }
    pages: { path: /pages/*, method: GET, policy: pages, upstream: shop }
    free: { path: /free, upstream: shop }
";
    std::fs::write(home.path().join("new.yaml"), config).unwrap();
    let line = |target: &str| {
        format!("192.0.2.7 - - [17/Nov/2026:09:00:00 +0000] \"GET {target} HTTP/1.1\" 200 12 \"-\" \"x\"\n")
    };
    let targets =
        ["/api/a", "/api/b", "/api/c?x=1", "/pages/a", "/pages/%61", "/free", "/nowhere", "/pages/../api/d"];
    std::fs::write(home.path().join("routed.log"), targets.map(line).concat()).unwrap();
    let report = replayed(home.path(), &["routed.log"]);
    let counts =
        ["attempts", "allowed", "denied", "unlimited", "unrouted"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(counts, [6, 3, 3, 1, 1], "{report}");
    let keys: Vec<_> =
        report["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["192.0.2.7", "pages,/pages/a"]);
}

#[test]
fn missing_fields_and_unknown_names_appear_in_the_error() {
    let home = home();
    std::fs::write(home.path().join("user.yaml"), CONFIG.replace("by: ip", "by: account")).unwrap();
    let error = refused(home.path(), &["replay", "--config", "user.yaml", "access.log"]);
    assert!(error.contains("rule `client` of policy `api` needs the field `account`"), "{error}");
    assert!(error.contains("--map account=COLUMN"), "{error}");
    let output = run(
        home.path(),
        &["replay", "--config", "user.yaml", "--map", "account=http_user_agent", "access.log"],
    );
    assert_eq!(output.status.code(), Some(0));
    let error = refused(home.path(), &["replay", "--config", "new.yaml", "--policy", "apy", "access.log"]);
    assert!(error.contains("there is no policy `apy`; did you mean `api`?"), "{error}");
    let error = refused(home.path(), &["replay", "access.log"]);
    assert!(error.contains("choose one with --policy: api, login"), "the starter has two: {error}");
    let error = refused(home.path(), &["replay", "--config", "new.yaml", "--curve", "clent", "access.log"]);
    assert!(error.contains("--curve clent: there is no rule `clent`"), "{error}");
    let error =
        refused(home.path(), &["replay", "--config", "new.yaml", "--format", "combned", "access.log"]);
    assert!(error.contains("the format is not known: choose one of combined"), "{error}");
}

#[test]
fn the_report_is_one_file_that_loads_nothing() {
    let home = home();
    let hostile = "<script>alert(1)</script>&\"'";
    let line = format!(
        "203.0.113.9 - - [17/Nov/2026:09:00:00 +0000] \"GET / HTTP/1.1\" 200 12 \"-\" \"x\" {hostile}\n"
    );
    let bad = format!("{hostile} \u{202e}turned\u{feff}\u{9b}\n");
    std::fs::write(home.path().join("hostile.log"), line.repeat(9) + &bad).unwrap();
    let arguments =
        ["--report", "out.html", "--curve", "client", "--against", "old.yaml", "access.log", "hostile.log"];
    replayed(home.path(), &arguments);
    let page = std::fs::read_to_string(home.path().join("out.html")).unwrap();
    for outside in ["http://", "https://", "<script", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains(r"\u{202e}turned\u{feff}\u{9b}"), "text that turns others is escaped");
    assert!(!page.contains(['\u{202e}', '\u{feff}', '\u{9b}']));
    for part in [
        "Denials over time",
        "Rules",
        "Keys",
        "Impact curve",
        "Difference",
        "Possible false positives",
        "<svg",
        "light-dark(",
    ] {
        assert!(page.contains(part), "{part}");
    }
    well_formed(&page);
}

/// Every tag is closed in order, except those that HTML closes itself.
fn well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('!') || tag.ends_with('/') || ["meta", "tr", "td", "th", "li"].contains(&name) {
            continue;
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn suggested_limits_affect_no_more_clients_than_was_asked_for() {
    let home = home();
    let mut log = String::new();
    for client in 0..200_u32 {
        for request in 0..=client {
            // Half of the clients come in bursts of a few seconds, and the other half evenly over seven minutes.
            let spread = u64::from(request % 7) * 60 + u64::from(request % 60);
            let at = if client % 2 == 0 { u64::from(request % 5) } else { spread };
            log += &format!(
                "10.0.{}.{} - - [17/Nov/2026:09:{:02}:{:02} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"x\"\n",
                client / 250,
                client % 250,
                at / 60,
                at % 60
            );
        }
    }
    std::fs::write(home.path().join("many.log"), log).unwrap();
    let output = run(home.path(), &["suggest", "--by", "ip", "--share", "5%", "--reorder", "1h", "many.log"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains("20,100 requests of 200 clients, by ip"), "{printed}");
    std::fs::write(home.path().join("suggested.yaml"), &printed).unwrap();
    let checked = run(home.path(), &["check-config", "suggested.yaml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let limits = printed.lines().filter(|line| line.trim().starts_with("- ")).count();
    assert_eq!(limits, 2, "{printed}");
    assert!(printed.contains("The log is shorter than one hour"), "{printed}");
    // The printed configuration itself, with all its limits in one rule.
    std::fs::write(home.path().join("new.yaml"), &printed).unwrap();
    let report = replayed(home.path(), &["--reorder", "1h", "many.log"]);
    let observed = report["clients"]["observed"].as_u64().unwrap();
    assert!(observed > 0 && observed <= 10, "{printed}\naffects {observed} of 200 clients");
}

#[test]
fn suggest_reports_lines_that_are_too_far_out_of_order_and_does_not_count_them() {
    let home = home();
    let line = |at: u32| {
        let (minute, second) = (at / 60 % 60, at % 60);
        format!(
            "192.0.2.1 - - [17/Nov/2026:{:02}:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"x\"\n",
            9 + at / 3600
        )
    };
    // An hour of one request a second behind the hour after it.
    let log: String = (3_600..7_200).chain(0..3_600).map(line).collect();
    std::fs::write(home.path().join("mixed.log"), log).unwrap();
    let suggest = |arguments: &[&str]| {
        let arguments: Vec<&str> = ["suggest", "--share", "0%"].iter().chain(arguments).copied().collect();
        let output = run(home.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let printed = suggest(&["mixed.log"]);
    assert!(
        printed.contains("# 3,600 of 7,200 lines are further out of order than --reorder and are left out"),
        "{printed}"
    );
    assert!(printed.contains("- 1/s ") || printed.contains("- 2/s "), "{printed}");
    let report: Value = serde_json::from_str(&suggest(&["--json", "mixed.log"])).unwrap();
    assert_eq!((&report["late"], &report["requests"]), (&json!(3_600), &json!(3_600)), "{report}");
    let printed = suggest(&["--reorder", "3h", "mixed.log"]);
    assert!(printed.contains("# 7,200 requests of 1 clients") && !printed.contains("--reorder"), "{printed}");
}

#[test]
fn a_suggested_number_is_less_than_a_sixteenth_above_the_busiest_window() {
    let home = home();
    let line = |minute: u32, second: u32| {
        format!(
            "192.0.2.1 - - [17/Nov/2026:{:02}:{:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"x\"\n",
            9 + minute / 60,
            minute % 60
        )
    };
    // Bursts of a hundred requests, 65 minutes apart: no hour has more than one of them.
    let burst = |minute: u32| (0..100).map(move |request| line(minute, request / 2));
    let log: String = [0, 65, 130].into_iter().flat_map(burst).collect();
    std::fs::write(home.path().join("bursts.log"), log).unwrap();
    let output = run(home.path(), &["suggest", "--json", "bursts.log"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let most: Vec<u64> =
        report["periods"].as_array().unwrap().iter().map(|one| one["max"].as_u64().unwrap()).collect();
    for (most, exact) in most.iter().zip([2_u64, 100, 100]) {
        assert!((exact..exact + exact.div_ceil(16)).contains(most), "{most} for {exact}");
    }
}
