//! The result of a load.

use std::fmt;

use serde_json::{Map, Value, json};

use super::Bench;
use super::load::End;
use super::worker::Tally;
use crate::client::Server;
use crate::command::table::{TextTable, Tone};
use crate::command::words;

/// The result of a load.
pub(super) struct Report {
    pub(super) tally: Tally,
    pub(super) seconds: f64,
    pub(super) end: End,
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Report {
    /// The result and its parameters as JSON.
    pub(super) fn as_json(&self, bench: &Bench, policy: &str, server: &Server) -> Value {
        let micros: Map<String, Value> =
            self.latencies().map(|(name, nanos)| (name.to_owned(), json!(nanos as f64 / 1e3))).collect();
        json!({
            "server": server.to_string(),
            "policy": policy,
            "connections": bench.connections,
            "batch": bench.batch,
            "interrupted": self.end == End::Interrupted,
            "seconds": self.seconds,
            "requests": self.tally.answered(),
            "requests_per_second": self.per_second(self.tally.answered()),
            "decisions_per_second": self.per_second(self.decisions()),
            "allowed": self.tally.allowed,
            "denied": self.tally.denied,
            "errors": self.tally.errors,
            "first_error": self.tally.first_error,
            "latency_us": micros,
        })
    }

    fn latencies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let latency = &self.tally.latency;
        let quantiles = QUANTILES.map(|(name, quantile)| (name, latency.value_at_quantile(quantile)));
        quantiles.into_iter().chain([("max", latency.max())])
    }

    fn decisions(&self) -> u64 {
        self.tally.allowed + self.tally.denied
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = if self.end == End::Interrupted { ", interrupted" } else { "" };
        writeln!(f, "{} requests in {:.1}s{ended}\n", words::number(self.tally.answered()), self.seconds)?;
        let mut latency = TextTable::new(&[">p50", ">p90", ">p99", ">p99.9", ">max"]);
        let mut values = self.latencies().map(|(_, nanos)| in_units(nanos));
        latency.line(Tone::Normal, std::array::from_fn::<_, 5, _>(|_| values.next().unwrap_or_default()));
        writeln!(f, "{latency}")?;
        let mut counts = TextTable::new(&[">requests/s", ">decisions/s", ">allowed", ">denied", ">errors"]);
        let rate = |count| words::number(self.per_second(count).round() as u64);
        let [allowed, denied, errors] =
            [self.tally.allowed, self.tally.denied, self.tally.errors].map(words::number);
        let (requests, decisions) = (rate(self.tally.answered()), rate(self.decisions()));
        counts.line(Tone::Normal, [requests, decisions, allowed, denied, errors]);
        write!(f, "{counts}")?;
        match &self.tally.first_error {
            Some(error) => writeln!(f, "\nthe first error: {}", words::plain(error)),
            None => Ok(()),
        }
    }
}

/// A latency with three digits and its unit.
fn in_units(nanos: u64) -> String {
    let nanos = nanos as f64;
    let (value, unit) = match nanos {
        ..1e6 => (nanos / 1e3, "µs"),
        ..1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits_and_a_unit() {
        let table = [
            (1_230, "1.23µs"),
            (45_600, "45.6µs"),
            (999_000, "999µs"),
            (1_000_000, "1.00ms"),
            (12_340_000_000, "12.3s"),
        ];
        for (nanos, expected) in table {
            assert_eq!(in_units(nanos), expected);
        }
    }
}
