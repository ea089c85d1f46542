//! The SQL in the guide to PostgreSQL is run as it stands there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{Node, PATIENT, client, plan, runtime, settings};
use tollgate_postgres::PostgresStore;
use tollgate_testbed::Postgres;

/// The statements of each block of SQL in the guide.
fn blocks() -> Vec<Vec<String>> {
    let guide = include_str!("../../../../docs/guides/postgres.md");
    let blocks = guide.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let statements = |block: &str| {
        let all = block.split(";\n").map(str::trim);
        all.filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
    };
    blocks.map(statements).collect()
}

#[test]
fn the_sql_of_the_guide_does_what_it_says() {
    let server = Postgres::start();
    let blocks = blocks();
    let [owner, schema, rest @ ..] = &blocks[..] else { panic!("{blocks:?}") };
    owner.iter().for_each(|statement| drop(server.sql(statement)));
    let url = |user: &str| format!("postgres://{user}@127.0.0.1:{}/limits", server.port());
    let admin = client(&url("postgres"));
    let run = |statement: &str| runtime().block_on(admin.simple_query(statement)).unwrap();
    // The other way to begin: a schema that exists is used.
    schema.iter().for_each(|statement| drop(run(statement)));
    let made = Node::new(&url("tollgate"), "tollgate", PATIENT);
    let limits = plan("account", "100/hour sliding, 1000/day");
    assert!(made.take(&limits, "ada").unwrap().allowed);
    let mut answers = Vec::new();
    for statement in rest.iter().flatten() {
        let rows = run(statement);
        answers.push((statement, rows.len()));
    }
    // The view has a row for each limit, the log one for the key; each answer ends with a count.
    let asked: Vec<usize> = answers
        .iter()
        .filter(|(statement, _)| statement.starts_with("SELECT"))
        .map(|(_, rows)| *rows)
        .collect();
    assert_eq!(asked, [2 + 2, 1 + 2], "{answers:?}");
    // The user that owns nothing can do all that a node does, and nothing else.
    let node = Node::new(&url("limits_node"), "tollgate", PATIENT);
    assert!(node.take(&limits, "ada").unwrap().allowed);
    assert_eq!((node.used(&limits, "ada"), node.probe().unwrap()), (2, Vec::new()));
    runtime().block_on(node.store.sweep()).unwrap();
    let node = client(&url("limits_node"));
    assert!(runtime().block_on(node.batch_execute("DROP TABLE tollgate.counter")).is_err());
    let reader = client(&url("limits_reader"));
    let sees = |sql: &str| runtime().block_on(reader.batch_execute(sql)).is_ok();
    assert!(sees("SELECT * FROM tollgate.limits") && sees("SELECT * FROM tollgate.send_log"));
    assert!(!sees("SELECT * FROM tollgate.secret") && !sees("DELETE FROM tollgate.limits"));
    // Only who owns the tables can make them.
    let other = settings(&url("limits_node"), "another", PATIENT);
    let refused = runtime().block_on(PostgresStore::start(other)).err().unwrap();
    assert!(refused.contains("permission denied"), "{refused}");
}
