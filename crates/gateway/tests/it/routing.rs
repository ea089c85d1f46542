//! The most specific route wins; compared with a naive search.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::cmp::Ordering;

use crate::support::{self, Stage, Upstream, route, settings};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use tollgate_gateway::route::{Found, Headers, Table};
use tollgate_gateway::settings::{HeaderMatch, HostPattern, PathPattern, RouteSettings};
use tollgate_gateway::{BadSettings, Gateway, StartError};

struct Map(HeaderMap);

impl Headers for Map {
    fn has(&self, name: &HeaderName, value: Option<&HeaderValue>) -> bool {
        self.0.get_all(name).iter().any(|found| value.is_none_or(|value| value == found))
    }
}

/// What a table must find, by trying every route.
fn naive(routes: &[RouteSettings], host: &str, path: &str, method: &Method, headers: &Map) -> Found {
    let mut ways = Vec::new();
    let all = [PathPattern::ALL];
    for (number, route) in routes.iter().enumerate() {
        let hosts: Vec<Option<&HostPattern>> =
            if route.hosts.is_empty() { vec![None] } else { route.hosts.iter().map(Some).collect() };
        let paths = if route.paths.is_empty() { &all[..] } else { &route.paths };
        for host_pattern in hosts {
            for path_pattern in paths {
                let fits = host_pattern.is_none_or(|pattern| pattern.matches(host))
                    && path_pattern.matches(path)
                    && route.headers.iter().all(|wanted| headers.has(&wanted.name, wanted.value.as_ref()));
                if fits {
                    ways.push((host_pattern, path_pattern, number));
                }
            }
        }
    }
    let takes = |number: usize| routes[number].methods.is_empty() || routes[number].methods.contains(method);
    if !ways.is_empty() && !ways.iter().any(|(.., number)| takes(*number)) {
        return Found::OtherMethods(Vec::new());
    }
    ways.retain(|(.., number)| takes(*number));
    let host_rank = |pattern: Option<&HostPattern>| match pattern {
        Some(HostPattern::Exact(_)) => (0, 0),
        Some(HostPattern::Below(end)) => (1, usize::MAX - end.len()),
        None => (2, 0),
    };
    let rank = |number: usize| (usize::MAX - routes[number].headers.len(), routes[number].methods.is_empty());
    let before = |one: &(Option<&HostPattern>, &PathPattern, usize), two: &(_, _, usize)| -> Ordering {
        host_rank(one.0)
            .cmp(&host_rank(two.0))
            .then_with(|| PathPattern::compare(one.1, two.1))
            .then_with(|| rank(one.2).cmp(&rank(two.2)))
            .then_with(|| one.2.cmp(&two.2))
    };
    ways.into_iter().min_by(before).map_or(Found::Nothing, |(.., number)| Found::Route(number))
}

fn any_host() -> impl Strategy<Value = HostPattern> {
    let hosts = vec!["a.com", "b.a.com", "*.a.com", "*.b.a.com", "*.com", "c.org"];
    prop::sample::select(hosts).prop_map(|text| text.parse().unwrap())
}

fn any_segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(["a", "b", "c", "{x}", "{y}"].as_slice())
}

fn any_path() -> impl Strategy<Value = PathPattern> {
    (prop::collection::vec(any_segment(), 0..4), prop::sample::select(["", "/", "/*"].as_slice())).prop_map(
        |(segments, end)| {
            let text: String = segments.iter().map(|segment| format!("/{segment}")).collect();
            let text = if text.is_empty() && end.is_empty() { "/".to_owned() } else { text + end };
            text.parse().unwrap()
        },
    )
}

fn any_method() -> impl Strategy<Value = Method> {
    prop::sample::select([Method::GET, Method::POST, Method::PUT].as_slice())
}

fn any_header() -> impl Strategy<Value = HeaderMatch> {
    let names = prop::sample::select(["x-one", "x-two"].as_slice());
    let values = prop::option::of(prop::sample::select(["1", "2"].as_slice()));
    (names, values).prop_map(|(name, value)| HeaderMatch {
        name: name.parse().unwrap(),
        value: value.map(|value| value.parse().unwrap()),
    })
}

fn any_route() -> impl Strategy<Value = RouteSettings> {
    let methods = prop::collection::vec(any_method(), 0..2);
    let headers = prop::collection::vec(any_header(), 0..2);
    (prop::collection::vec(any_host(), 0..3), prop::collection::vec(any_path(), 0..3), methods, headers)
        .prop_map(|(hosts, paths, methods, headers)| RouteSettings {
            hosts,
            paths,
            methods,
            headers,
            ..RouteSettings::new("r", "app")
        })
}

fn any_request() -> impl Strategy<Value = (String, String, Method, HeaderMap)> {
    let hosts = vec!["a.com", "b.a.com", "x.b.a.com", "x.a.com", "c.org", "d.org", "", "acom"];
    let path = prop::collection::vec(prop::sample::select(["a", "b", "c", "d", ""].as_slice()), 1..5);
    let headers = prop::collection::vec(any_header(), 0..3);
    (prop::sample::select(hosts), path, any_method(), headers).prop_map(|(host, path, method, headers)| {
        let mut map = HeaderMap::new();
        for header in headers {
            map.append(header.name, header.value.unwrap_or(HeaderValue::from_static("3")));
        }
        (host.to_owned(), format!("/{}", path.join("/")), method, map)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_table_finds_what_looking_at_everything_finds(
        routes in prop::collection::vec(any_route(), 0..8),
        requests in prop::collection::vec(any_request(), 1..10),
    ) {
        // Routes that could never match are refused; this test is not about those.
        let mut kept: Vec<RouteSettings> = Vec::new();
        for route in routes {
            kept.push(route);
            if Table::new(&kept).is_err() {
                kept.pop();
            }
        }
        let table = Table::new(&kept).unwrap();
        for (host, path, method, headers) in requests {
            let headers = Map(headers);
            let expected = naive(&kept, &host, &path, &method, &headers);
            let found = match table.find(&host, &path, &method, &headers) {
                Found::OtherMethods(methods) => {
                    prop_assert!(!methods.contains(&method));
                    Found::OtherMethods(Vec::new())
                }
                found => found,
            };
            prop_assert_eq!(found, expected, "{} {}{} {:?}", method, host, path, headers.0);
        }
    }

    #[test]
    fn patterns_print_as_they_are_written(pattern in any_path(), host in any_host()) {
        prop_assert_eq!(pattern.to_string().parse::<PathPattern>().unwrap(), pattern);
        prop_assert_eq!(host.to_string().parse::<HostPattern>().unwrap(), host);
    }
}

#[test]
fn patterns_match_what_the_documentation_says() {
    let path = |text: &str| text.parse::<PathPattern>().unwrap();
    for (pattern, yes, no) in [
        ("/a", &["/a"][..], &["/", "/a/", "/ab", "/a/b"][..]),
        ("/a/", &["/a/"], &["/a", "/a/b"]),
        ("/a/*", &["/a", "/a/", "/a/b", "/a/b/c"], &["/", "/ab", "/b/a"]),
        ("/*", &["/", "/a", "/a/b"], &[]),
        ("/a/{id}/b", &["/a/1/b", "/a/x y/b"], &["/a//b", "/a/b", "/a/1/b/", "/a/1/2/b"]),
        ("/a/{id}/*", &["/a/1", "/a/1/", "/a/1/2"], &["/a", "/a/"]),
        ("/", &["/"], &["/a"]),
    ] {
        for good in yes {
            assert!(path(pattern).matches(good), "{pattern} {good}");
        }
        for bad in no {
            assert!(!path(pattern).matches(bad), "{pattern} {bad}");
        }
    }
    for bad in ["", "a", "/a*", "/*/a", "/{", "/a{b}", "/{}", "/a?b", "/a#b", "/a b", "/{a b}", "/é"] {
        assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
    }
    let host = |text: &str| text.parse::<HostPattern>().unwrap();
    assert!(host("Example.COM.").matches("example.com"));
    assert!(host("*.example.com").matches("a.b.example.com"));
    assert!(!host("*.example.com").matches("example.com"));
    assert!(!host("*.example.com").matches("badexample.com"));
    assert!(host("[::1]").matches("[::1]"));
    for bad in ["", "*", "a*", "*a", "a:80", "a/b", "a b", "*.", "http://a"] {
        assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn an_unknown_path_is_a_404_and_another_method_a_405() {
    let upstream = Upstream::saying("x").await;
    let mut two = settings(upstream.address);
    two.routes = vec![route("users", "/users"), route("files", "/files/*")];
    two.routes[0].methods = vec![Method::GET, Method::POST];
    let stage = Stage::new(two).await;
    assert_eq!(stage.fetch("/users").await.status, 200);
    let reply = stage.fetch("/other").await;
    assert_eq!((reply.status, reply.header("content-type")), (404, Some("application/problem+json")));
    let mut client = stage.client().await;
    let reply = client
        .ask("PUT /users HTTP/1.1\r\nHost: a\r\nX-Correlation-ID: abc\r\nContent-Length: 3\r\n\r\nabc")
        .await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, POST")));
    assert_eq!(reply.header("x-correlation-id"), Some("abc"));
    assert_eq!(
        client.ask("GET /users HTTP/1.1\r\nHost: a\r\n\r\n").await.status,
        200,
        "the body was skipped"
    );
    assert_eq!(stage.metric("tollgate_gateway_requests_total{route=\"unmatched\",status=\"404\"}"), 1.0);
    assert_eq!(stage.metric("tollgate_gateway_requests_total{route=\"unmatched\",status=\"405\"}"), 1.0);
}

#[tokio::test]
async fn hosts_headers_and_methods_choose_the_route() {
    let (one, two) = (Upstream::saying("one").await, Upstream::saying("two").await);
    let mut both = settings(one.address);
    both.upstreams.push(tollgate_gateway::settings::UpstreamSettings::new("two", vec![two.address.into()]));
    let mut by_host = RouteSettings::new("host", "two");
    by_host.hosts = vec!["*.example.com".parse().unwrap()];
    let mut by_header = RouteSettings::new("header", "two");
    by_header.headers =
        vec![HeaderMatch { name: "x-beta".parse().unwrap(), value: Some("1".parse().unwrap()) }];
    both.routes.extend([by_host, by_header]);
    let stage = Stage::new(both).await;
    for (head, expected) in [
        ("Host: example.com", "one"),
        ("Host: WWW.Example.com:8080", "two"),
        ("Host: www.example.com.", "two"),
        ("Host: a\r\nX-Beta: 1", "two"),
        ("Host: a\r\nX-Beta: 2", "one"),
    ] {
        let reply = stage.ask(format!("GET / HTTP/1.1\r\n{head}\r\n\r\n")).await;
        assert_eq!(reply.text(), expected, "{head}");
    }
}

#[tokio::test]
async fn settings_that_cannot_be_meant_are_refused_in_words() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let refused = |change: &dyn Fn(&mut tollgate_gateway::Settings)| -> BadSettings {
        let mut changed = settings(upstream.address);
        change(&mut changed);
        stage.gateway.replace(changed).unwrap_err()
    };
    let unknown = refused(&|settings| settings.routes[0].upstream = "nobody".into());
    assert_eq!(unknown.to_string(), "route `all` passes to upstream `nobody`, which does not exist");
    let twice = refused(&|settings| settings.routes.push(RouteSettings::new("again", "app")));
    assert_eq!(twice.to_string(), "route `again` can never be taken: `all` fits the same requests");
    let same = refused(&|settings| settings.routes.push(route("all", "/a")));
    assert_eq!(same.to_string(), "the name `all` is given twice");
    let odd = refused(&|settings| settings.routes = vec![route("odd", "/a/%7Euser")]);
    assert_eq!(
        odd.to_string(),
        "the path `/a/%7Euser` of route `odd` is not in its normal form, so no request has it"
    );
    let nowhere = refused(&|settings| settings.upstreams[0].addresses.clear());
    assert_eq!(nowhere.to_string(), "upstream `app` has no address");
    assert_eq!(stage.fetch("/").await.status, 200, "what was in force stays in force");

    let mut deaf = settings(upstream.address);
    deaf.listeners.clear();
    let parts = stage.parts.clone();
    let error = Gateway::start(deaf, parts.clone()).unwrap_err();
    assert!(matches!(error, StartError::Settings(BadSettings::NoListeners)));
    let mut taken = settings(upstream.address);
    taken.listeners[0].address = stage.address;
    assert!(matches!(Gateway::start(taken.clone(), parts.clone()).unwrap_err(), StartError::Listen { .. }));
    taken.workers = 2.try_into().unwrap();
    let error = Gateway::start(taken, parts).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "several workers share, but not with strangers");
}

#[tokio::test]
async fn a_semicolon_is_a_character_like_any_other_but_after_dots() {
    let upstream = Upstream::saying("x").await;
    let mut settings = settings(upstream.address);
    settings.routes.push(route("orders", "/orders/*"));
    let stage = Stage::new(settings).await;
    let count = |route: &str, status: u16| {
        stage.metric(&format!("tollgate_gateway_requests_total{{route=\"{route}\",status=\"{status}\"}}"))
    };
    for (path, status, taken) in
        [("/orders/7;x", 200, "orders"), ("/orders;x/7", 200, "all"), ("/orders/..;/7", 400, "unmatched")]
    {
        let before = count(taken, status);
        assert_eq!(stage.fetch(path).await.status, status, "{path}");
        support::until(path, || count(taken, status) == before + 1.0).await;
    }
}
