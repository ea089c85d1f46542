//! The documentation is true: its transcripts are run, its configurations loaded, its tables compared with
//! the program, and its links followed.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::shown;
use crate::transcript;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::pages::{self, Page, pages};
use crate::server::{Server, root};
use serde_json::{Value, json};

/// The start of logging calls.
const LEVELS: [&str; 3] = ["error!(", "warn!(", "info!("];

fn tollgate(arguments: &[&str]) -> (String, bool) {
    let program = env!("CARGO_BIN_EXE_tollgate");
    let output = Command::new(program).args(arguments).env_clear().env("COLUMNS", "100").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.success())
}

#[test]
fn every_transcript_prints_what_the_page_says() {
    let mut wrong = Vec::new();
    let mut run = 0;
    for page in pages() {
        let blocks = page.blocks();
        let transcripts: Vec<_> = blocks.iter().filter(|block| block.language == "console").collect();
        if transcripts.is_empty() {
            continue;
        }
        let served = page.served().unwrap_or_else(|| panic!("{} names no configuration", page.name()));
        if served.shown {
            let (commands, differences) = shown::run(&page);
            run += commands;
            wrong.extend(differences);
            continue;
        }
        let redis = served.on_redis.then(|| tollgate_testbed::Server::redis().start());
        let port = redis.as_ref().map(tollgate_testbed::Server::port);
        let store = port.map_or("memory".to_owned(), |port| {
            // A busy machine is not an outage.
            format!("{{ redis: 'redis://localhost:{port}', command_timeout: 10s, connect_timeout: 10s }}")
        });
        let server = Server::start(served.config.as_deref(), &[("TOLLGATE__STORE", &store)]);
        let places = transcript::places(&server, port);
        let directory = transcript::directory();
        for block in transcripts {
            for step in transcript::steps(&block.text) {
                run += 1;
                if let Err(difference) = transcript::run(&step, &places, directory.path()) {
                    wrong.push(format!("{}:{}: {difference}", page.name(), block.line));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(run > 30, "only {run} commands were found");
}

#[test]
fn transcripts_are_compared_to_the_letter_except_where_anything_goes() {
    assert!(transcript::matches("a … c", "a b c"));
    assert!(transcript::matches("a\n…\nc", "a\nb\nb\nc"));
    assert!(transcript::matches("a  \nb", "a\nb"));
    assert!(transcript::matches("retry in 1h", "retry in 59m 59s"));
    assert!(transcript::matches("in  12s", "in 11.5s") && !transcript::matches("in 12s", "in 12"));
    assert!(transcript::matches("\"retry_after\":3600,", "\"retry_after\":3599,"));
    assert!(!transcript::matches("\"remaining\":3600,", "\"remaining\":3599,"));
    assert!(!transcript::matches("a", "a b"));
    assert!(!transcript::matches("a … c", "a b c d"));
    assert!(!transcript::matches("", "a"));
}

#[test]
fn every_configuration_in_the_pages_is_accepted_and_served() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = 0;
    for page in pages() {
        for block in page.blocks().into_iter().filter(pages::Block::is_config) {
            let file = directory.path().join(format!("{served}.{}", block.language));
            std::fs::write(&file, &block.text).unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
                .args(["check-config", "--config"])
                .arg(&file)
                .env_clear()
                .envs(shown::SECRETS)
                .output()
                .unwrap();
            let place = format!("{}:{}", page.name(), block.line);
            assert!(output.status.success(), "{place}: {}", String::from_utf8_lossy(&output.stderr));
            let server = shown::serve(&file, &[]);
            assert_eq!(server.ask("GET", "/readyz").0, 200, "{place}");
            served += 1;
        }
    }
    assert!(served > 30, "only {served} configurations were found");
}

#[test]
fn the_guide_to_proxies_shows_the_files_that_are_tested() {
    let blocks = Page::at("docs/guides/forward-auth.md").blocks();
    let files = std::fs::read_dir(root().join("examples/forward-auth")).unwrap();
    let mut shown = 0;
    for file in files.map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(blocks.iter().any(|block| block.text == text), "{} is not shown as it is", file.display());
        shown += 1;
    }
    assert_eq!(shown, 4);
}

#[test]
fn the_guide_to_the_layer_shows_the_examples_that_are_compiled() {
    let blocks = Page::at("docs/guides/layer.md").blocks();
    for file in ["crates/layer/examples/axum.rs", "crates/layer/examples/configured.rs"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(blocks.iter().any(|block| block.text == text), "{file} is not shown as it is");
        // The page's dependencies include every crate that they use.
        let crates = text.lines().filter_map(|line| line.strip_prefix("use ")?.split("::").next());
        for name in crates.filter(|name| *name != "std").map(|name| name.replace('_', "-")) {
            let depends = |text: &str| text.lines().any(|line| line.starts_with(&format!("{name} = ")));
            let named = blocks.iter().any(|block| block.language == "toml" && depends(&block.text));
            assert!(named, "{file} uses {name}, which the page does not depend on");
        }
    }
    // Each dependency of the page is one of the layer or of its examples, at the version of this project.
    let all = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let lines = blocks.iter().filter(|block| block.language == "toml").flat_map(|block| block.text.lines());
    for (name, value) in lines.filter_map(|line| line.split_once(" = ")) {
        if let Some(path) = value.split('"').find_map(|piece| piece.strip_prefix("../tollgate/")) {
            let manifest = std::fs::read_to_string(root().join(path).join("Cargo.toml")).unwrap();
            let package =
                value.split_once("package = \"").map_or(name, |(_, rest)| rest.split('"').next().unwrap());
            assert!(manifest.contains(&format!("name = \"{package}\"")), "{path} is not {package}");
            continue;
        }
        let version = value.split('"').nth(1).unwrap();
        let known = all.lines().find_map(|line| line.strip_prefix(&format!("{name} = "))).unwrap();
        let used = known.split('"').find(|piece| piece.starts_with(|c: char| c.is_ascii_digit())).unwrap();
        assert!(used == version || used.starts_with(&format!("{version}.")), "{name} {used}, not {version}");
    }
}

#[test]
fn the_guide_to_installing_speaks_of_every_place_in_the_unit() {
    let page = Page::at("docs/guides/installing.md").text;
    let unit = std::fs::read_to_string(root().join("packaging/tollgate.service")).unwrap();
    let setting = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("the unit has no {name}"))
    };
    let state = format!("/var/lib/{}", setting("StateDirectory"));
    assert_eq!(setting("WorkingDirectory"), state);
    let start: Vec<&str> = setting("ExecStart").split(' ').collect();
    let &[program, command, option, config] = &start[..] else { panic!("{start:?}") };
    for place in [program, config, setting("EnvironmentFile").trim_start_matches('-'), &state] {
        let mut words = page.split(|c: char| c.is_whitespace() || "`,".contains(c));
        assert!(words.any(|word| word == place), "the page does not speak of {place}");
    }
    assert!(page.contains(&format!("useradd --system --home-dir {state}")) && page.contains(setting("User")));
    assert!(tollgate(&[command, "--help"]).0.contains(&format!("{option} <FILE>")), "no {option}");
    assert_eq!(setting("ExecReload"), "/bin/kill -HUP $MAINPID");
}

#[test]
fn every_link_leads_somewhere() {
    for page in pages() {
        for link in page.links().iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.path.clone() } else { page.resolve(path) };
            assert!(target.exists(), "{}: there is no {link}", page.name());
            if !anchor.is_empty() {
                let target = target.canonicalize().unwrap();
                let anchors = Page::at(target.strip_prefix(root()).unwrap().to_str().unwrap()).anchors();
                assert!(
                    anchors.iter().any(|one| one == anchor),
                    "{}: no {link} among {anchors:?}",
                    page.name()
                );
            }
        }
    }
}

#[test]
fn every_page_below_docs_is_linked_from_the_index() {
    let index = Page::at("docs/README.md");
    let linked: BTreeSet<_> =
        index.links().iter().filter_map(|link| index.resolve(link).canonicalize().ok()).collect();
    for page in pages().iter().filter(|page| page.path.starts_with(root().join("docs"))) {
        let is_index = page.path == index.path;
        assert!(is_index || linked.contains(&page.path), "docs/README.md does not link {}", page.name());
    }
}

/// Every property in a schema, as `rules.*.limits`.
fn settings(schema: &Value, node: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(name) = node["$ref"].as_str() {
        let target = schema.pointer(name.trim_start_matches('#')).unwrap();
        settings(schema, target, path, found);
    }
    for form in ["anyOf", "oneOf"] {
        for node in node[form].as_array().into_iter().flatten() {
            settings(schema, node, path, found);
        }
    }
    for (name, node) in node["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        found.insert(path.clone());
        settings(schema, node, &path, found);
    }
    let lists = ["blocklist", "allowlist", "relay.listen", "relay.users", "relay.sending.replies"];
    if node["items"].is_object() && (path.ends_with("keys") || lists.contains(&path)) {
        settings(schema, &node["items"], &format!("{path}[]"), found);
    }
    if node["additionalProperties"].is_object() {
        settings(schema, &node["additionalProperties"], &format!("{path}.*"), found);
    }
}

#[test]
fn the_reference_of_the_configuration_has_every_setting_and_no_other() {
    let schema: Value = serde_json::from_str(&tollgate(&["schema"]).0).unwrap();
    let mut real = BTreeSet::new();
    settings(&schema, &schema, "", &mut real);
    assert!(
        real.contains("rules.*.on_exceed.defer.aligned") && real.contains("keys[].token_env"),
        "{real:?}"
    );
    let page = Page::at("docs/reference/configuration.md");
    let cells = page.first_cells().into_iter();
    let written: BTreeSet<String> =
        cells.filter(|cell| !cell.starts_with('-') && cell != "setting" && cell != "variable").collect();
    assert_eq!(written, real);
}

#[test]
fn the_reference_of_the_command_line_is_what_help_prints() {
    let page = Page::at("docs/reference/command-line.md").text;
    let mut wanted = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(command) = open.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let (help, _) = tollgate(&[&words[..], &["--help"]].concat());
        let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let below =
            below.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
        let below = below.filter(|below| *below != "help");
        open.extend(below.map(|below| [&command[..], &[below.to_owned()]].concat()));
        wanted.push(([&["tollgate"], &words[..]].concat().join(" "), help));
    }
    assert!(wanted.len() > 30, "only {} commands were found", wanted.len());
    for (command, help) in wanted {
        let section = format!("## `{command}`\n\n```text\n{}\n```\n", help.trim_end());
        assert!(page.contains(&section), "the section should read\n\n{section}");
    }
}

#[test]
fn the_reference_of_metrics_has_every_metric_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("{{ file: {} }}", directory.path().join("t.redb").display());
    let server = Server::start(None, &[("TOLLGATE__STORE", &store)]);
    server.post("/api/v1/check", &json!({ "policy": "api", "fields": { "ip": "192.0.2.7" } }));
    let scrape = server.metrics();
    let real: BTreeSet<&str> = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let cells = Page::at("docs/reference/metrics.md").first_cells();
    let is_metric = |cell: &&String| cell.starts_with("tollgate_") || cell.starts_with("process_");
    let written: BTreeSet<&str> = cells.iter().filter(is_metric).map(String::as_str).collect();
    assert_eq!(written, real);
}

#[test]
fn the_reference_of_the_http_api_has_every_endpoint_and_no_other() {
    let server = Server::start(None, &[]);
    let (_, document) = server.ask("GET", "/api/v1/openapi.json");
    let mut real = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            real.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let cells = Page::at("docs/reference/http-api.md").first_cells().into_iter();
    let written: BTreeSet<String> = cells.filter(|cell| cell.contains(" /")).collect();
    assert_eq!(written, real);
}

/// The source of all crates of the program, without tests.
fn source() -> String {
    let mut source = String::new();
    let mut open = vec![root().join("crates")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                source.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    source
}

#[test]
fn the_reference_of_log_lines_has_every_line_and_no_other() {
    let source = source();
    let page = Page::at("docs/reference/log-lines.md").text;
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let written: BTreeSet<&str> = rows.map(|row| row.split('|').nth(3).unwrap().trim()).collect();
    for message in &written {
        assert!(source.contains(&format!("\"{message}\"")), "nothing logs `{message}`");
    }
    let mut found = 0;
    for call in source.split("tracing::").filter(|rest| LEVELS.iter().any(|level| rest.starts_with(level))) {
        let call = call.split(");").next().unwrap();
        let message = call.rsplit('"').nth(1).unwrap();
        // If the message is an argument, the rows name its values.
        assert!(message.starts_with('{') || written.contains(message), "`{message}` is not in the reference");
        found += 1;
    }
    assert!(found > 15, "only {found} lines were found");
}

#[test]
fn every_promise_names_tests_that_exist() {
    let page = Page::at("docs/promises.md");
    let rows: Vec<&str> = page.text.lines().filter(|line| line.starts_with("| P")).collect();
    assert!(rows.len() >= 15, "only {} promises were found", rows.len());
    for row in rows {
        let named: Vec<&str> = row.split('`').filter(|piece| piece.starts_with("crates/")).collect();
        assert!(!named.is_empty(), "no test shows {row}");
        for file in named {
            let path = root().join(file);
            assert!(path.is_file(), "there is no {file}, which is to show {row}");
            let text = std::fs::read_to_string(path).unwrap();
            let tests = text.contains("#[test]") || text.contains("#[tokio::test");
            assert!(tests || is_suite(file), "{file} has no tests");
        }
    }
}

/// Whether a file has laws of stores, which the contract suite runs.
fn is_suite(file: &str) -> bool {
    Path::new(file).parent().is_some_and(|directory| directory.ends_with("contract"))
}
