//! `tollgate rules`: the share of attempts that each rule denied, deferred or delayed.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::table::{TextTable, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::RulesPressed;

/// Nothing to choose.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowRules {}

const EXAMPLES: &str = "\
Examples:
  tollgate rules
  tollgate rules --json | jq '.rules[] | select(.pressure > 0.01)'

The pressure is the share of attempts at its policies that a rule stopped, or would have if it only observes,
in the last fifteen minutes on one node. Exit codes: 0 shown, 2 an error.";

impl ShowRules {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        let answer = session.client.get(&Path::new(&["rules"]))?;
        session.show(&answer, put)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn put(rules: &RulesPressed, out: &mut dyn Write) -> io::Result<()> {
    if rules.rules.is_empty() {
        return writeln!(out, "there are no rules");
    }
    let mut table =
        TextTable::new(&["rule", "limits", "mode", ">pressure", ">enforced", ">observed", "last exceeded"]);
    for rule in &rules.rules {
        let recent = rule.recent;
        let tone = if recent.deny > 0 { Tone::Bad } else { Tone::Normal };
        let mode = if rule.observed { "observed".to_owned() } else { rule.on_exceed.clone() };
        let pressure = or_dash(rule.pressure.map(|pressure| format!("{:.1} %", pressure * 100.0)));
        let enforced = words::number(recent.deny + recent.wait + recent.defer);
        let last = if rule.observed { &rule.last_observed } else { &rule.last_denied };
        let observed = words::number(recent.observe);
        let limits = rule.limits.join(", ");
        table.line(
            tone,
            [rule.rule.clone(), limits, mode, pressure, enforced, observed, or_dash(last.clone())],
        );
    }
    write!(out, "{table}")
}
