//! The blocklist at the gateway: a blocked client reaches no upstream, limited or not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::rules::{alone, rule};
use crate::support::{Stage, Upstream, route, settings};
use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::{Author, Roster, Stance};
use tollgate_engine::Wish;
use tollgate_web::TrustedProxies;

async fn list(stage: &Stage, target: &str, stance: Stance) {
    let wish = Wish {
        target: stage.engine.lists.target(target).unwrap(),
        stance,
        lasts: None,
        reason: "ask abuse@example.com".into(),
        show_reason: true,
        author: Author::Key("ops".into()),
    };
    stage.engine.lists.put(vec![wish]).await.unwrap();
}

fn from(address: &str, device: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nX-Device: {device}\r\n\r\n")
}

/// A gateway with a limited route and one without a policy.
async fn stage(upstream: &Upstream) -> Stage {
    let mut settings = settings(upstream.address);
    settings.routes[0].policy = Some("route".into());
    settings.routes.push(route("free", "/free"));
    settings.trusted_proxies = TrustedProxies::new(
        vec!["127.0.0.0/8".parse().unwrap()],
        http::HeaderName::from_static("x-forwarded-for"),
    );
    let kinds = Kinds::new([("header.x-device".into(), FieldKind::Text)]);
    let policies = alone(vec![rule("route", &["route"], &["1000/hour"])]);
    Stage::with_policies(settings, policies.with_roster(Arc::new(Roster::new(kinds, vec![])))).await
}

#[tokio::test]
async fn a_blocked_client_is_refused_on_every_route_and_counted_nowhere() {
    let upstream = Upstream::saying("x").await;
    let stage = stage(&upstream).await;
    for path in ["/", "/free"] {
        assert_eq!(stage.ask(from("203.0.113.7", "d1", path)).await.status, 200);
    }
    list(&stage, "203.0.113.0/24", Stance::Block).await;
    list(&stage, "header.x-device=stolen", Stance::Block).await;
    list(&stage, "203.0.113.80", Stance::Allow).await;
    for path in ["/", "/free"] {
        for (address, device) in [("203.0.113.7", "d1"), ("198.51.100.1", "stolen")] {
            let reply = stage.ask(from(address, device, path)).await;
            assert_eq!(reply.status, 403, "{path} {address}");
            assert_eq!(reply.header("content-type"), Some("application/problem+json"));
            assert!(reply.text().contains(r#""type":"/problems/banned""#), "{}", reply.text());
            assert!(reply.text().contains("banned: ask abuse@example.com"), "{}", reply.text());
            assert!(!reply.head.to_ascii_lowercase().contains("ratelimit"), "{}", reply.head);
        }
        assert_eq!(stage.ask(from("203.0.113.80", "d1", path)).await.status, 200, "{path}");
        assert_eq!(stage.ask(from("198.51.100.1", "d1", path)).await.status, 200, "{path}");
    }
    assert_eq!(upstream.requests().len(), 6, "what is blocked is not passed on");
    let pinned = stage.engine.pin();
    let shown =
        stage.engine.counters.look(&pinned.policies.rule("route").unwrap().plan, "all").await.unwrap();
    assert_eq!(shown.readings[0].remaining, 997);
}
