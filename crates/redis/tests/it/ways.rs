//! Ways to reach a server: TLS, a socket, a user, a database, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{self, Ask, Node, plan, settings, shared};
use tollgate_core::StoreError;
use tollgate_redis::{RedisStore, Settings, Tls};
use tollgate_testbed::{Server, redis_server};

fn works(node: &Node, server: &Server, prefix: &str) {
    let (window, sliding) = (plan("window", "10/min"), plan("sliding", "10/min sliding, 5 at once"));
    for plan in [&window, &sliding] {
        let ask = Ask::one(plan, "k");
        let outcome = node.take(&ask).unwrap();
        assert!(outcome.allowed);
        assert_eq!(node.used(plan, "k"), 1);
        node.refund(&ask, outcome.now).unwrap();
        assert_eq!(node.used(plan, "k"), 0);
        assert!(node.take(&ask).unwrap().allowed);
    }
    assert_eq!(server.command(&["EXISTS", &format!("{prefix}:{{window:k}}")]).number(), 1);
}

#[test]
fn tls_needs_an_authority_that_signed_the_servers_certificate() {
    let (server, other) = (Server::redis().tls().start(), Server::redis().tls().start());
    let with = |tls: Tls| Settings { tls: Some(tls), ..settings(&server.url(), "tls", stage::PATIENT) };
    let vouched = |by: &Server| {
        with(Tls { authorities: Some(by.authority().to_owned()), unverified: false, identity: None })
    };
    works(&Node::with(vouched(&server)), &server, "tls");
    for refused in [vouched(&other), with(Tls::default())] {
        let refused = Settings { connect_timeout: stage::HASTY * 5, ..refused };
        let answer = Node::with(refused).take(&Ask::one(&plan("window", "10/min"), "k"));
        let Err(StoreError::Unavailable { reason }) = &answer else { panic!("{answer:?}") };
        assert!(reason.contains("certificate"), "{reason}");
    }
    let unverified = Settings {
        prefix: "any".into(),
        ..with(Tls { authorities: None, unverified: true, identity: None })
    };
    works(&Node::with(unverified), &server, "any");
}

#[test]
fn a_line_that_is_not_private_is_not_taken_for_one_that_is() {
    let server = Server::redis().tls().start();
    let plain = settings(&format!("redis://127.0.0.1:{}", server.port()), "plain", stage::HASTY);
    let answer = Node::with(plain).take(&Ask::one(&plan("window", "10/min"), "k"));
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    let private = settings(&format!("rediss://127.0.0.1:{}", shared().port()), "private", stage::HASTY);
    let answer = Node::with(private).take(&Ask::one(&plan("window", "10/min"), "k"));
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
}

#[test]
fn authorities_that_are_none_are_refused_at_the_start() {
    let with = |path: &std::path::Path| Settings {
        tls: Some(Tls { authorities: Some(path.to_owned()), unverified: false, identity: None }),
        ..settings("rediss://127.0.0.1", "none", stage::HASTY)
    };
    for path in ["/no/such/file".as_ref(), redis_server().as_path()] {
        let refused = stage::runtime().block_on(RedisStore::start(with(path)));
        let reason = refused.err().expect("it does not start");
        assert!(reason.contains(&path.display().to_string()), "{reason}");
    }
}

#[test]
fn a_socket_leads_to_a_server() {
    let server = Server::redis().password("p@ss:word/1").start();
    let url = format!("redis+unix://:p%40ss%3Aword%2F1@{}", server.socket().display());
    works(&Node::patient(&url, "socket"), &server, "socket");
    works(&Node::patient(&server.url(), "port"), &server, "port");
    let url = shared().socket_url();
    works(&Node::patient(&url, "open"), shared(), "open");
}

#[test]
fn the_user_of_the_guide_can_do_all_that_a_store_does() {
    let guide =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/redis.md")).unwrap();
    let user = guide.lines().find(|line| line.starts_with("user limiter ")).unwrap();
    let server =
        Server::redis().users(&format!("user default off\n{}", user.replace("PASSWORD", "secret"))).start();
    let url = server.url_as("limiter", "secret");
    works(&Node::patient(&url, "tollgate"), &server, "tollgate");
    let elsewhere = Node::hasty(&url, "others").take(&Ask::one(&plan("window", "10/min"), "k"));
    let Err(StoreError::Refused { reason }) = &elsewhere else { panic!("{elsewhere:?}") };
    assert!(reason.contains("NOPERM"), "{reason}");
}

#[test]
fn a_database_is_chosen_and_no_other_is_touched() {
    let server = Server::redis().start();
    let node = Node::patient(&format!("{}/7", server.url()), "seven");
    assert!(node.take(&Ask::one(&plan("window", "10/min"), "k")).unwrap().allowed);
    assert_eq!(server.command(&["DBSIZE"]).number(), 0);
    let mut wire = server.wire();
    assert_eq!(wire.command(&["SELECT", "7"]).unwrap().text(), "OK");
    assert_eq!(wire.command(&["EXISTS", "seven:{window:k}"]).unwrap().number(), 1);
    let none = Node::hasty(&format!("{}/4000", server.url()), "none").take(&Ask::one(&plan("a", "1/s"), "k"));
    let Err(StoreError::Refused { reason }) = &none else { panic!("{none:?}") };
    assert!(reason.contains("SELECT was refused"), "{reason}");
}
