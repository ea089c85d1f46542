//! What people can read with SQL.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{Node, PATIENT, plan, shared};

#[test]
fn the_view_of_limits_says_what_the_store_says() {
    let node = Node::new(&shared().url(), "readable", PATIENT);
    let limits = [
        ("window", "100/hour"),
        ("short", "100/1h30m"),
        ("exact", "100/day sliding"),
        ("slots", "100/day sliding by 1h"),
        ("bucket", "10/hour burst 50"),
        ("held", "100 at once"),
        ("leased", "100 at once for 1h"),
        ("climbed", "ladder 40 +1s then 50 lock 1h forget 2h"),
        ("total", "100 in total"),
    ];
    for (rule, limits) in limits {
        let plan = plan(rule, limits);
        for _ in 0..3 {
            assert!(node.take(&plan, "ada").unwrap().allowed, "{limits}");
        }
        node.take(&plan, "bob").unwrap();
        let row = shared().sql(&format!(
            "SELECT \"limit\", used, most, until > now() FROM readable.limits WHERE rule = '{rule}' AND key = 'ada'"
        ));
        let most = if limits.contains("50") { 50 } else { 100 };
        let ends = if limits.ends_with("total") || limits.ends_with("at once") { "" } else { "t" };
        assert_eq!(row, format!("{limits}|3|{most}|{ends}"));
        assert_eq!(node.used(&plan, "ada"), 3, "{limits}");
    }
    // A counter with a calendar period, as a node writes it.
    shared().sql(
        "INSERT INTO readable.counter VALUES ('\\x00112233445566778899aabbccddeeff', 'several', 'eve', \
         '5/s, 100/day calendar, 7/min sliding', '{1,4,NULL}', \
         ARRAY[0, (extract(epoch FROM now()) * 1000000)::bigint + 60000000, 0], '{NULL,NULL,0}', 0, 0, 0, 0, 0)",
    );
    let used = "SELECT string_agg(\"limit\" || ': ' || used, ', ') FROM readable.limits WHERE key = 'eve'";
    assert_eq!(shared().sql(used), "5/s: 0, 100/day calendar: 4, 7/min sliding: 0");
    let unused = "SELECT * FROM readable.limits WHERE key = 'bob' AND used <> 1";
    assert_eq!(shared().sql(unused), "");
    assert_eq!(
        shared().sql("SELECT readable.micros('1h30m'), readable.micros('min'), readable.micros('250ms')"),
        "5400000000|60000000|250000"
    );
    // What has run out is not used any more.
    shared().sql(
        "UPDATE readable.counter SET marks[1] = marks[1] - 7200000000 WHERE rule IN ('window', 'bucket')",
    );
    let expired = "SELECT sum(used), count(until) FROM readable.limits WHERE rule IN ('window', 'bucket')";
    assert_eq!(shared().sql(expired), "0|0");
}
