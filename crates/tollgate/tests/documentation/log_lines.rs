//! The log lines that guides show are what the program logs: each is provoked, and all of its members are compared.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;

use crate::pages::{Block, Page};
use crate::program::{self, Home};
use crate::upstream::Upstream;
use serde_json::{Value, json};
use tollgate_testbed::Postgres;

/// The only block of a page in a language.
fn block(page: &Page, language: &str) -> String {
    let mut found = page.blocks().into_iter().filter(|block| block.language == language);
    let block = found.next().unwrap_or_else(|| panic!("{} has no {language}", page.name()));
    assert!(found.next().is_none(), "{} has several blocks of {language}", page.name());
    block.text
}

/// The first configuration of a page.
fn config(page: &Page) -> String {
    page.blocks().into_iter().find(Block::is_config).unwrap().text
}

/// The log has a line with the members that the page shows, and with the same values except where they depend on the time
/// and the client.
fn assert_logged(page: &Page, log: &str, varies: &[&str]) {
    let shown: Value = serde_json::from_str(&block(page, "json")).unwrap();
    let members = |line: &Value| line.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let fixed = |line: &Value| {
        let mut line = line.clone();
        line.as_object_mut().unwrap().retain(|name, _| !varies.contains(&name.as_str()));
        line
    };
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let same: Vec<&Value> = lines.iter().filter(|line| line["msg"] == shown["msg"]).collect();
    let found = same.iter().any(|line| members(line) == members(&shown) && fixed(line) == fixed(&shown));
    assert!(found, "{} shows\n{shown}\nbut these are logged:\n{same:#?}", page.name());
}

#[test]
fn a_request_is_logged_as_the_guide_to_the_gateway_shows() {
    let page = Page::at("docs/guides/gateway.md");
    let upstream = Upstream::start();
    let config = config(&page).replace("127.0.0.1:9000", &upstream.address.to_string());
    let home = Home::with(&format!("store: memory\nlog: {{ format: json }}\n{config}  access_log: all\n"))
        .variable("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0");
    let server = home.start();
    assert!(home.run(&server, &["set", "client", "127.0.0.1", "1/hour"]).status.success());
    let ask = || server.gateway().ask("GET", "/api/orders", &[], None).status;
    assert_eq!([ask(), ask()], [200, 429]);
    let log = server.stop();
    assert_logged(&page, &log, &["client", "correlation", "duration_us", "host", "time"]);
}

#[test]
fn a_change_is_logged_as_the_guide_to_policies_shows() {
    let page = Page::at("docs/guides/policies-over-the-api.md");
    let home = Home::with(
        "store: memory\nlog: { format: json }\nkeys: [{ name: ops, role: admin, token_env: OPS_TOKEN }]\n\
         rules: { client: { by: ip, limits: 9/hour } }\npolicies: { api: [client] }\n",
    )
    .variable("OPS_TOKEN", "a-token-of-the-operators")
    .variable("TOLLGATE_TOKEN", "a-token-of-the-operators");
    let server = home.start();
    for command in [["create", "partners", "5/min burst 3"], ["set", "partners", "20/s burst 100"]] {
        let output = home.run(&server, &[&["policies"], &command[..]].concat());
        assert!(output.status.success(), "{command:?}: {}", program::text(&output.stderr));
    }
    assert_logged(&page, &server.stop(), &["time"]);
}

#[test]
fn rows_that_cannot_be_counted_are_logged_as_the_page_shows() {
    let page = Page::at("docs/guides/counting-rows.md");
    let postgres = Postgres::start();
    postgres.sql(
        "CREATE TABLE deals (id text, advertiser text, channel text, status text, created timestamptz);
         CREATE TABLE disputes (id text);",
    );
    postgres.sql(&block(&page, "sql"));
    let reader = postgres.url().replace("postgres@", "tollgate_reader@");
    let start = |config: &str| {
        // A slow machine is not an outage.
        let config = config.replace("      at_most:", "      timeout: 10s\n      at_most:");
        let home = Home::with(&format!("store: memory\nlog: {{ format: json }}\n{config}"));
        let home = home.variable("SHOP_DATABASE_URL", &reader);
        let server = home.start();
        (home, server)
    };
    let fields = json!({ "user": "ada", "advertiser": "acme", "channel": "c1" });
    let attempt = json!({ "policy": "deals.create", "fields": fields, "id": "d1" });
    // The role may read what the queries of the page read, and can change nothing.
    let (home, server) = start(&config(&page));
    assert_eq!(server.post("/api/v1/holds", &attempt).status, 200);
    let doctor = home.program().args(["doctor", "--config", "tollgate.yaml"]).output().unwrap();
    let said = program::text(&doctor.stdout);
    assert!(doctor.status.success() && said.contains("tollgate_reader can change no table"), "{said}");
    server.stop();
    let query = "SELECT count(*) FROM deals WHERE advertiser = $1 AND status NOT IN ('DONE', 'CANCELLED')";
    let config = config(&page);
    assert!(config.contains(query), "{config}");
    let (_home, server) = start(&config.replace(query, "SELECT NULL::bigint WHERE $1 <> ''"));
    assert_eq!(server.post("/api/v1/holds", &attempt).status, 503);
    assert_logged(&page, &server.stop(), &["time"]);
}
