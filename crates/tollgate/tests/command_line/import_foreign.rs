//! Configurations of nginx, ingress-nginx, Envoy's ratelimit and limitador, imported and proved by their decisions. For
//! nginx, the decisions are compared with those of a real one.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::{Duration, Instant};

use crate::imported::{Stand, sample};
use tollgate_core::Span;
use tollgate_import::{Answers, Input, import};
use tollgate_testbed::{Front, pause};

const CLIENT: [(&str, &str); 1] = [("ip", "127.0.0.1")];

/// Limits of nginx for a real one and for the importer.
fn site(port: u16) -> String {
    format!(
        "limit_req_zone $binary_remote_addr zone=slow:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=quick:1m rate=2r/s;
limit_req_zone $binary_remote_addr zone=bare:1m rate=1r/s;
limit_req_zone $server_name zone=all:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=fast:1m rate=100r/s;
server {{
    listen 127.0.0.1:{port};
    server_name here;
    limit_req_status 429;
    location /slow {{ limit_req zone=slow burst=3 nodelay; empty_gif; }}
    location /quick {{ limit_req zone=quick burst=5 nodelay; empty_gif; }}
    location /bare {{ limit_req zone=bare; empty_gif; }}
    location /fast {{ limit_req zone=fast burst=9 nodelay; empty_gif; }}
    location /both {{ limit_req zone=slow burst=3 nodelay; limit_req zone=all burst=9 nodelay; empty_gif; }}
    location /all {{ limit_req zone=all burst=9 nodelay; empty_gif; }}
    location /dry {{ limit_req zone=slow burst=1 nodelay; limit_req_dry_run on; empty_gif; }}
}}
"
    )
}

/// Whether nginx admits a request.
fn passes(agent: &ureq::Agent, front: &Front, path: &str) -> bool {
    let status = agent.get(format!("http://127.0.0.1:{}{path}", front.port())).call().unwrap().status();
    assert!(status == 200 || status == 429, "{status}: {}", front.log());
    status == 200
}

#[expect(clippy::disallowed_methods, reason = "nginx has only the real clock")]
fn now() -> Instant {
    Instant::now()
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into()
}

/// How many of 20 requests nginx admits, and when they began and ended.
fn round(agent: &ureq::Agent, front: &Front, path: &str, start: Instant) -> (usize, Span, Span) {
    let began = Span::from(start.elapsed());
    let admitted = (0..20).filter(|_| passes(agent, front, path)).count();
    (admitted, began, Span::from(start.elapsed()))
}

/// The clock of nginx cannot be moved, and the moment of its decision is known only within the time of a round. So one
/// import decides as late as it can have been at first and as early afterwards, and another one the other way round.
#[test]
fn a_real_nginx_admits_the_same_requests() {
    let front = Front::nginx().start(|port, _| site(port));
    let site = site(front.port());
    let agent = agent();
    for (path, policy, burst) in [("/slow", "slow", 4), ("/quick", "quick", 6), ("/bare", "bare", 1)] {
        let (fewest, most) = (Stand::of("site.conf", &site), Stand::of("site.conf", &site));
        let (mut there, mut low, mut high, start) = (0, 0, 0, now());
        for turn in 0..3 {
            let (admitted, began, ended) = round(&agent, &front, path, start);
            there += admitted;
            fewest.at(if turn == 0 { ended } else { began });
            low += fewest.admits(20, policy, &CLIENT);
            for at in [began, ended] {
                most.at(at);
                high += most.admits(20, policy, &CLIENT);
            }
            assert!(
                (low..=high).contains(&there),
                "{path}, turn {turn}: {low} to {high} here, {there} there"
            );
            assert!(low >= burst, "{path}: {low}");
            pause(Duration::from_millis(if policy == "slow" { 10 } else { 1_050 }));
        }
    }
}

/// At a high rate, requests come faster than they are admitted, so that both buckets stay nearly empty: how many requests
/// each has admitted by any moment depends on that moment alone. It is known within the time of one request.
#[test]
fn a_real_nginx_admits_as_many_by_every_moment_at_a_high_rate() {
    let front = Front::nginx().start(|port, _| site(port));
    let stand = Stand::of("site.conf", &site(front.port()));
    let (agent, start) = (agent(), now());
    let (mut there, mut here, mut widest) = (0_i64, 0_i64, Span::ZERO);
    for request in 1_i64.. {
        let sent = Span::from(start.elapsed());
        there += i64::from(passes(&agent, &front, "/fast"));
        let answered = Span::from(start.elapsed());
        stand.at(answered);
        here += i64::from(stand.ask("fast", &CLIENT, 1) == "allow");
        widest = widest.max(Span::from_micros(answered.as_micros() - sent.as_micros()));
        // One for the moment, and what 100 a second regain in the longest request.
        let most = 1 + i64::try_from(widest.as_micros() / 10_000).unwrap();
        assert!((there - here).abs() <= most, "request {request}: {here} here, {there} there, {widest}");
        if answered >= Span::from_secs(2) && request - there >= 100 {
            break;
        }
        assert!(answered < Span::from_secs(60), "{request} requests are not faster than the rate");
    }
}

#[test]
fn several_limits_of_a_location_are_charged_together_as_in_a_real_nginx() {
    let front = Front::nginx().start(|port, _| site(port));
    let stand = Stand::of("site.conf", &site(front.port()));
    let agent = agent();
    let (ip, host) = (("ip", "127.0.0.1"), ("host", "here"));
    let count = |path: &str| (0..20).filter(|_| passes(&agent, &front, path)).count();
    assert_eq!((count("/both"), stand.admits(20, "both", &[ip, host])), (4, 4), "the zone `slow` denies");
    assert_eq!(
        (count("/all"), stand.admits(20, "all", &[host])),
        (6, 6),
        "which the zone `all` is not charged for"
    );
    // The zone is shared with another location.
    assert!(!passes(&agent, &front, "/slow") && stand.ask("slow", &[ip], 1).starts_with("deny"));
    let dry = (0..5).filter(|_| passes(&agent, &front, "/dry")).count();
    assert_eq!((dry, stand.admits(5, "dry", &[ip])), (5, 5), "a dry run denies nothing");
}

#[test]
fn requests_that_nginx_delays_wait_here() {
    let text = "limit_req_zone $remote_addr zone=z:1m rate=10r/s;\nserver { location /queue { limit_req zone=z burst=20; } location /some { limit_req zone=z burst=20 delay=8; } }";
    let stand = Stand::of("nginx.conf", text);
    assert_eq!(stand.ask("queue", &CLIENT, 1), "allow");
    assert_eq!(stand.ask("queue", &CLIENT, 1), "wait by z for 100ms");
    assert!(
        stand.imported.config.contains("limits: 10/s burst 1\n    on_exceed: wait 2s"),
        "{}",
        stand.imported.config
    );
    assert_eq!(stand.admits(20, "some", &CLIENT), 9, "delay=8 passes eight more at once");
    assert!(
        stand.imported.config.contains("limits: 10/s burst 9\n    on_exceed: wait 1s200ms"),
        "{}",
        stand.imported.config
    );
    assert!(stand.found("differs").iter().any(|line| line.contains("other numbers elsewhere")));
}

#[test]
fn limits_of_nginx_are_inherited_only_by_blocks_without_their_own() {
    let text = "http {\n limit_conn_zone $binary_remote_addr zone=conns:1m;\n limit_req_zone $http_x_api_key$uri zone=keys:1m rate=2r/s;\n limit_conn conns 2;\n server {\n  server_name shop.example;\n  limit_req zone=keys;\n  location /a { limit_req zone=keys burst=4 nodelay; }\n  location /b { limit_conn conns 1; }\n }\n}\n";
    let stand = Stand::of("nginx.conf", text);
    let rules = |policy: &str| {
        let policy =
            stand.config.policies.find(policy).unwrap_or_else(|_| panic!("{}", stand.imported.config));
        policy.rules.iter().map(|rule| rule.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(rules("http.gateway"), ["conns"]);
    assert_eq!(rules("server.shop.example"), ["keys"]);
    assert_eq!(rules("server.shop.example.gateway"), ["keys", "conns"]);
    assert_eq!(rules("a"), ["keys-2"]);
    assert_eq!(rules("a.gateway"), ["keys-2", "conns"]);
    assert_eq!(rules("b.gateway"), ["keys", "conns-2"]);
    let fields = [("ip", "192.0.2.1"), ("header.x-api-key", "k"), ("path", "/a")];
    let hold = |id: &str| stand.ask_as("a.gateway", &fields, 1, Some(id));
    assert_eq!(
        (hold("1").as_str(), hold("2").as_str(), hold("3").as_str()),
        ("allow", "allow", "deny by conns for 1m")
    );
}

#[test]
fn a_status_of_nginx_differs_unless_it_is_429_also_where_none_is_written() {
    let text = "http {
limit_conn_zone $binary_remote_addr zone=conns:1m;
limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
limit_req zone=z;
server { limit_req_status 429;
location /told { limit_req zone=z burst=1; }
location /both { limit_req zone=z burst=2;
limit_conn conns 1; }
location /dry { limit_conn conns 2; limit_conn_dry_run on; } }
}";
    let stand = Stand::of("nginx.conf", text);
    let said: Vec<String> =
        stand.found("differs").into_iter().filter(|one| one.contains("not 503")).collect();
    let lines: Vec<&str> = said.iter().filter_map(|one| one.split(':').nth(1)).collect();
    assert_eq!(lines, ["4", "8"], "{said:?}");
    let exact = stand.found("exact");
    assert!(exact.iter().any(|one| one.ends_with("a denied request gets 429")), "{exact:?}");
}

#[test]
fn a_key_of_nginx_without_an_equivalent_is_asked_for() {
    let text = "limit_req_zone $limit_key zone=z:1m rate=1r/s;\nserver { location / { limit_req zone=z; } }";
    let stand = Stand::of("nginx.conf", text);
    let asks =
        |stand: &Stand| stand.found("answer").iter().filter(|asked| asked.contains("--by z=ip")).count();
    assert_eq!(asks(&stand), 1, "{:?}", stand.found("answer"));
    let answers = Answers::default().by("z=subject").unwrap();
    let stand = Stand::answered(&[("nginx.conf", text)], &answers);
    assert_eq!(asks(&stand), 0, "{:?}", stand.found("answer"));
    assert_eq!(stand.ask("root", &[("subject", "ada")], 1), "allow");
}

#[test]
fn zones_and_their_uses_may_be_in_different_files() {
    let zones = "http { limit_req_zone $binary_remote_addr zone=api:10m rate=1r/s; include conf.d/*.conf; }";
    let uses = "server { location /x { limit_req zone=api burst=2 nodelay; } }";
    let stand = Stand::answered(&[("nginx.conf", zones), ("site.conf", uses)], &Answers::default());
    assert_eq!(stand.admits(5, "x", &CLIENT), 3);
    let alone = import(&[Input { name: "site.conf", text: uses }], &Answers::default()).unwrap_err();
    assert_eq!(
        alone.to_string(),
        "site.conf:1:24: the zone `api` is not defined: name the file with its `limit_req_zone` too"
    );
}

#[test]
fn an_ingress_admits_five_times_its_rate_and_one_more() {
    let stand = Stand::of("ingress.yaml", &sample("ingress.yaml"));
    let ask = |ip: &str| {
        (0..100)
            .filter(|id| {
                stand.ask_as("web.shop.gateway", &[("ip", ip)], 1, Some(&format!("{ip}{id}"))) == "allow"
            })
            .count()
    };
    assert_eq!(ask("198.51.100.1"), 20, "20 connections");
    assert_eq!(ask("192.0.2.10"), 100, "on the list of those without limits");
    let rates = &stand.config.policies.find("web.shop").unwrap().rules;
    assert!(rates.len() == 2 && rates.iter().all(|rule| rule.plan.in_flight().is_none()), "for forward-auth");
    assert!(stand.found("differs").iter().any(|line| line.contains("names end in `.gateway`")));
    let text =
        sample("ingress.yaml").replace("    nginx.ingress.kubernetes.io/limit-connections: \"20\"\n", "");
    let stand = Stand::of("ingress.yaml", &text);
    assert_eq!(stand.admits(100, "web.shop", &CLIENT), 51, "10 a second, in bursts of 50");
    stand.after("1s");
    assert_eq!(stand.admits(100, "web.shop", &CLIENT), 10);
    let twice = text.replace(
        "limit-rps: \"10\"",
        "limit-rps: \"10\"\n    nginx.ingress.kubernetes.io/limit-burst-multiplier: \"2\"",
    );
    assert_eq!(Stand::of("ingress.yaml", &twice).admits(100, "web.shop", &CLIENT), 21);
}

#[test]
fn descriptors_of_envoy_are_counted_by_the_clock() {
    let stand = Stand::of("envoy.yaml", &sample("envoy-ratelimit.yaml"));
    let to = [("to_number", "+4912345")];
    assert_eq!(stand.admits(200, "messaging.to_number", &to), 100);
    assert_eq!(
        stand.ask("messaging.to_number", &to, 1),
        "deny by messaging.to_number for 12h",
        "until midnight in UTC"
    );
    let marketing = "messaging.message_type.marketing.to_number";
    assert_eq!(stand.admits(9, marketing, &to), 5, "a counter of its own");
    stand.after("12h");
    assert_eq!(stand.admits(9, marketing, &to), 5);
}

#[test]
fn descriptors_of_envoy_with_values_override_those_without() {
    let stand = Stand::of("envoy.yaml", &sample("envoy-ratelimit.yaml"));
    let from = |address: &str| stand.admits(500, "messaging.remote_address", &[("remote_address", address)]);
    assert_eq!((from("50.0.0.1"), from("50.0.0.5"), from("50.0.0.6")), (10, 100, 500));
    assert_eq!((from("2001:db8::1"), from("2001:db8::2")), (10, 10), "single addresses");
    assert_eq!(stand.admits(9, "messaging.path", &[("path", "/")]), 9, "shadow mode denies nothing");
    assert_eq!(
        stand.ask("messaging.path", &[("path", "/"), ("user", "mallory")], 1),
        "block",
        "requests_per_unit: 0"
    );
    assert_eq!(stand.ask("messaging.path", &[("path", "/"), ("user", "ada")], 1), "allow");
}

#[test]
fn no_foreign_zero_becomes_no_limit() {
    let envoy = "domain: d\ndescriptors:\n- { key: a, rate_limit: { unit: day, requests_per_unit: 0 } }\n- { key: b, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let limitador = "- { namespace: d, max_value: 0, seconds: 60, conditions: [], variables: [] }\n- { namespace: d, max_value: 1, seconds: 60, conditions: [], variables: [b] }\n";
    for (name, text) in [("envoy.yaml", envoy), ("limitador.yaml", limitador)] {
        let stand = Stand::of(name, text);
        assert!(
            !stand.imported.config.contains("unlimited") && stand.config.policies.rules().len() == 1,
            "{}",
            stand.imported.config
        );
        assert!(stand.found("differs").iter().any(|line| line.contains("denies everything")));
    }
}

#[test]
fn limits_of_limitador_start_with_the_first_hit_and_stack() {
    let stand = Stand::of("limits.yaml", &sample("limitador.yaml"));
    let user = [("user_id", "ada")];
    assert_eq!(stand.admits(20, "shop.method.get", &user), 10);
    assert_eq!(stand.admits(20, "shop.method.post", &user), 5);
    stand.after("30s");
    assert_eq!(stand.ask("shop.method.get", &user, 1), "deny by shop.1 for 30s");
    stand.after("30s");
    assert_eq!(stand.admits(20, "shop.method.get", &user), 10);
    assert_eq!(stand.admits(2_000, "shop", &[]), 1_000 - 25, "the limit without conditions counted them all");
}

/// The lines of the gateway's routes in a configuration.
fn routes(stand: &Stand) -> Vec<String> {
    let routes = stand.imported.config.split("  routes:\n").nth(1).unwrap_or_default();
    routes.lines().take_while(|line| line.starts_with("    ")).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn every_location_of_nginx_becomes_a_route_with_the_policy_that_holds_in_it() {
    let text = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
limit_conn_zone $binary_remote_addr zone=c:1m;
upstream app { server 10.0.0.1:8080 weight=2; server 10.0.0.2; server 10.0.0.3 down; }
server { server_name www.example.com example.com; limit_req zone=z burst=5 nodelay;
location / { proxy_pass http://app; }
location /v1/ { proxy_pass http://app/; limit_req zone=z burst=9 nodelay; }
location /v2/ { proxy_pass https://api.example.net/new/; limit_conn c 3; }
location = /health { proxy_pass http://[::1]:9100; }
location ~ [.]php$ { limit_req zone=z; }
location @again { proxy_pass http://app; }
location /socket { proxy_pass http://unix:/run/app.sock; } }
server { server_name ~^(?<name>.+)[.]example[.]org$ *.example.net; location / { proxy_pass http://$upstream; } }";
    let stand = Stand::of("nginx.conf", text);
    let hosts = "host: [www.example.com, example.com]";
    assert_eq!(
        routes(&stand),
        [
            format!("root: {{ path: /*, {hosts}, upstream: app, policy: server.www.example.com }}"),
            format!("v1: {{ path: /v1/*, {hosts}, upstream: app, policy: v1, strip_prefix: /v1 }}"),
            format!(
                "v2: {{ path: /v2/*, {hosts}, upstream: api.example.net, policy: v2.gateway, strip_prefix: /v2, add_prefix: /new }}"
            ),
            format!("health: {{ path: /health, {hosts}, upstream: app-2, policy: server.www.example.com }}"),
            format!(
                "socket: {{ path: /socket/*, {hosts}, upstream: app-3, policy: server.www.example.com }}"
            ),
            "root-2: { path: /*, host: [\"*.example.net\"], upstream: app-3 }".to_owned(),
        ]
    );
    let config = &stand.imported.config;
    assert!(config.contains("    app: [\"10.0.0.1:8080\", \"10.0.0.2:80\"]\n"), "{config}");
    assert!(
        config.contains("    api.example.net: { addresses: [\"api.example.net:443\"], tls: {} }\n"),
        "{config}"
    );
    assert!(stand.found("left_out").iter().any(|line| line.contains("`location ~ [.]php$` has no route")));
    assert!(stand.found("answer").iter().any(|line| line.contains("assumed `127.0.0.1:9000`")));
    assert!(stand.config.gateway.is_some());
}

#[test]
fn limits_on_connections_are_in_no_policy_that_forward_auth_can_ask() {
    let text = "limit_conn_zone $binary_remote_addr zone=c:1m;
limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
server { location /a/ { limit_conn c 3; limit_req zone=z; } location /b/ { limit_conn c 3; } location /c/ { limit_req zone=z; } }";
    let stand = Stand::of("nginx.conf", text);
    for policy in stand.config.policies.iter() {
        let counts = policy.rules.iter().any(|rule| rule.plan.in_flight().is_some());
        assert_eq!(counts, policy.name.ends_with(".gateway"), "{}", stand.imported.config);
    }
    assert!(stand.config.policies.find("a").is_ok() && stand.config.policies.find("b").is_err());
    let told = stand.found("differs").iter().filter(|line| line.contains("would answer 500")).count();
    assert_eq!(told, 1, "once, not for each block");
}

#[test]
fn an_odd_descriptor_of_envoy_is_left_out_and_the_others_stay() {
    let text = "domain: d
descriptors:
- { key: a, rate_limit: { unit: day, requests_per_unit: 7 } }
- { key: a, rate_limit: { unit: day, requests_per_unit: 9 } }
- { key: b, rate_limit: { unit: decade, requests_per_unit: 1 } }
- { key: c, rate_limit: { unit: day, requests_per_unit: 18446744073709551615 } }
- { key: p, descriptors: [{ key: q, descriptors: [{ key: p, rate_limit: { unit: day, requests_per_unit: 1 } }] }] }
- { key: 1, descriptors: [{ key: 2, descriptors: [{ key: 3, descriptors: [{ key: 4, descriptors: [{ key: 5 }] }] }] }] }
- { key: e, rate_limit: none }
- just a text
- { value: x, rate_limit: { unit: day, requests_per_unit: 1 } }
- { key: remote_address, value: nowhere, rate_limit: { unit: day, requests_per_unit: 1 } }
- { key: z, rate_limit: { unit: day, requests_per_unit: 3 } }";
    let stand = Stand::of("envoy.yaml", text);
    assert_eq!((stand.admits(20, "d.a", &[("a", "x")]), stand.admits(20, "d.z", &[("z", "x")])), (7, 3));
    let lines: Vec<String> = stand.found("left_out");
    let lines: Vec<&str> = lines.iter().filter_map(|line| line.split(':').nth(1)).collect();
    assert_eq!(lines, ["4", "5", "6", "7", "8", "9", "10", "11", "12"], "{:?}", stand.found("left_out"));
    let none = import(
        &[Input { name: "envoy.yaml", text: "domain: d\ndescriptors:\n- { value: x }\n" }],
        &Answers::default(),
    );
    assert!(none.unwrap_err().to_string().contains("envoy.yaml:3:3: the descriptor has no `key`"));
}

#[test]
fn conditions_of_limitador_that_differ_only_in_an_operator_do_not_look_alike() {
    let long = "descriptors[0]['a_very_long_name_of_a_header_that_says_little'] ";
    let limit = |operator: &str, value: &str| {
        format!(
            "- {{ namespace: d, max_value: 5, seconds: 60, conditions: [\"{long}{operator} '{value}'\"], variables: [] }}\n"
        )
    };
    let text = limit("==", "GET") + &limit("!=", "GET") + &limit("==", "a != b");
    let stand = Stand::of("limits.yaml", &text);
    let config = &stand.imported.config;
    for condition in ["== 'GET'", "!= 'GET'", "== 'a != b'"] {
        assert_eq!(
            config.matches(&format!("{long}{condition}.")).count(),
            2,
            "a rule and a policy: {config}"
        );
        let told = stand
            .found("differs")
            .iter()
            .filter(|line| line.contains(&format!("{long}{condition},")))
            .count();
        assert_eq!(told, 1, "{:?}", stand.found("differs"));
    }
    let short = "- { namespace: d, max_value: 5, seconds: 60, conditions: [\"m != 'GET'\", \"n >= 5\"], variables: [] }";
    let stand = Stand::of("limits.yaml", short);
    assert!(stand.config.policies.find("d.m.not.get.n.from.5").is_ok(), "{}", stand.imported.config);
}
