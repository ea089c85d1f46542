//! What a request and its response look like after the gateway forwarded them.

use crate::support::{Stage, Upstream, settings};
use tollgate_gateway::settings::{HostHeader, Rewrite};

#[tokio::test]
async fn a_request_reaches_the_upstream_and_its_answer_the_client() {
    let upstream = Upstream::answering(
        "HTTP/1.1 201 Made\r\nContent-Length: 5\r\nX-Own: yes\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nhello",
    )
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let reply = stage
        .ask("GET /a/b?q=%2F&x=%zz HTTP/1.1\r\nHost: Example.com:81\r\nAccept: a\r\nAccept: b\r\nX-Odd: \r\n\r\n")
        .await;
    assert_eq!(reply.head.lines().next(), Some("HTTP/1.1 201 Made"));
    assert_eq!(reply.text(), "hello");
    assert_eq!(reply.header("x-own"), Some("yes"));
    assert_eq!(reply.head.matches("Set-Cookie").count(), 2);
    assert_eq!(reply.header("connection"), None);
    let seen = upstream.request();
    let expected = "GET /a/b?q=%2F&x=%zz HTTP/1.1\nhost: Example.com:81\nAccept: a\nAccept: b\nX-Odd: \n\
        x-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\nx-forwarded-host: Example.com:81";
    assert_eq!(seen.head.replace("\r\n", "\n"), expected);
}

#[tokio::test]
async fn the_path_is_passed_on_in_its_normal_form() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    for (sent, passed) in [
        ("/a/../b", "/b"),
        ("/a//b/./c", "/a/b/c"),
        ("/%7euser/%41", "/~user/A"),
        ("/caf%c3%a9?%7e", "/caf%C3%A9?%7e"),
        ("http://example.com?x", "/?x"),
        ("HTTP://EXAMPLE.com/y", "/y"),
    ] {
        let reply = stage.ask(format!("GET {sent} HTTP/1.1\r\nHost: example.com\r\n\r\n")).await;
        assert_eq!(reply.status, 200, "{sent}");
        let last = upstream.requests().pop().unwrap();
        assert_eq!(last.line(), format!("GET {passed} HTTP/1.1"), "{sent}");
    }
    for bad in ["/../a", "/a%2fb", "/a%5cb", "/a\\b", "/a%00", "/%zz", "/a#b", "a", "/..;/a"] {
        let reply = stage.ask(format!("GET {bad} HTTP/1.1\r\nHost: example.com\r\n\r\n")).await;
        assert_eq!(reply.status, 400, "{bad}");
    }
    assert_eq!(upstream.requests().len(), 6);
}

#[tokio::test]
async fn headers_between_two_ends_of_a_connection_are_not_passed_on() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x-inner, keep-alive\r\nX-Inner: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nProxy-Authenticate: x\r\nX-Outer: 1\r\n\r\nx",
    )
    .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let reply = stage
        .ask(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\n\
             Proxy-Connection: x\r\nTE: gzip\r\nUpgrade: websocket\r\nProxy-Authorization: x\r\nHTTP2-Settings: x\r\nX-Public: 1\r\n\r\n",
        )
        .await;
    for gone in ["connection", "x-inner", "keep-alive", "proxy-connection", "upgrade", "proxy-authenticate"] {
        assert_eq!(reply.header(gone), None, "{gone}");
    }
    assert_eq!(reply.header("x-outer"), Some("1"));
    let seen = upstream.request();
    for gone in [
        "connection",
        "x-private",
        "keep-alive",
        "proxy-connection",
        "te",
        "upgrade",
        "proxy-authorization",
        "http2-settings",
    ] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert_eq!(seen.header("x-public"), Some("1"));
}

#[tokio::test]
async fn te_trailers_is_forwarded_to_the_upstream() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    stage.ask("GET / HTTP/1.1\r\nHost: a\r\nTE: deflate, trailers\r\nConnection: te\r\n\r\n").await;
    let seen = upstream.request();
    assert_eq!((seen.header("te"), seen.header("connection")), (Some("trailers"), Some("te")));
}

#[tokio::test]
async fn forwarding_headers_are_replaced_unless_the_peer_is_trusted() {
    let upstream = Upstream::saying("x").await;
    let told = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 2.2.2.2, 3.3.3.3\r\n\
        X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\nForwarded: for=1.1.1.1\r\nX-Real-IP: 1.1.1.1\r\n\
        X-Forwarded-Prefix: /x\r\n\r\n";
    let stage = Stage::new(settings(upstream.address)).await;
    stage.ask(told).await;
    let seen = upstream.request();
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some("a"));
    for gone in ["forwarded", "x-real-ip", "x-forwarded-prefix"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    let mut trusting = settings(upstream.address);
    trusting.trusted_proxies = tollgate_web::TrustedProxies::new(
        vec!["127.0.0.0/8".parse().unwrap()],
        "x-forwarded-for".parse().unwrap(),
    );
    let stage = Stage::new(trusting).await;
    stage.ask(told).await;
    let seen = upstream.requests().pop().unwrap();
    assert_eq!(seen.header("x-forwarded-for"), Some("1.1.1.1, 2.2.2.2, 3.3.3.3, 127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop"));
    assert_eq!(seen.header("forwarded"), Some("for=1.1.1.1"));
    assert_eq!(seen.header("x-forwarded-prefix"), Some("/x"));
}

#[tokio::test]
async fn the_header_that_addresses_are_read_from_is_passed_on_for_proxies_alone() {
    let upstream = Upstream::saying("x").await;
    let told = "GET / HTTP/1.1\r\nHost: a\r\nCF-Connecting-IP: 192.0.2.7\r\nCF_Connecting-IP: 192.0.2.8\r\n\
        CF-Connecting-IPs: x\r\n\r\n";
    for (trusted, passed) in [("127.0.0.0/8", Some("192.0.2.7")), ("10.0.0.0/8", None)] {
        let mut settings = settings(upstream.address);
        settings.trusted_proxies = tollgate_web::TrustedProxies::new(
            vec![trusted.parse().unwrap()],
            "cf-connecting-ip".parse().unwrap(),
        );
        let stage = Stage::new(settings).await;
        stage.ask(told).await;
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(seen.header("cf-connecting-ip"), passed);
        assert_eq!(seen.header("cf_connecting-ip"), None, "many servers take it for the other");
        assert_eq!(seen.header("cf-connecting-ips"), Some("x"));
    }
}

#[tokio::test]
async fn prefixes_are_replaced_segment_by_segment() {
    let upstream = Upstream::saying("x").await;
    let with = |prefix: &str, replacement: &str| {
        let mut settings = settings(upstream.address);
        settings.routes[0].rewrite = Some(Rewrite { prefix: prefix.into(), replacement: replacement.into() });
        settings
    };
    for (prefix, replacement, sent, passed) in [
        ("/api", "", "/api/users?x", "/users?x"),
        ("/api", "", "/api", "/"),
        ("/api/", "/v1", "/api/users", "/v1/users"),
        ("/api", "/v1", "/apis", "/apis"),
        ("/", "/v1", "/a", "/v1/a"),
    ] {
        let stage = Stage::new(with(prefix, replacement)).await;
        stage.fetch(sent).await;
        assert_eq!(upstream.requests().pop().unwrap().line(), format!("GET {passed} HTTP/1.1"));
    }
}

#[tokio::test]
async fn the_host_can_be_the_upstreams_or_one_that_was_chosen() {
    let upstream = Upstream::saying("x").await;
    let mut chosen = settings(upstream.address);
    chosen.upstreams[0].host = HostHeader::Fixed("inner.example".parse().unwrap());
    let stage = Stage::new(chosen).await;
    stage.fetch("/").await;
    let seen = upstream.requests().pop().unwrap();
    assert_eq!(seen.header("host"), Some("inner.example"));
    assert_eq!(seen.header("x-forwarded-host"), Some("example.com"));
    let mut by_address = settings(upstream.address);
    by_address.upstreams[0].host = HostHeader::Address;
    let stage = Stage::new(by_address).await;
    stage.fetch("/").await;
    assert_eq!(upstream.requests().pop().unwrap().header("host"), Some(&*upstream.address.to_string()));
}

#[tokio::test]
async fn clients_of_http_1_0_are_served_as_they_can_be() {
    let upstream =
        Upstream::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            .await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.text(), reply.header("transfer-encoding")), ("abc", None));
    assert_eq!(reply.header("connection"), Some("close"));
    let seen = upstream.request();
    assert_eq!(seen.line(), "GET / HTTP/1.1");
    assert_eq!(seen.header("host"), Some(&*upstream.address.to_string()), "who has no host gets one");

    let upstream = Upstream::saying("abc").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    let reply = client.ask("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").await;
    assert_eq!(reply.header("connection"), Some("keep-alive"));
    let reply = client.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn several_requests_share_connections_on_both_sides() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    for _ in 0..10 {
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    }
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    for _ in 0..3 {
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(upstream.connections(), 1);
    let lines: Vec<String> = upstream.requests().iter().skip(10).map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines, ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /3 HTTP/1.1"]);
}

#[tokio::test]
async fn connection_close_of_a_client_closes_the_connection() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    let reply = client.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").await;
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(client.is_closed().await);
}
