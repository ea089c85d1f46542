//! The page of `top`, as text.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};

use super::rates::Rates;
use super::sampler::Sample;
use crate::client::wire::{Node, Observed, Offender, Top};
use crate::command::queue::lanes_in_words;
use crate::command::table::{TextTable, Tone, or_dash};
use crate::command::words;

/// How many of the busiest keys are shown.
const BUSIEST: usize = 10;

const TITLE: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// How the page is made.
pub(super) struct View<'v> {
    pub(super) server: &'v str,
    pub(super) keys: KeyChoice,
}

/// Which keys are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyChoice {
    /// The busiest ones, and those that were denied or would have been.
    Busy,
    /// Those nearest to their limits.
    Near,
}

impl View<'_> {
    /// The whole page: rates by outcome, the busiest policies, the nodes, keys, and the lanes of the mail relay.
    pub(super) fn page(&self, rates: &Rates, sample: &Sample) -> String {
        let (mut page, top) = (String::new(), &sample.top);
        let invariant = "a string takes everything";
        self.write_rates(&mut page, rates, top).expect(invariant);
        match self.keys {
            KeyChoice::Busy => write_busy(&mut page, rates, top).expect(invariant),
            KeyChoice::Near => write_near(&mut page, top).expect(invariant),
        }
        if !sample.lanes.is_empty() {
            let _ = write!(page, "\n{TITLE}mail{TITLE:#}\n{}", lanes_in_words(&sample.lanes));
        }
        for pause in &sample.pauses {
            let _ = writeln!(page, "{BAD}paused{BAD:#}: {}", words::plain(&pause.in_words()));
        }
        page
    }

    fn write_rates(&self, page: &mut String, rates: &Rates, top: &Top) -> std::fmt::Result {
        let (all, server) = (&rates.all, self.server);
        writeln!(page, "{TITLE}{server}{TITLE:#}  {}", since(all.total, top.nodes.as_deref()))?;
        write!(page, "{TITLE}{}/s{TITLE:#} decisions", rate(all.decisions()))?;
        write!(
            page,
            "  {GOOD}{}/s{GOOD:#} allowed  {BAD}{}/s{BAD:#} denied",
            rate(all.allow),
            rate(all.deny)
        )?;
        write!(page, "  {}/s to wait  {}/s deferred", rate(all.wait), rate(all.defer))?;
        writeln!(page, "  {}/s observed", rate(all.observe))?;
        let mut policies =
            TextTable::unfolded(&["policy", ">decisions/s", ">allowed/s", ">refused/s", ">total"]);
        for (name, pace) in &rates.policies {
            let [decisions, allowed, refused] = [pace.decisions(), pace.allow, pace.refused()].map(rate);
            policies
                .line(Tone::Normal, [name.clone(), decisions, allowed, refused, words::number(pace.total)]);
        }
        write!(page, "\n{policies}")?;
        write_nodes(page, top.nodes.as_deref().unwrap_or_default())
    }
}

/// The busiest keys, the most denied ones, and those that observed rules would have denied.
fn write_busy(page: &mut String, rates: &Rates, top: &Top) -> std::fmt::Result {
    if !rates.keys.is_empty() {
        let of_rule = |wanted: &str| -> u64 {
            rates.keys.iter().filter(|(rule, ..)| rule == wanted).map(|(.., seen)| seen).sum()
        };
        let mut busy = TextTable::unfolded(&["rule", "busiest key", ">share of the rule"]);
        for (rule, key, seen) in rates.keys.iter().take(BUSIEST) {
            let share = format!("{:.0} %", *seen as f64 * 100.0 / of_rule(rule) as f64);
            busy.line(Tone::Normal, [rule.clone(), key.clone(), share]);
        }
        write!(page, "\n{busy}")?;
    }
    if !top.observed.is_empty() {
        let mut observed = TextTable::unfolded(&["observed rule", "key", ">would deny", "last"]);
        for Observed { rule, key, would_deny, last } in &top.observed {
            observed
                .line(Tone::Normal, [rule.clone(), key.clone(), words::number(*would_deny), last.clone()]);
        }
        write!(page, "\n{observed}")?;
    }
    if top.offenders.is_empty() {
        return writeln!(page, "\nno key was denied");
    }
    let mut denied_keys = TextTable::unfolded(&["rule", "key", ">denied", "last"]);
    for Offender { rule, key, denied, last } in &top.offenders {
        denied_keys.line(Tone::Normal, [rule.clone(), key.clone(), words::number(*denied), last.clone()]);
    }
    write!(page, "\n{denied_keys}")
}

/// The keys nearest to their limits.
fn write_near(page: &mut String, top: &Top) -> std::fmt::Result {
    if top.nearest.is_empty() {
        return writeln!(page, "\nevery key has at least a fifth of its limits left");
    }
    let mut table = TextTable::unfolded(&["rule", "key", "limit", ">used", ">share", ">resets in"]);
    for near in &top.nearest {
        let tone = if near.used >= near.capacity { Tone::Bad } else { Tone::Normal };
        let used = format!("{} of {}", words::number(near.used), words::number(near.capacity));
        // Rounded down, so that 100 % means that nothing is left.
        let share = format!("{:.0} %", (near.share * 100.0).floor());
        let resets = or_dash(near.reset_after_ms.map(words::span));
        table.line(tone, [near.rule.clone(), near.key.clone(), near.limit.clone(), used, share, resets]);
    }
    write!(page, "\n{table}")
}

/// How many decisions were made, and on how many nodes if all are shown.
fn since(total: u64, nodes: Option<&[Node]>) -> String {
    let decisions =
        if total == 1 { "1 decision".to_owned() } else { format!("{} decisions", words::number(total)) };
    match nodes {
        None => format!("{} decisions since it started", words::number(total)),
        Some([_]) => format!("1 node, {decisions} since it started"),
        Some(nodes) => format!("{} nodes, {decisions} since they started", nodes.len()),
    }
}

/// Each node, if there are several.
fn write_nodes(page: &mut String, nodes: &[Node]) -> std::fmt::Result {
    if nodes.len() < 2 {
        return Ok(());
    }
    let mut table = TextTable::unfolded(&["node", ">decisions/s", ">total", ">reported"]);
    for node in nodes {
        let (name, total) = (node.node.clone(), words::number(node.decisions));
        let age =
            if node.age_ms == 0 { "now".to_owned() } else { format!("{} ago", words::span(node.age_ms)) };
        table.line(Tone::Normal, [name, rate(node.per_second), total, age]);
    }
    write!(page, "\n{table}")
}

/// A rate, with a decimal if it is small.
fn rate(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { words::number(rate.round() as u64) }
}
