//! Imported configurations, run by the engine over a store in memory whose clock the test moves.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::path::Path;
use std::sync::Arc;

use tollgate::config::{self, Config, Format};
use tollgate_core::{Attempt, Clock, Records, Span, Store, Timestamp, Verdict, When};
use tollgate_engine::{Engine, Parts};
use tollgate_import::{Answers, Imported, Input, import};
use tollgate_store::{ManualClock, MemoryStore};

/// A Tuesday in November 2026, at 12:00:00 UTC.
const START: Timestamp = Timestamp::from_micros(1_794_916_800_000_000);

/// An imported configuration at work.
pub(crate) struct Stand {
    clock: Arc<ManualClock>,
    engine: Engine,
    pub(crate) config: Config,
    pub(crate) imported: Imported,
}

/// A file in the directory of samples.
pub(crate) fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/import").join(name);
    std::fs::read_to_string(path).unwrap()
}

impl Stand {
    /// Imports one file.
    pub(crate) fn of(name: &str, text: &str) -> Self {
        Self::answered(&[(name, text)], &Answers::default())
    }

    /// Imports files with answers. The result is valid as it is, once its secrets are set.
    pub(crate) fn answered(files: &[(&str, &str)], answers: &Answers) -> Self {
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, text)| Input { name, text }).collect();
        let imported = import(&inputs, answers).unwrap_or_else(|error| panic!("{error}"));
        let secrets = imported.variables.iter().map(|name| (name.clone(), "a-long-enough-secret".to_owned()));
        let config = config::load_str(&imported.config, Format::Yaml, "t.yaml", secrets)
            .unwrap_or_else(|error| panic!("{error}\n{}", imported.config));
        let clock = Arc::new(ManualClock::at(START));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 100_000));
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: store as Arc<dyn Records>,
            fallback: None,
        };
        let engine = wait_for(Engine::start(config.policies.clone(), parts)).unwrap();
        Self { clock, engine, config, imported }
    }

    /// The result of one attempt: `allow`, or the verdict, the rule and the time until it would pass.
    pub(crate) fn ask(&self, policy: &str, fields: &[(&str, &str)], cost: u64) -> String {
        self.ask_as(policy, fields, cost, None)
    }

    pub(crate) fn ask_as(
        &self,
        policy: &str,
        fields: &[(&str, &str)],
        cost: u64,
        id: Option<&str>,
    ) -> String {
        let pinned = self.engine.pin();
        let attempt = Attempt { policy, fields, cost, id };
        let decision =
            wait_for(self.engine.decide(&pinned, &attempt)).unwrap_or_else(|fault| panic!("{fault}"));
        let verdict = match decision.verdict {
            Verdict::Allow => return "allow".to_owned(),
            Verdict::Deny => "deny",
            Verdict::Defer { .. } => "defer",
            Verdict::Wait { .. } => "wait",
        };
        if decision.blocked().is_some() {
            return "block".to_owned();
        }
        let rule = decision.named_rule().map_or("nothing", |rule| &*rule.name);
        let when = match decision.retry {
            When::After(span) => format!(" for {span}"),
            When::Now | When::OnRelease | When::Never => String::new(),
        };
        format!("{verdict} by {rule}{when}")
    }

    /// How many of so many attempts are allowed, one after the other, at one moment.
    pub(crate) fn admits(&self, attempts: usize, policy: &str, fields: &[(&str, &str)]) -> usize {
        (0..attempts).filter(|_| self.ask(policy, fields, 1) == "allow").count()
    }

    /// Moves the clock on.
    pub(crate) fn after(&self, span: &str) {
        self.clock.advance(tollgate_core::grammar::parse_span(span).unwrap());
    }

    /// Moves the clock to so long after the start.
    pub(crate) fn at(&self, span: Span) {
        self.clock.set(Timestamp::from_micros(START.as_micros() + span.as_micros()));
    }

    /// The lines of the report with this verdict.
    pub(crate) fn found(&self, verdict: &str) -> Vec<String> {
        let findings = self.imported.findings.iter().filter(|finding| finding.verdict.name() == verdict);
        findings.map(|finding| format!("{}: {}", finding.place, finding.message)).collect()
    }
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
