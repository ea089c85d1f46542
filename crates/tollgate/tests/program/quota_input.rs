//! Invalid requests about holds and costs: the real program refuses them with a clear message, and changes
//! nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Server, request};
use serde_json::{Value, json};

const CONFIG: &str = "
store: memory
rules:
  active_deals: { code: MAX_ACTIVE_DEALS, by: advertiser, limits: 10 at once }
  disputes: { by: user, limits: 3/week sliding }
  client: { by: ip, limits: 3 at once }
policies:
  deals: [active_deals]
  disputes: [disputes]
";

const MEBIBYTE: usize = 1 << 20;

/// The status and the detail of a problem.
fn problem(server: &Server, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let reply = server.ask(method, path, body);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{}", reply.text());
    (reply.status, reply.json()["detail"].as_str().unwrap().to_owned())
}

fn deal(id: &Value, cost: &Value) -> Value {
    json!({ "policy": "deals", "fields": { "advertiser": "ads" }, "id": id, "cost": cost })
}

#[test]
fn costs_and_ids_that_are_none_are_refused_and_take_nothing() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let said = |path: &str, body: &Value| problem(&server, "POST", path, Some(body));
    for path in ["/api/v1/holds", "/api/v1/check"] {
        for (cost, words) in [
            (json!(-1), "expected a whole number of at least 0, not the number -1"),
            (json!(1.5), "expected a whole number of at least 0, not the number 1.5"),
            (json!("1"), "expected a whole number"),
            (json!(9_007_199_254_740_992_u64), "the cost 9007199254740992 is too large"),
        ] {
            let (status, detail) = said(path, &deal(&json!("d"), &cost));
            assert!(status == 400 && detail.contains(words), "{path} {cost}: {status} {detail}");
        }
        let (status, detail) = said(path, &deal(&json!(""), &json!(1)));
        assert_eq!((status, &*detail), (400, "the id is empty; leave it out if there is none"), "{path}");
        let (status, detail) = said(path, &deal(&json!("d".repeat(257)), &json!(1)));
        assert_eq!((status, &*detail), (400, "the id is 257 bytes long; at most 256 are allowed"), "{path}");
        let (status, detail) = said(path, &deal(&json!(7), &json!(1)));
        assert!(status == 400 && detail.contains("expected a string"), "{path}: {status} {detail}");
    }
    let (status, detail) = said("/api/v1/holds", &json!({ "policy": "deals", "fields": {} }));
    assert!(status == 400 && detail.contains("`id`"), "{status} {detail}");
    assert_eq!(server.remaining("active_deals", "ads"), 10);
}

#[test]
fn an_id_of_a_mebibyte_is_refused_wherever_it_stands() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let huge = "d".repeat(MEBIBYTE);
    for path in ["/api/v1/holds", "/api/v1/check"] {
        let whole = request("POST", path, &[], Some(&deal(&json!(huge), &json!(1))));
        let head = whole.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let mut connection = server.connect();
        // The length alone is too much, so the server does not wait for the rest.
        connection.send(&whole[..head]);
        let reply = connection.reply().unwrap();
        assert_eq!(
            (reply.status, &reply.json()["detail"]),
            (413, &json!("the body is longer than 1048576 bytes"))
        );
    }
    let holds = "/api/v1/holds/active_deals/ads";
    let (status, detail) = problem(&server, "PUT", holds, Some(&json!({ "ids": ["live", huge] })));
    let expected = "`ids[1]`: the id is 1048576 bytes long; at most 256 are allowed";
    assert_eq!((status, &*detail), (400, expected));
    let mut connection = server.connect();
    // The server answers before it has read everything, and may close before everything is sent.
    let _ = connection.try_send(&request("DELETE", &format!("{holds}/{huge}"), &[], None));
    let status = connection.reply().map(|reply| reply.status);
    assert!(matches!(status, Some(400..=499) | None), "{status:?}");
    assert_eq!(server.get(holds).ok()["held"], 0);
}

#[test]
fn unknown_rules_keys_and_fields_are_named() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let table: [(&str, &str, Option<Value>, u16, &str); 8] = [
        ("GET", "/api/v1/holds/active_deal/ads", None, 404, "active_deal"),
        ("DELETE", "/api/v1/holds/nothing/ads/deal-1", None, 404, "nothing"),
        ("PUT", "/api/v1/holds/nothing/ads", Some(json!({ "ids": [] })), 404, "nothing"),
        ("GET", "/api/v1/holds/disputes/ada", None, 404, "rule `disputes` has no limit `at once`"),
        ("GET", "/api/v1/holds/client/not-an-address", None, 400, "this is not a key of rule `client`"),
        ("POST", "/api/v1/holds/active_deals/ads/deal-1/renew", None, 404, "nothing is held under this id"),
        ("PUT", "/api/v1/holds/active_deals/ads", Some(json!({ "ids": ["a", ""] })), 400, "`ids[1]`"),
        ("PUT", "/api/v1/holds/active_deals/ads", Some(json!({ "id": [] })), 400, "id"),
    ];
    for (method, path, body, status, words) in table {
        let said = problem(&server, method, path, body.as_ref());
        assert!(said.0 == status && said.1.contains(words), "{method} {path}: {said:?}");
    }
    let fields = json!({ "policy": "deals", "fields": { "advertizer": "ads" }, "id": "d" });
    let (status, detail) = problem(&server, "POST", "/api/v1/holds", Some(&fields));
    assert!(status == 400 && detail.contains("did you mean `advertiser`?"), "{status} {detail}");
    let (status, detail) =
        problem(&server, "POST", "/api/v1/check", Some(&json!({ "policy": "deal", "fields": {} })));
    assert!(status == 400 && detail.contains("did you mean `deals`?"), "{status} {detail}");
    let released = server.ask("DELETE", "/api/v1/holds/active_deals/ads/never", None).ok();
    assert_eq!(released["released"], false, "ending what was never held is no mistake");
}
