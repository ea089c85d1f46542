//! What the guides to stores, load balancers and sizing say, compared with the program and with the benchmarks.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::shown;
use std::collections::BTreeMap;

use crate::nodes::STEADY;
use crate::pages::{Block, Page};
use crate::program::{Home, Server, Signal};
use crate::server::root;
use crate::upstream::Upstream;
use serde_json::json;
use tollgate_testbed::{Postgres, Server as Redis};

const RULES: &str = "rules: { client: { by: ip, limits: 100/hour } }\npolicies: { api: [client] }\n";

/// The cells of a page's rows, by the first cell.
fn rows(page: &Page) -> BTreeMap<String, Vec<String>> {
    let rows = page.text.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    rows.map(|row| {
        let mut cells = row.split('|').map(|cell| cell.trim().to_owned());
        (cells.next().unwrap(), cells.collect())
    })
    .collect()
}

fn attempt(server: &Server) {
    let body = json!({ "policy": "api", "fields": { "ip": "192.0.2.7" } });
    assert_eq!(server.check(&body).ok()["origin"], "store");
}

/// Counts an attempt, ends the server, and returns whether the next one has the count.
fn keeps(home: &Home, signal: Signal) -> bool {
    let server = home.start();
    let before = server.remaining("client", "192.0.2.7");
    attempt(&server);
    server.end_by(signal);
    let server = home.start();
    let after = server.remaining("client", "192.0.2.7");
    server.stop();
    assert!([before - 1, 100].contains(&after), "{before} before, {after} after");
    after == before - 1
}

#[test]
fn each_store_keeps_and_shares_what_the_table_says() {
    let page = Page::at("docs/guides/choosing-a-store.md");
    let rows = rows(&page);
    let (redis, postgres) = (Redis::redis().start(), Postgres::start());
    let stores = [
        "memory".to_owned(),
        "{ file: ./t.redb, sync: always }".to_owned(),
        format!("{{ redis: '{}', {STEADY} }}", redis.url()),
        format!("{{ postgres: '{}', command_timeout: 10s, connect_timeout: 10s }}", postgres.url()),
    ];
    for (column, store) in stores.iter().enumerate() {
        let cell = |row: &str| rows.get(row).unwrap_or_else(|| panic!("no row `{row}`"))[column].as_str();
        let home = Home::with(RULES).variable("TOLLGATE__STORE", store);
        let restart = if keeps(&home, Signal::TERM) { "keeps counts" } else { "starts at zero" };
        assert_eq!(cell("a restart of tollgate"), restart, "{store}");
        // The file is the one that loses nothing `with sync: always`.
        let crash = if keeps(&home, Signal::KILL) { "nothing" } else { "starts at zero" };
        assert!(cell("a crash of tollgate").contains(crash), "{store}: {crash}");
        let other = Home::with(RULES).variable("TOLLGATE__STORE", store);
        let (one, two) = (home.start(), other.start());
        let before = two.remaining("client", "192.0.2.7");
        attempt(&one);
        let shared = two.remaining("client", "192.0.2.7") == before - 1;
        assert_eq!(cell("counts are shared by").starts_with("every node"), shared, "{store}");
        let doctor = home.program().args(["doctor", "--config", "tollgate.yaml"]).output().unwrap();
        assert!(!doctor.stdout.is_empty(), "`tollgate doctor` checks {store}");
        one.stop();
        two.stop();
    }
}

#[test]
fn a_client_behind_a_load_balancer_is_known_by_its_own_address() {
    let page = Page::at("docs/guides/load-balancers.md");
    let config = page.blocks().into_iter().find(Block::is_config).unwrap().text;
    let upstream = Upstream::start();
    let addresses =
        [("10.0.1.5:8080", "127.0.0.1:0"), ("10.0.1.5:8000", "127.0.0.1:0"), ("10.0.0.0/24", "127.0.0.1")];
    let own = upstream.address.to_string();
    let config =
        addresses.iter().chain(&[("10.0.2.7:9000", own.as_str())]).fold(config, |config, (said, real)| {
            assert!(config.contains(said), "{config}");
            config.replace(said, real)
        });
    // A bucket that is not full again before the test has read it.
    let config = config.replace("10/s burst 50", "10/day burst 50");
    let home = Home::with(&config)
        .variable("TOLLGATE__STORE", "memory")
        .variable("TOLLGATE_ADMIN_TOKEN", shown::secret("TOLLGATE_ADMIN_TOKEN"));
    let server = home.start();
    let chain = [("x-forwarded-for", "198.51.100.66, 203.0.113.9"), ("x-forwarded-proto", "https")];
    assert_eq!(server.gateway().ask("GET", "/a", &chain, None).status, 200);
    let counter = |address: &str| {
        let path = format!("/api/v1/counters/client/{address}");
        let shown = server.ask_as(shown::secret("TOLLGATE_ADMIN_TOKEN"), "GET", &path, None).ok();
        shown["limits"][0]["used"].as_u64().unwrap()
    };
    assert_eq!((counter("203.0.113.9"), counter("198.51.100.66"), counter("127.0.0.1")), (1, 0, 0));
    let asked = upstream.last();
    assert_eq!(asked.header("x-forwarded-for"), Some("198.51.100.66, 203.0.113.9, 127.0.0.1"));
    assert_eq!(asked.header("x-forwarded-proto"), Some("https"));
    // Health is at `listen.http` without a key; at the gateway these are ordinary requests.
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.get(path).status, 200);
        let before = upstream.count();
        assert_eq!(server.gateway().ask("GET", path, &chain, None).status, 200);
        assert_eq!(upstream.count(), before + 1, "{path}");
    }
    for (setting, default) in [("gateway.bounds.idle_timeout", 75), ("gateway.upstreams.*.idle_timeout", 60)]
    {
        let stated =
            page.text.contains(setting) && page.text.contains(&format!("{default} seconds by default"));
        assert!(stated && defaults(setting).contains(&format!("{default}s")), "{setting}");
    }
    server.stop();
}

/// The defaults of a setting in the reference, which another test compares with the program.
fn defaults(setting: &str) -> String {
    let page = Page::at("docs/reference/configuration.md");
    rows(&page).remove(&format!("`{setting}`")).unwrap_or_else(|| panic!("no {setting}")).swap_remove(0)
}

#[test]
fn the_guide_to_sizing_names_sections_and_figures_of_the_benchmarks() {
    let page = Page::at("docs/guides/sizing.md");
    let sections = std::fs::read_to_string(root().join("bench/src/main.rs")).unwrap();
    let block = page.blocks().into_iter().find(|block| block.language == "sh").unwrap();
    for line in block.text.lines() {
        let (command, section) = line.rsplit_once(' ').unwrap();
        assert_eq!(command, "cargo run --release --manifest-path bench/Cargo.toml");
        assert!(sections.contains(&format!("(\"{section}\", ")), "no section {section}");
    }
    let figures = Page::at("docs/benchmarks.md").text;
    let rows = rows(&page);
    let mut found = 0;
    for (store, cells) in
        rows.iter().filter(|(store, _)| store.starts_with("Redis") || store.starts_with("PostgreSQL"))
    {
        for figure in cells {
            assert!(figures.contains(&figure.replace(',', "")), "{store}: {figure}");
            found += 1;
        }
    }
    assert_eq!(found, 9);
    let decided = figures.split("| uniform over 1,000,000 keys, `Engine::decide` | ").nth(1).unwrap();
    let nanoseconds: f64 = decided.split(" ns").next().unwrap().parse().unwrap();
    let figure = rows["memory, a file"][0].split("/s").next().unwrap().replace(',', "");
    let ratio = figure.parse::<f64>().unwrap() * nanoseconds / 1e9;
    assert!((0.95..1.05).contains(&ratio), "{figure}/s, and {nanoseconds} ns each");
    let connections = &rows["connections for each node"];
    assert!(
        connections[0].starts_with("`connections`, 2 by")
            && connections[1].starts_with("`connections`, 8 by")
    );
    assert_eq!(defaults("store.connections"), "`2`, PostgreSQL `8`");
    assert!(page.text.contains("10 nodes have 20 connections") && page.text.contains("up to 90 connections"));
    assert_eq!(defaults("databases.*.connections"), "`4`");
    assert!(page.text.contains("up to 4 connections to each database"));
}
