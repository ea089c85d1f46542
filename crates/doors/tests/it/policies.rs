//! Policies, routes and consumers over the API: created, listed, changed, deleted, and refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::door::{self, Door, Reply, StoreKind, policies, rule};
use axum::http::Method;
use serde_json::{Value, json};
use tollgate_core::{Policies, Rule};

const ALL: &str = "/api/v1/policies";

fn one(name: &str) -> String {
    format!("{ALL}/{name}")
}

async fn make(door: &Door, body: Value) -> Reply {
    let reply = door.post(ALL, body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    reply
}

fn refused(reply: &Reply, status: u16, piece: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(reply.detail().contains(piece), "{} should say {piece}", reply.detail());
}

/// A `PUT` with `If-Match`.
async fn put_if(door: &Door, path: &str, tag: &str, body: Value) -> Reply {
    door.send(Method::PUT, path, &[("if-match", tag)], body.to_string().into_bytes()).await
}

#[tokio::test]
async fn a_policy_is_made_shown_and_enforced_together_with_the_limits_of_the_consumer() {
    let door = Door::open();
    let body = json!({ "name": "partners", "description": "for \"partners\"\n", "requestsPerSecond": 1, "burstSize": 3 });
    let reply = make(&door, body).await;
    assert_eq!(reply.header("location"), Some("/api/v1/policies/partners"));
    let shown = json!({
        "id": "partners", "name": "partners", "description": "for \"partners\"\n",
        "requestsPerSecond": 1, "burstSize": 3, "limits": ["1/s burst 3"], "by": ["route", "ip"],
        "on_exceed": "reject", "on_outage": null, "effective_on_outage": "local 50%",
        "in_force": true, "routes": 1, "version": 1,
        "createdAt": "2026-01-15T10:00:00Z", "updatedAt": "2026-01-15T10:00:00Z",
    });
    assert_eq!(reply.json(), shown);
    let looked = door.get(&one("partners")).await;
    assert_eq!((looked.json(), looked.header("etag")), (shown, reply.header("etag")));
    let limits = json!({ "requestsPerSecond": 1, "burstSize": 2 });
    assert_eq!(door.put("/api/v1/consumers/acme/rate-limit", limits).await.status, 200);
    let status = async |route: &str, consumer: Option<&str>| {
        let mut fields = json!({ "route": route, "ip": "192.0.2.1" });
        if let Some(consumer) = consumer {
            fields["consumer"] = json!(consumer);
        }
        door.check("partners", fields).await
    };
    assert_eq!(status("a", Some("acme")).await.status, 200);
    assert_eq!(status("b", Some("acme")).await.status, 200);
    let denied = status("c", Some("acme")).await;
    assert_eq!((denied.status, denied.json()["denied_by"].as_str()), (429, Some("consumer")));
    let reply = status("c", Some("other")).await;
    assert_eq!((reply.status, reply.json()["rules"][0]["remaining"].as_u64()), (200, Some(2)), "{reply:?}");
    assert_eq!(status("c", None).await.status, 200);
}

#[tokio::test]
async fn any_limit_can_be_written_and_only_a_rate_in_a_second_has_the_two_numbers() {
    let door = Door::open();
    let body = json!({
        "name": "writes", "limits": ["5/min burst 3", "100/day calendar in Europe/Berlin"], "by": "subject",
        "on_exceed": "wait 2s", "on_outage": "deny",
    });
    let shown = make(&door, body).await.json();
    assert_eq!(shown["limits"], json!(["5/min burst 3", "100/day calendar in Europe/Berlin"]));
    assert_eq!(shown["by"], json!(["subject"]));
    assert_eq!((&shown["on_exceed"], &shown["on_outage"]), (&json!("wait 2s"), &json!("deny")));
    assert_eq!(shown["effective_on_outage"], "deny");
    assert!(shown.get("requestsPerSecond").is_none() && shown.get("burstSize").is_none());
    let shown = make(&door, json!({ "name": "same", "limits": "7/s burst 9" })).await.json();
    assert_eq!((&shown["requestsPerSecond"], &shown["burstSize"]), (&json!(7), &json!(9)));
    let shown = make(&door, json!({ "name": "none", "limits": "unlimited" })).await.json();
    assert_eq!(shown["limits"], json!(["unlimited"]));
    let fields = json!({ "subject": "ada" });
    for status in [200, 200, 200, 429] {
        assert_eq!(door.check("writes", fields.clone()).await.status, status);
    }
    assert_eq!(
        door.check("writes", json!({})).await.status,
        200,
        "a request without a subject is not counted"
    );
}

#[tokio::test]
async fn a_policy_that_cannot_be_is_refused_with_the_place_of_the_mistake() {
    let door = Door::open();
    let table: &[(Value, &str)] = &[
        (json!({ "limits": "9/hour" }), "`name` is missing"),
        (json!({ "name": "a" }), "limits are missing"),
        (json!({ "name": "a", "limits": "10/s burst 0" }), "`10/s burst 0`, character 12: "),
        (json!({ "name": "a", "limits": ["9/hour", "9/fortnight"] }), "`9/fortnight`, character 3: "),
        (json!({ "name": "a", "limits": [] }), "an empty list"),
        (json!({ "name": "a", "limits": ["9/hour", "8/hour"] }), "keep one of them"),
        (json!({ "name": "a", "limits": "9/day calendar in Europe/Berin" }), "no time zone `Europe/Berin`"),
        (json!({ "name": "a", "requestsPerSecond": 10, "burstSize": 0 }), "`burstSize` is at least 1"),
        (json!({ "name": "a", "requestsPerSecond": 0, "burstSize": 5 }), "`requestsPerSecond` is at least 1"),
        (json!({ "name": "a", "requestsPerSecond": 10 }), "`requestsPerSecond` needs `burstSize`"),
        (json!({ "name": "a", "burstSize": 10 }), "`burstSize` needs `requestsPerSecond`"),
        (
            json!({ "name": "a", "requestsPerSecond": 1, "burstSize": 1, "limits": "9/hour" }),
            "give either `limits`",
        ),
        (json!({ "name": "a", "requestsPerSecond": -1, "burstSize": 1 }), "a whole number of at least 0"),
        (
            json!({ "name": "a", "requestsPerSecond": 1, "burstSize": 9_007_199_255_u64 }),
            "`1/s burst 9007199255`, character 11: ",
        ),
        (json!({ "name": "A", "limits": "9/hour" }), "a name has 1 to 64"),
        (json!({ "name": "..", "limits": "9/hour" }), "a name has 1 to 64"),
        (json!({ "name": "a".repeat(65), "limits": "9/hour" }), "a name has 1 to 64"),
        (json!({ "name": "a", "limits": "9/hour", "description": "x".repeat(1_025) }), "1025 bytes long"),
        (json!({ "name": "a", "limits": "9/hour", "description": "\u{1b}[2J" }), "a control character"),
        (json!({ "name": "a", "limits": "9/hour", "by": [] }), "0 fields make no key"),
        (
            json!({ "name": "a", "limits": "9/hour", "by": ["a", "b", "c", "d", "e"] }),
            "more than 4 in one list",
        ),
        (json!({ "name": "a", "limits": "9/hour", "by": ["a b"] }), "`a b` cannot name a field"),
        (
            json!({ "name": "a", "limits": "9/hour", "on_exceed": "wait" }),
            "`on_exceed`: `wait`, character 5: ",
        ),
        (
            json!({ "name": "a", "limits": "9/hour", "on_outage": "local 0%" }),
            "`on_outage`: `local 0%`, character 7",
        ),
        (json!({ "name": "a", "limits": "9 in total", "on_outage": "local 50%" }), "by each node alone"),
        (json!({ "name": "a", "limits": "9 ip per attempt" }), "bounds `ip`, which is part of the key"),
        (json!({ "name": "a", "limits": "9/hour", "burst": 1 }), "`burst` is not known here"),
    ];
    for (body, piece) in table {
        refused(&door.post(ALL, body.clone()).await, 400, piece);
    }
    assert_eq!(door.get(ALL).await.json(), json!({ "policies": [], "next": null }));
    assert!(door.recorded().is_empty());
}

#[tokio::test]
async fn a_name_that_is_taken_is_a_conflict() {
    let door = Door::open();
    make(&door, json!({ "name": "made", "limits": "9/hour" })).await;
    refused(
        &door.post(ALL, json!({ "name": "made", "limits": "8/hour" })).await,
        409,
        "there is a policy of that name",
    );
    for name in ["mail.accept", "domain", "consumer"] {
        refused(
            &door.post(ALL, json!({ "name": name, "limits": "8/hour" })).await,
            409,
            "the configuration has",
        );
    }
    assert_eq!(door.get(&one("made")).await.json()["limits"], json!(["9/hour"]));
}

#[tokio::test]
async fn a_change_replaces_the_whole_policy_and_honours_if_match() {
    let door = Door::open();
    let made =
        make(&door, json!({ "name": "made", "description": "old", "limits": "9/hour", "by": "ip" })).await;
    let tag = made.header("etag").unwrap().to_owned();
    door.advance(5);
    let reply = put_if(&door, &one("made"), &tag, json!({ "name": "made", "limits": "8/hour" })).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let shown = reply.json();
    assert_eq!((&shown["limits"], &shown["description"]), (&json!(["8/hour"]), &json!("")));
    assert_eq!((&shown["by"], &shown["version"]), (&json!(["route", "ip"]), &json!(2)));
    assert_eq!(shown["createdAt"], "2026-01-15T10:00:00Z");
    assert_eq!(shown["updatedAt"], "2026-01-15T10:00:05Z");
    let new = reply.header("etag").unwrap().to_owned();
    assert_ne!(new, tag);
    for stale in [tag.clone(), "nonsense".to_owned(), format!("W/{new}"), "\"\"".to_owned()] {
        let reply = put_if(&door, &one("made"), &stale, json!({ "limits": "7/hour" })).await;
        refused(&reply, 412, "has changed since you looked at it");
        let deleted = door.send(Method::DELETE, &one("made"), &[("if-match", &stale)], Vec::new()).await;
        assert_eq!(deleted.status, 412);
    }
    for met in [format!("{tag}, {new}"), "*".to_owned()] {
        assert_eq!(
            put_if(&door, &one("made"), &met, json!({ "limits": "7/hour" })).await.status,
            200,
            "{met}"
        );
    }
    let reply = door.put(&one("made"), json!({ "name": "other", "limits": "9/hour" })).await;
    refused(&reply, 400, "a policy keeps its name");
    refused(&door.put(&one("mad"), json!({ "limits": "9/hour" })).await, 404, "did you mean `made`?");
    refused(&door.get(&one("mad")).await, 404, "did you mean `made`?");
    refused(&door.delete(&one("mad")).await, 404, "did you mean `made`?");
    refused(&door.put(&one("mail.accept"), json!({ "limits": "9/hour" })).await, 404, "made over the API");
}

#[tokio::test]
async fn a_policy_goes_when_no_route_passes_it_any_more() {
    let door = Door::open();
    make(&door, json!({ "name": "made", "limits": "9/hour" })).await;
    make(&door, json!({ "name": "partners", "limits": "9/hour" })).await;
    let route = "/api/v1/routes/checkout/rate-limit";
    assert_eq!(door.put(route, json!({ "policy": "made" })).await.status, 200);
    refused(&door.delete(&one("made")).await, 409, "in use by the routes `checkout`");
    refused(&door.delete(&one("partners")).await, 409, "in use by the routes `partner feed`");
    assert_eq!(
        door.put("/api/v1/routes/partner%20feed/rate-limit", json!({ "policy": "made" })).await.status,
        200
    );
    refused(&door.delete(&one("partners")).await, 409, "`partner feed`");
    refused(&door.delete(&one("made")).await, 409, "`checkout`, `partner feed`");
    assert_eq!(door.get(&one("made")).await.json()["routes"], 2);
    for route in [route, "/api/v1/routes/partner%20feed/rate-limit"] {
        assert_eq!(door.delete(route).await.json(), json!({ "removed": true }));
        assert_eq!(door.delete(route).await.json(), json!({ "removed": false }));
    }
    assert_eq!(door.delete(&one("made")).await.json(), json!({ "deleted": "made" }));
    assert_eq!(door.delete(&one("made")).await.status, 404);
    assert_eq!(door.check("made", json!({})).await.status, 400);
    assert_eq!(door.recorded().into_keys().collect::<Vec<_>>(), ["policy/partners"]);
}

#[tokio::test]
async fn policies_are_listed_in_pages_by_name() {
    let door = Door::open();
    for number in [4, 0, 3, 1, 2] {
        make(&door, json!({ "name": format!("p{number}"), "limits": "9/hour" })).await;
    }
    let mut names = Vec::new();
    let mut path = format!("{ALL}?limit=2");
    let mut pages = 0;
    loop {
        let page = door.get(&path).await.json();
        names.extend(page["policies"].as_array().unwrap().iter().map(|one| one["name"].clone()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        path = format!("{ALL}?limit=2&after={next}");
    }
    assert_eq!((json!(names), pages), (json!(["p0", "p1", "p2", "p3", "p4"]), 3));
    let page = door.get(&format!("{ALL}?after=p3")).await.json();
    assert_eq!((page["policies"].as_array().unwrap().len(), &page["next"]), (1, &Value::Null));
    let full = door.get(&format!("{ALL}?limit=5")).await.json();
    assert_eq!(full["next"], Value::Null, "there are no more");
    refused(&door.get(&format!("{ALL}?limit=0")).await, 400, "`limit` is a number from 1 to 1000");
    refused(&door.get(&format!("{ALL}?before=p3")).await, 400, "`before` is not a query parameter");
}

#[tokio::test]
async fn routes_are_shown_with_their_assigned_and_configured_policies() {
    let door = Door::open();
    make(&door, json!({ "name": "made", "limits": "9/hour" })).await;
    let path = "/api/v1/routes/orders/rate-limit";
    let shown = door.put(path, json!({ "policy": "made" })).await.json();
    let expected = json!({
        "route": "orders", "path": "/orders", "policy": "made", "assigned": "made", "configured": "orders",
    });
    assert_eq!(shown, expected);
    assert_eq!(door.get(path).await.json(), expected);
    let all = door.get("/api/v1/routes").await.json();
    let routes: Vec<(&str, Option<&str>)> = all["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| (route["route"].as_str().unwrap(), route["policy"].as_str()))
        .collect();
    assert_eq!(routes, [("checkout", None), ("orders", Some("made")), ("partner feed", Some("partners"))]);
    assert_eq!(
        door.engine.pin().assigned_policy("orders").map(|policy| policy.name.to_string()).unwrap(),
        "made"
    );
    assert_eq!(door.put(path, json!({ "policy": "mail.accept" })).await.json()["policy"], "mail.accept");
    assert_eq!(door.delete(path).await.json(), json!({ "removed": true }));
    assert_eq!(door.get(path).await.json()["policy"], "orders");
    refused(
        &door.put(path, json!({ "policy": "mdae" })).await,
        400,
        "there is no policy `mdae`; did you mean `made`?",
    );
    refused(&door.put(path, json!({})).await, 400, "`policy` is missing");
    for path in ["/api/v1/routes/order/rate-limit", "/api/v1/routes//rate-limit"] {
        assert_eq!(door.put(path, json!({ "policy": "made" })).await.status, 404, "{path}");
        assert_eq!((door.get(path).await.status, door.delete(path).await.status), (404, 404), "{path}");
    }
    refused(&door.get("/api/v1/routes/order/rate-limit").await, 404, "did you mean `orders`?");
}

#[tokio::test]
async fn a_route_that_is_gone_can_still_be_seen_and_freed() {
    let door = Door::open();
    make(&door, json!({ "name": "made", "limits": "9/hour" })).await;
    door.engine.config.assign("gone", "made").await.unwrap();
    let shown =
        json!({ "route": "gone", "path": null, "policy": "made", "assigned": "made", "configured": null });
    let all = door.get("/api/v1/routes").await.json();
    assert_eq!(all["routes"].as_array().unwrap().last(), Some(&shown));
    let path = "/api/v1/routes/gone/rate-limit";
    assert_eq!(door.get(path).await.json(), shown);
    assert_eq!(door.put(path, json!({ "policy": "made" })).await.status, 404, "there is no such route");
    refused(&door.delete(&one("made")).await, 409, "`gone`");
    assert_eq!(door.delete(path).await.json(), json!({ "removed": true }));
    assert_eq!((door.get(path).await.status, door.delete(&one("made")).await.status), (404, 200));
}

#[tokio::test]
async fn a_policy_in_conflict_with_a_new_configuration_is_shown_as_not_in_force() {
    let door = Door::open();
    make(&door, json!({ "name": "made", "limits": "9/hour" })).await;
    door.put("/api/v1/routes/checkout/rate-limit", json!({ "policy": "made" })).await;
    let taken = Policies::new(true, vec![rule("made", &["ip"], &["1/hour"]).into()], Vec::new());
    door.engine.reload(taken);
    assert_eq!(door.get(&one("made")).await.json()["in_force"], false);
    let route = door.get("/api/v1/routes/checkout/rate-limit").await.json();
    assert_eq!((&route["policy"], &route["assigned"]), (&Value::Null, &json!("made")));
    door.engine.reload(policies());
    assert_eq!(door.get(&one("made")).await.json()["in_force"], true);
}

#[tokio::test]
async fn consumers_with_limits_of_their_own_are_set_shown_listed_and_freed() {
    let door = Door::open();
    let path = |id: &str| format!("/api/v1/consumers/{id}/rate-limit");
    refused(&door.get(&path("acme")).await, 404, "no limits of its own");
    let shown = door.put(&path("acme"), json!({ "requestsPerSecond": 10, "burstSize": 50 })).await.json();
    let expected = json!({
        "id": "acme", "requestsPerSecond": 10, "burstSize": 50, "limits": ["10/s burst 50"], "overridden": true,
    });
    assert_eq!(shown, expected);
    assert_eq!(door.get(&path("acme")).await.json(), expected);
    let shown = door.put(&path("a%2Fb%2C%20c"), json!({ "limits": ["9/hour", "99/day"] })).await.json();
    assert_eq!(shown, json!({ "id": "a/b, c", "limits": ["9/hour", "99/day"], "overridden": true }));
    for id in ["z", "b", "m"] {
        assert_eq!(door.put(&path(id), json!({ "limits": "unlimited" })).await.status, 200);
    }
    let mut ids = Vec::new();
    let mut next = Some(String::new());
    while let Some(after) = next {
        let after = after.replace('/', "%2F").replace(", ", "%2C%20");
        let page = door.get(&format!("/api/v1/consumers?limit=2&after={after}")).await.json();
        ids.extend(page["consumers"].as_array().unwrap().iter().map(|one| one["id"].clone()));
        next = page["next"].as_str().map(str::to_owned);
    }
    assert_eq!(json!(ids), json!(["a/b, c", "acme", "b", "m", "z"]));
    assert_eq!(door.delete(&path("acme")).await.json(), json!({ "removed": true }));
    assert_eq!(door.delete(&path("acme")).await.json(), json!({ "removed": false }));
    assert_eq!(door.get(&path("acme")).await.status, 404);
    refused(&door.put(&path("acme"), json!({ "limits": "10/s burst 0" })).await, 400, "character 12");
    make(&door, json!({ "name": "made", "limits": "9/hour" })).await;
    refused(
        &door.put(&path("acme"), json!({ "limits": "9 route per attempt" })).await,
        400,
        "bounds `route`",
    );
}

#[tokio::test]
async fn many_consumers_are_listed_in_order_whatever_the_size_of_a_page() {
    let door = Door::open();
    let mut expected: Vec<String> = (0..60).map(|number| format!("c{}", number * 37 % 60)).collect();
    for id in &expected {
        door.engine.config.set_override("consumer", id, vec!["9/hour".parse().unwrap()]).await.unwrap();
    }
    expected.sort();
    for limit in [1, 7, 59, 60, 61] {
        let mut ids: Vec<String> = Vec::new();
        loop {
            let after = ids.last().cloned().unwrap_or_default();
            let page = door.get(&format!("/api/v1/consumers?limit={limit}&after={after}")).await.json();
            let shown = page["consumers"].as_array().unwrap().iter();
            ids.extend(shown.map(|one| one["id"].as_str().unwrap().to_owned()));
            if page["next"].is_null() {
                break;
            }
            assert_eq!(page["next"].as_str(), ids.last().map(String::as_str));
        }
        assert_eq!(ids, expected, "{limit} at a time");
    }
}

#[tokio::test]
async fn the_configurations_own_rule_of_consumers_is_listed_and_beaten() {
    let mut consumer = rule("consumer", &["consumer"], &["9/hour"]);
    consumer.overrides.insert("filed".into(), door::plan("consumer", &["5/hour"]));
    let door =
        Door::with(Policies::new(true, vec![consumer.into()], Vec::new()), Vec::new(), StoreKind::Memory);
    let path = "/api/v1/consumers/filed/rate-limit";
    let filed = json!({ "id": "filed", "limits": ["5/hour"], "overridden": false });
    assert_eq!(door.get("/api/v1/consumers").await.json()["consumers"], json!([filed]));
    assert_eq!(door.put(path, json!({ "limits": "3/hour" })).await.json()["overridden"], true);
    assert_eq!(door.delete(path).await.json(), json!({ "removed": true }));
    assert_eq!(door.get(path).await.json(), filed);
}

#[tokio::test]
async fn the_built_in_rule_is_shown_once_it_is_used() {
    let door = Door::open();
    let rules = async || door.get("/api/v1/counters").await.json()["rules"].clone();
    assert!(rules().await.get("consumer").is_none());
    make(&door, json!({ "name": "made", "limits": "9/hour" })).await;
    assert_eq!(rules().await["consumer"]["limits"], json!(["unlimited"]));
    assert_eq!(door.get("/api/v1/counters").await.json()["policies"]["made"], json!(["made", "consumer"]));
    door.delete(&one("made")).await;
    assert!(rules().await.get("consumer").is_none());
    door.put("/api/v1/counters/consumer/acme", json!({ "limits": "9/hour" })).await;
    assert_eq!(rules().await["consumer"]["overrides"], json!({ "acme": ["9/hour"] }));
}

#[tokio::test]
async fn without_its_store_nothing_is_made_and_nothing_is_lost() {
    let door = Door::without_store();
    let reply = door.post(ALL, json!({ "name": "made", "limits": "9/hour" })).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(door.recorded().is_empty() && door.engine.pin().dynamic_policies().is_empty());
}

#[tokio::test]
async fn a_secret_rule_of_consumers_shows_no_consumer() {
    let consumer = Rule { ..rule("consumer", &["consumer"], &["9/hour"]) }.with_secret_keys();
    let door =
        Door::with(Policies::new(true, vec![consumer.into()], Vec::new()), Vec::new(), StoreKind::Memory);
    for id in ["hush-a", "hush-b", "hush-c"] {
        let reply =
            door.put(&format!("/api/v1/consumers/{id}/rate-limit"), json!({ "limits": "3/hour" })).await;
        assert!(reply.status == 200 && !reply.text.contains("hush"), "{reply:?}");
    }
    let first = door.get("/api/v1/consumers?limit=2").await;
    let next = first.json()["next"].as_str().unwrap().replace('#', "%23");
    let second = door.get(&format!("/api/v1/consumers?limit=2&after={next}")).await;
    assert!(!first.text.contains("hush") && !second.text.contains("hush"), "{first:?} {second:?}");
    assert_eq!(second.json()["consumers"].as_array().unwrap().len(), 1);
}
