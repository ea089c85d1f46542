//! Limits as arguments: in the grammar of limits, or as a rate per second and a burst.

use clap::Args;
use serde_json::{Map, Value, json};
use tollgate_core::grammar;

/// Limits, in one of two forms.
#[derive(Args, Clone, Debug)]
pub(super) struct LimitArgs {
    /// The limits, as in '10/s burst 50' or 1000/hour
    #[arg(value_name = "LIMIT", value_parser = limit, conflicts_with_all = ["requests_per_second", "burst_size"])]
    limits: Vec<String>,
    /// Instead of LIMIT: the rate per second
    #[arg(long, value_name = "N", requires = "burst_size")]
    requests_per_second: Option<u64>,
    /// Instead of LIMIT: the burst
    #[arg(long, value_name = "N", requires = "requests_per_second")]
    burst_size: Option<u64>,
}

impl LimitArgs {
    /// Adds them to a body, if there are any.
    pub(super) fn put(&self, body: &mut Map<String, Value>) {
        if !self.limits.is_empty() {
            body.insert("limits".to_owned(), json!(self.limits));
        }
        if let Some((rate, burst)) = self.requests_per_second.zip(self.burst_size) {
            body.insert("requestsPerSecond".to_owned(), json!(rate));
            body.insert("burstSize".to_owned(), json!(burst));
        }
    }

    /// Fails if there are none.
    pub(super) fn must_be_there(&self) -> anyhow::Result<()> {
        if self.is_empty() {
            anyhow::bail!("limits are missing, as in '10/s burst 50', 1000/hour or `unlimited`");
        }
        Ok(())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests_per_second.is_none()
    }
}

/// Checks a limit here, so that an error points at the argument.
pub(super) fn limit(text: &str) -> Result<String, String> {
    grammar::parse_explicit(text).map(|_| text.to_owned()).map_err(|error| {
        let column = error.text.get(..error.at).map_or(0, |before| before.chars().count());
        let counter = format!("{}\n    {}\n    {:column$}^", error.problem, error.text, "");
        // A limit of several words needs quotes, which is the most common mistake.
        format!("{counter}\n  A limit of several words is one argument: '5 at once', '3/min sliding'")
    })
}
