//! Which test executes each block of the guides.
//!
//! Three tests execute most blocks: `every_transcript_prints_what_the_page_says` those marked `console`,
//! `every_configuration_in_the_pages_is_accepted_and_served` complete configurations, and `every_python_sample_runs` those
//! marked `python`. The table names the test of every other block, and of pages whose statements no block shows. The test
//! below fails if a block is missing here, or if a row is no longer true.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;

use crate::pages::{Page, pages};
use crate::server::root;

/// Blocks of one language on a page, and the test that executes them.
struct Row {
    /// The page, below `docs`.
    page: &'static str,
    /// The language; `yaml fragment` for parts of configurations, `prose` for what the text and its tables say.
    language: &'static str,
    /// How many blocks of this language the test executes.
    blocks: usize,
    /// Below `crates`.
    file: &'static str,
    test: &'static str,
    /// What the file names: the page, or the example that the page shows as it is.
    names: &'static str,
}

const fn row(
    page: &'static str,
    language: &'static str,
    blocks: usize,
    file: &'static str,
    test: &'static str,
) -> Row {
    Row { page, language, blocks, file, test, names: page }
}

const fn example(
    page: &'static str,
    language: &'static str,
    names: &'static str,
    file: &'static str,
    test: &'static str,
) -> Row {
    Row { page, language, blocks: 1, file, test, names }
}

const BLOCKS: &str = "tollgate/tests/documentation/blocks.rs";
const INSTALLING: &str = "tollgate/tests/documentation/installing.rs";
const LOG_LINES: &str = "tollgate/tests/documentation/log_lines.rs";
const METRICS: &str = "tollgate/tests/documentation/metrics.rs";
const PAGES: &str = "tollgate/tests/documentation/content.rs";
const POSTFIX: &str = "tollgate/tests/program/other_programs/postfix.rs";
const PROXIES: &str = "doors/tests/it/other_programs/forward_auth_proxies.rs";
const LAYER: &str = "layer/tests/it/other_programs/examples.rs";
const STORES: &str = "tollgate/tests/documentation/stores.rs";

#[rustfmt::skip]
const ROWS: [Row; 45] = [
    row("clients/python.md", "sh", 2, BLOCKS, "the_python_client_is_installed_and_served_as_the_page_says"),
    row("guides/choosing-a-store.md", "prose", 0, STORES, "each_store_keeps_and_shares_what_the_table_says"),
    row("guides/console.md", "nginx fragment", 1, BLOCKS, "the_console_works_behind_the_nginx_of_the_page"),
    row("guides/counting-rows.md", "json", 1, LOG_LINES, "rows_that_cannot_be_counted_are_logged_as_the_page_shows"),
    row("guides/counting-rows.md", "sql", 1, LOG_LINES, "rows_that_cannot_be_counted_are_logged_as_the_page_shows"),
    row("guides/first-steps.md", "sh", 1, BLOCKS, "the_first_start_prints_what_the_page_shows"),
    row("guides/first-steps.md", "text", 1, BLOCKS, "the_first_start_prints_what_the_page_shows"),
    row("guides/forward-auth.md", "text", 1, BLOCKS, "traefik_is_answered_at_the_address_of_the_page"),
    row("guides/forward-auth.md", "yaml fragment", 1, BLOCKS, "traefik_is_answered_at_the_address_of_the_page"),
    example("guides/forward-auth.md", "nginx", "examples/forward-auth/nginx.conf", PROXIES, "a_client_sees_its_remainder_and_is_denied_at_zero"),
    example("guides/forward-auth.md", "caddy", "examples/forward-auth/Caddyfile", PROXIES, "a_client_sees_its_remainder_and_is_denied_at_zero"),
    example("guides/forward-auth.md", "haproxy", "examples/forward-auth/haproxy.cfg", PROXIES, "a_client_sees_its_remainder_and_is_denied_at_zero"),
    example("guides/forward-auth.md", "lua", "examples/forward-auth/tollgate.lua", PROXIES, "a_client_sees_its_remainder_and_is_denied_at_zero"),
    row("guides/gateway.md", "json", 1, LOG_LINES, "a_request_is_logged_as_the_guide_to_the_gateway_shows"),
    row("guides/installing.md", "sh", 6, INSTALLING, "the_commands_of_the_page_install_the_program_and_its_unit"),
    row("guides/installing.md", "text", 1, INSTALLING, "the_commands_of_the_page_install_the_program_and_its_unit"),
    row("guides/installing.md", "prose", 0, PAGES, "the_guide_to_installing_speaks_of_every_place_in_the_unit"),
    example("guides/layer.md", "rust", "crates/layer/examples/axum.rs", LAYER, "the_service_of_the_guide_limits_requests_and_failed_logins"),
    example("guides/layer.md", "rust", "crates/layer/examples/configured.rs", LAYER, "the_configured_service_of_the_guide_has_limits_and_metrics"),
    row("guides/layer.md", "toml fragment", 2, PAGES, "the_guide_to_the_layer_shows_the_examples_that_are_compiled"),
    row("guides/load-balancers.md", "prose", 0, STORES, "a_client_behind_a_load_balancer_is_known_by_its_own_address"),
    row("guides/logins.md", "json", 1, "tollgate/tests/program/other_programs/guard_webhooks.rs", "a_notice_has_the_members_that_the_guide_shows"),
    row("guides/logins.md", "prose", 0, "tollgate/tests/program/other_programs/guard_webhooks.rs", "the_signature_check_in_the_guide_works"),
    row("guides/monitoring.md", "promql", 1, METRICS, "the_queries_of_the_guides_return_data"),
    row("guides/monitoring.md", "prose", 0, METRICS, "the_tables_of_the_guide_have_every_alert_and_every_recorded_name"),
    row("guides/policies-over-the-api.md", "json", 1, LOG_LINES, "a_change_is_logged_as_the_guide_to_policies_shows"),
    row("guides/postfix.md", "postfix", 1, POSTFIX, "the_sixth_message_of_a_sender_gets_4xx_and_nothing_is_lost"),
    row("guides/postfix.md", "postfix", 2, POSTFIX, "each_recipient_counts_at_rcpt_and_each_message_at_the_end_of_its_text"),
    row("guides/postfix.md", "postfix", 1, POSTFIX, "behind_permit_mynetworks_the_check_is_never_reached"),
    row("guides/postfix.md", "postfix", 1, POSTFIX, "a_context_chooses_its_policy"),
    row("guides/postfix.md", "postfix", 2, POSTFIX, "without_tollgate_postfix_does_what_default_action_says"),
    row("guides/postfix.md", "text", 1, POSTFIX, "the_sixth_message_of_a_sender_gets_4xx_and_nothing_is_lost"),
    row("guides/postfix.md", "yaml fragment", 1, BLOCKS, "contexts_and_ports_choose_the_policy_as_the_guide_to_postfix_says"),
    row("guides/postgres.md", "sql", 8, "postgres/tests/it/guide.rs", "the_sql_of_the_guide_does_what_it_says"),
    row("guides/redis.md", "text", 1, "tollgate/tests/documentation/redis.rs", "the_user_of_the_guide_may_do_what_the_store_does_and_no_harm"),
    row("guides/redis.md", "yaml fragment", 1, BLOCKS, "the_store_of_the_guide_to_redis_is_reached_over_tls"),
    row("guides/redis.md", "prose", 0, "tollgate/tests/documentation/redis.rs", "keys_take_as_much_memory_as_the_guide_says"),
    row("guides/redis.md", "prose", 0, "redis/tests/it/ways.rs", "the_user_of_the_guide_can_do_all_that_a_store_does"),
    row("guides/relay.md", "sh", 1, "tollgate/tests/program/other_programs/relay_doors.rs", "the_first_lines_of_the_guide_run_as_they_are_written"),
    row("guides/relay.md", "prose", 0, BLOCKS, "the_relay_of_the_page_takes_mail_of_its_network"),
    row("guides/relay.md", "prose", 0, "tollgate/tests/program/other_programs/mail_api.rs", "the_presets_have_the_limits_of_the_guide"),
    row("guides/running.md", "yaml fragment", 1, METRICS, "the_queries_of_the_guides_return_data"),
    row("guides/running.md", "promql", 1, METRICS, "the_queries_of_the_guides_return_data"),
    row("guides/sizing.md", "sh", 1, STORES, "the_guide_to_sizing_names_sections_and_figures_of_the_benchmarks"),
    row("guides/why-was-i-limited.md", "yaml fragment", 1, BLOCKS, "a_denial_has_the_link_of_the_page"),
];

/// Languages that other pages may show: responses, drawings, and commands that build or measure.
const ELSEWHERE: [&str; 3] = ["json", "sh", "text"];

/// The blocks of a page that no general test executes, by language.
fn others(page: &Page) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for block in page.blocks() {
        if block.is_config() || ["console", "python"].contains(&&*block.language) {
            continue;
        }
        let language = if block.fragment { format!("{} fragment", block.language) } else { block.language };
        *found.entry(language).or_default() += 1;
    }
    found
}

/// Whether a page belongs to the guides.
fn is_guide(name: &str) -> bool {
    name.starts_with("docs/guides/") || name.starts_with("docs/clients/")
}

#[test]
fn every_block_of_the_guides_is_executed_by_a_test() {
    let mut wrong = Vec::new();
    let mut guides = 0;
    for page in pages() {
        let name = page.name();
        // A fragment of these pages is added to the configuration that is served for their rows.
        if name.starts_with("docs/coming-from/") {
            continue;
        }
        if !is_guide(&name) {
            let unknown = others(&page).into_keys().find(|language| !ELSEWHERE.contains(&&**language));
            wrong.extend(unknown.map(|language| format!("{name}: what is `{language}`?")));
            continue;
        }
        guides += 1;
        let rows = || ROWS.iter().filter(|row| format!("docs/{}", row.page) == name);
        let mut listed = BTreeMap::new();
        for row in rows().filter(|row| row.language != "prose") {
            *listed.entry(row.language.to_owned()).or_default() += row.blocks;
        }
        let found = others(&page);
        if listed != found {
            wrong.push(format!("{name} has the blocks {found:?}, and tests are named for {listed:?}"));
        }
        if page.blocks().is_empty() && rows().next().is_none() {
            wrong.push(format!("{name} has no block, and no test is named for what it says"));
        }
    }
    wrong.extend(ROWS.iter().filter_map(|row| untrue(row).map(|why| format!("docs/{}: {why}", row.page))));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(guides > 25, "only {guides} guides were found");
}

/// Why a row is not true.
fn untrue(row: &Row) -> Option<String> {
    if !root().join("docs").join(row.page).is_file() {
        return Some("there is no such page".to_owned());
    }
    let Ok(text) = std::fs::read_to_string(root().join("crates").join(row.file)) else {
        return Some(format!("there is no crates/{}", row.file));
    };
    // Only attributes stand between `#[test]` and the function.
    let tests = text.split("#[test]").skip(1).chain(text.split("#[tokio::test").skip(1));
    let declared = format!("fn {}()", row.test);
    let mut heads = tests.map(|rest| rest.split('{').next().unwrap_or_default());
    if !heads.any(|head| head.contains(&declared)) {
        return Some(format!("crates/{} has no test {}", row.file, row.test));
    }
    if !text.contains(row.names) {
        return Some(format!("crates/{} does not name {}", row.file, row.names));
    }
    if row.names != row.page {
        let shown = std::fs::read_to_string(root().join(row.names)).unwrap_or_default();
        let blocks = Page::at(&format!("docs/{}", row.page)).blocks();
        if !blocks.iter().any(|block| block.language == row.language && block.text == shown) {
            return Some(format!("it does not show {} as it is", row.names));
        }
    }
    None
}
