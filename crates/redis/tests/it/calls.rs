//! An attempt whose keys are in one slot is one call of the server, whatever comes of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{Ask, Node, plan};
use tollgate_testbed::Server;

/// How many scripts the server has run.
fn calls(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text();
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    of("eval") + of("evalsha")
}

#[test]
fn an_attempt_is_one_call_whether_it_is_allowed_or_refused() {
    let server = Server::redis().start();
    let node = Node::patient(&server.url(), "calls");
    for limits in ["1/hour burst 1", "1/hour", "1/hour sliding", "1 at once", "1/hour, 1/hour burst 1"] {
        let plans = [plan("first", limits), plan("second", limits)];
        for count in [1, 2] {
            let attempt = |key| {
                let first = Ask::one(&plans[0], key);
                if count == 1 { first } else { first.and(&plans[1], key) }
            };
            // The first call of a script is repeated, with the whole script.
            node.take(&attempt("other")).unwrap();
            node.peek(&attempt("other"));
            let before = calls(&server);
            assert!(node.take(&attempt("k")).unwrap().allowed, "{limits}");
            assert_eq!(calls(&server), before + 1, "{limits}: allowed");
            assert!(!node.take(&attempt("k")).unwrap().allowed, "{limits}");
            assert_eq!(calls(&server), before + 2, "{limits}: refused");
            node.peek(&attempt("k"));
            assert_eq!(calls(&server), before + 3, "{limits}: peeked");
            server.command(&["FLUSHDB"]);
        }
    }
}
