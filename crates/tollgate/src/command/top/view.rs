//! The page of `top`, as text.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};

use super::rates::Rates;
use crate::client::wire::{Lane, Offender, Top};
use crate::command::queue::lanes_in_words;
use crate::command::table::{Sheet, Tone};
use crate::command::words;

/// How many of the busiest keys are shown.
const BUSIEST: usize = 10;

const TITLE: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// The whole page: rates by outcome, the busiest policies and keys, the most denied keys, and the lanes of the mail
/// relay.
pub(super) fn page(server: &str, rates: &Rates, top: &Top, lanes: &[Lane]) -> String {
    let mut page = String::new();
    write(&mut page, server, rates, &top.offenders).expect("a string takes everything");
    if !lanes.is_empty() {
        let _ = write!(page, "\n{TITLE}mail{TITLE:#}\n{}", lanes_in_words(lanes));
    }
    page
}

fn write(page: &mut String, server: &str, rates: &Rates, offenders: &[Offender]) -> std::fmt::Result {
    let all = &rates.all;
    writeln!(page, "{TITLE}{server}{TITLE:#}  {} decisions since it started", words::number(all.total))?;
    write!(page, "{TITLE}{}/s{TITLE:#} decisions", rate(all.decisions()))?;
    write!(page, "  {GOOD}{}/s{GOOD:#} allowed  {BAD}{}/s{BAD:#} denied", rate(all.allow), rate(all.deny))?;
    write!(page, "  {}/s to wait  {}/s deferred", rate(all.wait), rate(all.defer))?;
    writeln!(page, "  {}/s observed", rate(all.observe))?;
    let mut policies = Sheet::unfolded(&["policy", ">decisions/s", ">allowed/s", ">refused/s", ">total"]);
    for (name, pace) in &rates.policies {
        let [decisions, allowed, refused] = [pace.decisions(), pace.allow, pace.refused()].map(rate);
        policies.line(Tone::Normal, [name.clone(), decisions, allowed, refused, words::number(pace.total)]);
    }
    write!(page, "\n{policies}")?;
    if !rates.keys.is_empty() {
        let of_rule = |wanted: &str| -> u64 {
            rates.keys.iter().filter(|(rule, ..)| rule == wanted).map(|(.., seen)| seen).sum()
        };
        let mut busy = Sheet::unfolded(&["rule", "busiest key", ">share of the rule"]);
        for (rule, key, seen) in rates.keys.iter().take(BUSIEST) {
            let share = format!("{:.0} %", *seen as f64 * 100.0 / of_rule(rule) as f64);
            busy.line(Tone::Normal, [rule.clone(), key.clone(), share]);
        }
        write!(page, "\n{busy}")?;
    }
    if offenders.is_empty() {
        return writeln!(page, "\nno key was denied");
    }
    let mut refused = Sheet::unfolded(&["rule", "key", ">refused", "last"]);
    for offender in offenders {
        let [rule, key, last] = [&offender.rule, &offender.key, &offender.last].map(Clone::clone);
        refused.line(Tone::Normal, [rule, key, words::number(offender.denied), last]);
    }
    write!(page, "\n{refused}")
}

/// A rate, with a decimal if it is small.
fn rate(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { words::number(rate.round() as u64) }
}
