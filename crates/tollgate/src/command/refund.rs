//! `tollgate refund`: refunds what an allowed attempt took, or a part of it.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{DENIED, Session, words};
use crate::client::Path;
use crate::client::wire::Refunded;

/// A receipt to be refunded.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Refund {
    /// The receipt that `tollgate check` printed
    receipt: String,
    /// How much of the attempt's cost to refund; everything unless this or --count is given
    #[arg(long, value_name = "NUMBER")]
    amount: Option<u64>,
    /// How much to refund at rules that count this field
    #[arg(long, value_name = "FIELD=NUMBER", value_parser = count)]
    count: Vec<(String, u64)>,
}

const EXAMPLES: &str = "\
Examples:
  receipt=$(tollgate check orders ip=10.0.0.1 --cost 5 --json | jq -r .receipt)
  tollgate refund \"$receipt\"
  tollgate refund \"$receipt\" --amount 2      (3 of 5 were used)

A receipt can be used once. A second refund changes nothing and is no error.
Exit codes: 0 refunded, now or before, 1 too old, 2 an error.";

/// Parses `recipients=3`.
fn count(text: &str) -> Result<(String, u64), String> {
    let pair =
        text.split_once('=').and_then(|(field, number)| Some((field.to_owned(), number.parse().ok()?)));
    pair.ok_or_else(|| "expected a field and a whole number, as in `recipients=3`".to_owned())
}

impl Refund {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.post(&Path::new(&["refund"]), &self.body())?;
        let refund = session.show(&answer, |refund: &Refunded, out| match refund.refunded.as_str() {
            "back" => writeln!(out, "refunded"),
            "already" => writeln!(out, "was refunded before"),
            "too_old" => writeln!(out, "too old to be refunded"),
            other => writeln!(out, "{}", words::plain(other)),
        })?;
        Ok(if refund.refunded == "too_old" { ExitCode::from(DENIED) } else { ExitCode::SUCCESS })
    }

    fn body(&self) -> Value {
        let mut body = json!({ "receipt": self.receipt });
        if let Some(amount) = self.amount {
            body["amount"] = amount.into();
        }
        if !self.count.is_empty() {
            let counts = self.count.iter().map(|(field, amount)| (field.clone(), (*amount).into()));
            body["counts"] = Value::Object(counts.collect::<Map<_, _>>());
        }
        body
    }
}
