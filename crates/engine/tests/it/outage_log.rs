//! The log lines of an outage. The test is alone in its process, because a log subscriber is global.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::sync::Arc;

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{policies, rule};
use parking_lot::Mutex;

fn repeat(times: usize, node: &Node) {
    for _ in 0..times {
        node.decide("api", &[("ip", "192.0.2.1")]);
    }
}

/// What was logged, a line each.
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

#[test]
fn an_outage_is_two_lines_in_the_log() {
    let lines = Lines::default();
    let written = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || written.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let node = Centre::new().node(policies(
            vec![rule::without_store("ip", &["1000/hour"], "local 50%")],
            &[("api", &["ip"])],
        ));
        node.link.set(Mode::LosesQuestions);
        for _ in 0..10 {
            repeat(10, &node);
            node.tend_later();
        }
        node.link.set(Mode::Up);
        node.tend_later();
        repeat(10, &node);
    });
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let [warn, info] = lines.as_slice() else { panic!("two lines, and not:\n{text}") };
    assert!(
        warn.contains(" WARN ") && warn.contains("the store is down") && warn.contains("timeout"),
        "{warn}"
    );
    assert!(
        info.contains(" INFO ") && info.contains("lasted=16s500ms") && info.contains("degraded=98"),
        "{info}"
    );
}
