//! On a server without keys, a web page in a local browser can do nothing.

use crate::door::Door;
use axum::http::Method;
use serde_json::json;

/// The headers that state the origin of a request.
type Said<'s> = &'s [(&'s str, &'s str)];

const OF_PAGES: &[Said<'_>] = &[
    &[("host", "127.0.0.1:8080"), ("origin", "https://evil.example")],
    &[("host", "127.0.0.1:8080"), ("origin", "null")],
    &[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:3000")],
    &[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080"), ("origin", "http://evil.example")],
    &[("host", "localhost:8080"), ("sec-fetch-site", "cross-site")],
    &[("host", "localhost:8080"), ("sec-fetch-site", "same-site")],
    // A name that the page's owner points at this machine, so that page and server have one origin.
    &[("host", "rebound.example:8080"), ("origin", "http://rebound.example:8080")],
    &[("host", "rebound.example"), ("sec-fetch-site", "same-origin")],
    &[("host", "127.0.0.1.evil.example:8080")],
    &[("host", "localhost.evil.example")],
    &[("host", "[evil.example]:8080")],
    &[("host", "")],
    &[("host", "127.0.0.1:8080"), ("host", "evil.example")],
];

const OF_OTHERS: &[Said<'_>] = &[
    &[],
    &[("host", "127.0.0.1:8080")],
    &[("host", "LOCALHOST:8080")],
    &[("host", "localhost")],
    &[("host", "[::1]:8080")],
    &[("host", "10.1.2.3")],
    &[("host", "localhost:8080"), ("sec-fetch-site", "none")],
    &[("host", "localhost:8080"), ("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")],
];

#[tokio::test]
async fn a_page_changes_charges_and_reads_nothing() {
    let door = Door::open();
    let ban = json!({ "policy": "mail.accept", "fields": { "ip": "192.0.2.9" } }).to_string();
    for said in OF_PAGES {
        let asked = [
            (Method::POST, "/api/v1/check", ban.clone()),
            (Method::POST, "/api/v1/reload", String::new()),
            (Method::DELETE, "/api/v1/counters/sender/a", String::new()),
            (Method::GET, "/api/v1/decisions", String::new()),
            (Method::GET, "/metrics", String::new()),
        ];
        for (method, path, body) in asked {
            let reply = door.send(method, path, said, body.into_bytes()).await;
            assert_eq!(reply.status, 403, "{path} {said:?}");
            assert!(reply.detail().contains("`keys`"), "{reply:?}");
        }
    }
    assert_eq!(door.reloads.load(std::sync::atomic::Ordering::SeqCst), 0);
    let decisions = door.get("/api/v1/decisions").await.json();
    assert_eq!(decisions["decisions"], json!([]), "nothing was decided");
}

#[tokio::test]
async fn a_request_that_no_web_page_made_is_served() {
    let door = Door::open();
    for said in OF_OTHERS {
        let reply = door.send(Method::GET, "/api/v1/decisions", said, Vec::new()).await;
        assert_eq!(reply.status, 200, "{said:?}: {reply:?}");
    }
}

#[tokio::test]
async fn with_keys_the_token_decides_alone() {
    let door = Door::guarded();
    for said in OF_PAGES.iter().filter(|said| said.iter().all(|(_, value)| !value.is_empty())) {
        let mut said = said.to_vec();
        assert_eq!(door.send(Method::GET, "/api/v1/decisions", &said, Vec::new()).await.status, 401);
        said.push(("authorization", "Bearer reader"));
        assert_eq!(door.send(Method::GET, "/api/v1/decisions", &said, Vec::new()).await.status, 200);
    }
}

#[tokio::test]
async fn health_endpoints_are_open_to_web_pages() {
    let door = Door::open();
    for path in ["/livez", "/readyz"] {
        let reply = door.send(Method::GET, path, OF_PAGES[0], Vec::new()).await;
        assert_eq!(reply.status, 200, "{path}");
    }
}
