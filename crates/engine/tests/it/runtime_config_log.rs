//! The log lines about entries that do not fit. The test is alone in its process, because a log subscriber is
//! global.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::sync::Arc;

use crate::support::{Stand, policies, rule, start};
use futures_lite::future::block_on;
use parking_lot::Mutex;
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Policies, Records, Rule};
use tollgate_engine::runtime_config::{PolicyDraft, PolicySpec};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// What was logged since the last call.
    fn take(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn base(names: &[&str]) -> Policies {
    let open = names.iter().map(|name| rule::rejecting(name, &["ip"], &["7/hour"]));
    let secret = rule::rejecting("secret", &["token"], &["7/hour"]).with_secret_keys();
    policies(open.chain([secret]).collect::<Vec<Rule>>(), &[])
}

fn spec(name: &str) -> PolicySpec {
    let (by, limits) = (vec!["ip".to_owned()], vec!["2/hour".parse().unwrap()]);
    PolicySpec::new(PolicyDraft { name: name.into(), by, limits, ..PolicyDraft::default() }).unwrap()
}

#[test]
fn a_conflict_with_the_configuration_is_logged_once_while_it_lasts() {
    let lines = Lines::default();
    let written = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || written.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let stand = Stand::new(base(&["own"]));
        block_on(stand.engine.config.create_policy(spec("orders"))).unwrap();
        block_on(stand.engine.config.assign("r", "orders")).unwrap();
        assert_eq!(lines.take(), [""; 0]);
        stand.engine.reload(base(&["own", "orders"]));
        let told = lines.take();
        let [policy, route] = &*told else { panic!("two lines, and not {told:?}") };
        assert!(policy.contains("WARN") && policy.contains("policy/orders"), "{policy}");
        assert!(policy.contains("the configuration has a rule or a policy of that name"), "{policy}");
        assert!(route.contains("route/r") && route.contains("there is no policy `orders`"), "{route}");
        stand.engine.reload(base(&["own", "orders"]));
        block_on(stand.engine.config.create_policy(spec("other"))).unwrap();
        block_on(stand.engine.config.set_override("own", "192.0.2.1", Vec::new())).unwrap();
        assert_eq!(lines.take(), [""; 0], "they were told");
        stand.engine.reload(base(&["own"]));
        assert_eq!(lines.take(), [""; 0]);
        stand.engine.reload(base(&["orders"]));
        assert_eq!(lines.take().len(), 2, "it is news again");

        for record in ["override/secret/hush-hush", "override/gone/hush-hush", "override/own/192.0.2.1"] {
            block_on(stand.store.change(Namespace::Config, &[Edit::put(record, b"nonsense")])).unwrap();
        }
        let restarted = start(base(&["own"]), &stand.store);
        let told = lines.take();
        assert!(
            told.iter().all(|line| line.contains("ERROR") && line.contains("cannot be read"))
                && told.len() == 3,
            "{told:?}"
        );
        assert!(told.iter().any(|line| line.contains("override/own/192.0.2.1")), "{told:?}");
        assert!(!told.iter().any(|line| line.contains("hush")), "{told:?}");
        block_on(restarted.config.set_override("own", "192.0.2.1", Vec::new())).unwrap();
        assert_eq!(lines.take(), [""; 0]);
    });
}
