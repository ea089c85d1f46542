//! PostgreSQL and pgbouncer start, answer, stop and start again.

use std::time::Duration;

use tollgate_testbed::{Pgbouncer, Postgres, pause};

#[test]
fn a_server_keeps_its_data_when_it_is_started_again() {
    let mut server = Postgres::start();
    server.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
    server.stop();
    server.restart();
    assert_eq!(server.sql("SELECT n FROM t"), "7");
    server.stop_immediately();
    server.restart();
    assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relname = 't'"), "1");
    assert!(server.try_sql("SELECT 1/0").is_err());
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let server = Postgres::start();
    server.pause();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| server.sql("SELECT 1"));
        pause(Duration::from_millis(200));
        assert!(!asking.is_finished(), "it is paused");
        server.resume();
        assert_eq!(asking.join().ok().as_deref(), Some("1"));
    });
}

#[test]
fn pgbouncer_listens_before_a_server() {
    let server = Postgres::start();
    let pooler = Pgbouncer::start(&server, 4);
    assert!(std::net::TcpStream::connect(("127.0.0.1", pooler.port())).is_ok());
}
