//! Observing a gateway: metrics of bounded number, and the access log.

use std::io::Write;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::support::rules::{alone, rule};
use crate::support::{Stage, Upstream, route, settings, until};
use parking_lot::Mutex;
use tollgate_gateway::settings::AccessLog;
use tracing_subscriber::fmt::MakeWriter;

#[tokio::test]
async fn requests_and_times_are_counted_by_route_and_status() {
    let upstream = Upstream::saying("x").await;
    let mut two = settings(upstream.address);
    two.routes.push(route("users", "/users/{id}"));
    let stage = Stage::new(two).await;
    for path in ["/users/1", "/users/2", "/", "/users/3"] {
        stage.fetch(path).await;
    }
    stage.ask("nonsense\r\n\r\n").await;
    let users = "tollgate_gateway_requests_total{route=\"users\",status=\"200\"}";
    until("all are counted", || stage.metric(users) == 3.0).await;
    let page = stage.metrics();
    for line in [
        "tollgate_gateway_route_info{route=\"users\",path=\"/users/{id}\"} 1",
        "tollgate_gateway_requests_total{route=\"users\",status=\"200\"} 3",
        "tollgate_gateway_requests_total{route=\"all\",status=\"200\"} 1",
        "tollgate_gateway_requests_total{route=\"unmatched\",status=\"400\"} 1",
        "tollgate_gateway_request_duration_seconds_count{route=\"users\"} 3",
        "tollgate_gateway_request_duration_seconds_bucket{le=\"10.0\",route=\"users\"} 3",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
}

#[tokio::test]
async fn however_many_paths_and_values_are_sent_the_series_stay() {
    let upstream = Upstream::saying("x").await;
    let policies = alone(vec![rule("p", &["header.x-id"], &["1/hour"])]);
    let mut limited = settings(upstream.address);
    limited.routes[0].policy = Some("p".into());
    let stage = Stage::with_policies(limited, policies).await;
    let mut client = stage.client().await;
    let ask = |number: u32| {
        format!(
            "M{number} /{number} HTTP/1.1\r\nHost: h{number}.example\r\nX-Id: {number}\r\nX-{number}: y\r\n\r\n"
        )
    };
    let all = "tollgate_gateway_requests_total{route=\"all\",status=\"200\"}";
    let series = |page: String| page.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(client.ask(ask(0)).await.status, 200);
    until("it is counted", || stage.metric(all) == 1.0).await;
    let before = series(stage.metrics());
    for number in 1..10_000 {
        assert_eq!(client.ask(ask(number)).await.status, 200);
    }
    until("all are counted", || stage.metric(all) == 10_000.0).await;
    assert_eq!(series(stage.metrics()), before);
}

/// Collects the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

impl Lines {
    fn of(&self, component: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).expect("logs are text");
        let marked = format!("component=\"{component}\"");
        text.lines().filter(|line| line.contains(&marked)).map(ToOwned::to_owned).collect()
    }
}

#[tokio::test]
async fn the_access_log_names_client_and_request_but_no_query() {
    if !tollgate_testbed::alone(module_path!(), "the_access_log_names_client_and_request_but_no_query") {
        return;
    }
    // The threads of the gateway use the global subscriber.
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let upstream = Upstream::saying("x").await;
    let mut logged = settings(upstream.address);
    logged.access_log = AccessLog::OneIn(NonZeroU32::MIN);
    logged.routes[0].policy = Some("ip".into());
    let policies = alone(vec![rule("ip", &["ip"], &["1/hour"])]);
    let stage = Stage::with_policies(logged.clone(), policies).await;
    stage.fetch("/a/../b?token=secret").await;
    until("the first is logged", || lines.of("access").len() == 1).await;
    let refused = stage.fetch("/c?token=secret").await;
    until("both are logged", || lines.of("access").len() == 2).await;
    let found = lines.of("access");
    for part in [
        "method=\"GET\"",
        "route=\"all\"",
        "host=\"example.com\"",
        "path=\"/b\"",
        "status=200",
        "duration_us=",
        "client=127.0.0.1",
        "upstream=\"app\"",
        &format!("address={}", upstream.address),
        "decided=\"store\"",
    ] {
        assert!(found[0].contains(part), "{part} is missing in {}", found[0]);
    }
    let (passed_on, told) = (upstream.request().head, refused.header("x-correlation-id").unwrap());
    let made_up = passed_on.lines().find_map(|line| line.strip_prefix("x-correlation-id: ")).unwrap();
    assert!(found[0].contains(&format!("correlation=\"{made_up}\"")), "{made_up} is not in {}", found[0]);
    assert!(!found[0].contains("policy="), "it was not refused: {}", found[0]);
    for part in [
        "status=429",
        "decided=\"store\"",
        "policy=\"ip\"",
        "rule=\"ip\"",
        &format!("correlation=\"{told}\""),
    ] {
        assert!(found[1].contains(part), "{part} is missing in {}", found[1]);
    }
    assert!(!found[1].contains("upstream="), "{}", found[1]);
    assert!(!found.concat().contains("secret"));

    let mut client = stage.client().await;
    let refused = client.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Correlation-ID: mine\r\n\r\n").await;
    assert_eq!(refused.header("x-correlation-id"), Some("mine"));
    until("it is logged", || lines.of("access").len() == 3).await;
    assert!(lines.of("access")[2].contains("correlation=\"mine\""));

    logged.access_log = AccessLog::OneIn(NonZeroU32::new(10).unwrap());
    stage.gateway.replace(logged).unwrap();
    for _ in 0..1_000 {
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    }
    let sampled = lines.of("access").len() - 3;
    assert!((20..500).contains(&sampled), "about one in ten of a thousand, not {sampled}");
}
