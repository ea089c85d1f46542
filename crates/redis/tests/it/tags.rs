//! A hash tag keeps the rules of a policy on one node of a Cluster, where one script settles them all.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Charges, Outcome, Plan, Store, Ticket};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testbed::Cluster;

/// How many scripts all nodes have run.
fn scripts_run(cluster: &Cluster) -> u64 {
    let runs = |stats: &str| -> u64 {
        let lines = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
        lines.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    let nodes = cluster.nodes().iter();
    nodes.map(|node| runs(&node.server.command(&["INFO", "commandstats"]).text())).sum()
}

fn plan(rule: &str) -> Arc<Plan> {
    Arc::new(Plan::new(rule.into(), vec!["10/min".parse().unwrap()]).unwrap())
}

#[test]
fn rules_with_a_common_tag_are_settled_by_one_script_and_others_by_several() {
    let cluster = Cluster::start(3);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let plans = ["a", "b", "c", "d"].map(plan);
    let took = |tags: HashMap<String, String>, prefix: &str| {
        let patience = Duration::from_secs(10);
        let settings = Settings {
            tags,
            prefix: prefix.into(),
            command_timeout: patience,
            connect_timeout: patience,
            ..Settings::parse(&cluster.url()).unwrap()
        };
        let store = runtime.block_on(RedisStore::start(settings)).unwrap();
        let take = |ticket: u64| {
            let mut charges = Charges::new(Ticket(ticket), 1, None);
            plans.iter().for_each(|plan| charges.push(plan, "k", true));
            let mut outcome = Outcome::default();
            runtime.block_on(async { store.take(&charges, &mut outcome).await }).unwrap();
            assert!(outcome.allowed && outcome.taken == 0b1111, "{outcome:?}");
        };
        // The first take also loads the script.
        take(1);
        let before = scripts_run(&cluster);
        take(2);
        scripts_run(&cluster) - before
    };
    let tags = plans.iter().map(|plan| (plan.rule().to_string(), "mail".to_owned())).collect();
    assert_eq!(took(tags, "tagged"), 1);
    assert!(took(HashMap::new(), "apart") >= 4, "looked at and taken in at least two places");
}
