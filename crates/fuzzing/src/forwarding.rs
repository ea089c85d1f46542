//! Routing and forwarding agree: an upstream that reads the forwarded head as the gateway does would route it the same.

use std::sync::LazyLock;

use http::Method;
use tollgate_gateway::fuzzing::routing::route;
use tollgate_gateway::route::Table;
use tollgate_gateway::settings::{Rewrite, RouteSettings};
use tollgate_web::path;

/// The hosts, paths and methods of the routes. Each differs from another only in what a normal form changes.
const ROUTES: [(Option<&str>, &str, &[Method]); 10] = [
    (Some("shop.example"), "/login", &[Method::POST]),
    (Some("shop.example"), "/api/*", &[]),
    (Some("shop.example"), "/api/{id}/items", &[]),
    (Some("shop.example"), "/api/admin", &[]),
    (Some("shop.example"), "/api/admin/", &[]),
    (Some("*.shop.example"), "/*", &[]),
    (Some("[::1]"), "/a%20b", &[]),
    (Some("[::1]"), "/a%2Bb", &[]),
    (Some("[::1]"), "/a+b", &[]),
    (None, "/*", &[Method::GET, Method::OPTIONS]),
];

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let routes = ROUTES.iter().enumerate().map(|(number, (host, path, methods))| {
        let mut route = RouteSettings::new(number.to_string(), "upstream");
        route.hosts = host.map(|host| host.parse().expect("a correct host")).into_iter().collect();
        route.paths = vec![path.parse().expect("a correct path")];
        route.methods = methods.to_vec();
        route
    });
    Table::new(&routes.collect::<Vec<_>>()).expect("each can be taken")
});

/// The largest request that is routed. With the lines that the gateway adds, it does not exceed the gateway's bounds.
const MOST_BYTES: usize = 3_000;

/// The forwarded head of a request has the route, the host and the path of the request itself, and is forwarded as it is.
/// A path that is rewritten is still in its normal form.
pub fn forwarding(bytes: &[u8]) {
    if bytes.len() > MOST_BYTES {
        return;
    }
    let Some(routed) = route(bytes, &TABLE, None) else { return };
    let again = route(&routed.forwarded, &TABLE, None).expect("a forwarded head is correct");
    assert_eq!(again.path, routed.path, "the path");
    assert_eq!(again.query, routed.query, "the query");
    // A request of HTTP/1.0 may lack a host, and then the upstream's address is forwarded.
    if routed.names_host {
        assert_eq!(again.host, routed.host, "the host");
        assert_eq!(again.found, routed.found, "the route");
        assert_eq!(shown(&again.forwarded), shown(&routed.forwarded), "forwarded twice");
    }
    for (prefix, replacement) in [("/api", ""), ("/api/", "/v1"), ("/", "/v1"), ("/a%20b", "/c")] {
        let rewrite = Rewrite { prefix: prefix.into(), replacement: replacement.into() };
        let rewritten = route(bytes, &TABLE, Some(&rewrite)).expect("it was accepted before");
        let target = target_of(&rewritten.forwarded);
        let path = target.split('?').next().unwrap_or_default();
        assert_eq!(path::normal(path).as_deref(), Ok(path), "{prefix} is replaced");
    }
}

/// The target in the first line of a head.
fn target_of(head: &[u8]) -> &str {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    std::str::from_utf8(words.nth(1).unwrap_or_default()).expect("a target is ASCII")
}

fn shown(head: &[u8]) -> String {
    head.escape_ascii().to_string()
}
