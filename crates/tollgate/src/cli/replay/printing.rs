//! The outcome of a replay as words and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_replay::curve::Point;
use tollgate_replay::replay::{Difference, Outcome, rule_and_key};
use tollgate_replay::report::{Titles, percent, time};
use tollgate_replay::tally::{Tally, Way};
use tollgate_replay::top::{Top, TopKey};

use crate::command::say;
use crate::command::table::{TextTable, Tone};
use crate::command::words::number;
use crate::printable::plain;

/// The version of the JSON's members. A later version adds members, and never changes the meaning of one.
const VERSION: u32 = 1;

/// What a rule does to attempts, and what that is called.
const WAYS: [(&str, Way); 3] =
    [("denied", Way::Denied), ("observed", Way::Observed), ("deferred", Way::Deferred)];

/// How many keys are listed, unless the operator says so.
const TOP: usize = 10;

pub(super) fn print(
    outcome: &Outcome,
    titles: &Titles,
    top: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let top = top.unwrap_or(TOP);
    let mut text = Vec::new();
    headline(outcome, titles, &mut text)?;
    tables(outcome, top, &mut text)?;
    if let Some((rule, points)) = &outcome.curve {
        writeln!(text, "\nrule {rule} at multiples of its numbers")?;
        curve(points, &mut text)?;
    }
    if let Some(difference) = &outcome.difference {
        compare(difference, titles, top, &mut text)?;
    }
    if !titles.notes.is_empty() {
        writeln!(text)?;
    }
    for note in &titles.notes {
        writeln!(text, "note: {note}")?;
    }
    say(&text, out)
}

/// What the rule does at each multiple, in the ways in which it acts.
fn curve(points: &[Point], text: &mut Vec<u8>) -> io::Result<()> {
    let acts = |way: Way| points.iter().any(|point| point.count(way) > 0);
    let mut ways: Vec<(&str, Way)> = WAYS.into_iter().filter(|(_, way)| acts(*way)).collect();
    if ways.is_empty() {
        ways.push(WAYS[0]);
    }
    let counts = ways.iter().map(|(word, _)| format!(">{word}"));
    let titles: Vec<String> = [">times", "limits"]
        .map(String::from)
        .into_iter()
        .chain(counts)
        .chain([">clients".to_owned()])
        .collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = TextTable::new(&titles);
    for point in points {
        let counts = ways.iter().map(|(_, way)| number(point.count(*way)));
        let cells = [point.factor.to_string(), point.limits.clone()].into_iter().chain(counts);
        let cells: Vec<String> = cells.chain([number(point.clients)]).collect();
        table.line(Tone::Normal, cells);
    }
    write!(text, "{table}")
}

fn headline(outcome: &Outcome, titles: &Titles, text: &mut Vec<u8>) -> io::Result<()> {
    let (account, tally) = (&outcome.account, &outcome.tally);
    let logs: Vec<String> = titles.logs.iter().map(|log| plain(log)).collect();
    let (logs, formats) = (logs.join(", "), account.formats.join(", "));
    writeln!(
        text,
        "{logs} ({formats}): {} lines, {} unreadable",
        number(account.lines),
        number(account.unreadable)
    )?;
    for sample in &account.samples {
        writeln!(
            text,
            "  {}:{}: {}: {}",
            plain(&sample.log),
            sample.line,
            sample.reason,
            plain(&sample.text)
        )?;
    }
    for (count, words) in [
        (account.skipped, "had been refused when they were logged, and are left out"),
        (account.late, "were further out of order than --reorder, and are replayed later than they came"),
        (tally.unlimited, "go to routes without a policy"),
        (tally.unrouted, "go to no route"),
        (tally.invalid, "would be refused as mistakes"),
    ] {
        if count > 0 {
            writeln!(text, "{} {words}", number(count))?;
        }
    }
    tally.mistakes.iter().try_for_each(|mistake| writeln!(text, "  {}", plain(mistake)))?;
    writeln!(text)?;
    for (verb, way) in
        [("denied", Way::Denied), ("observing rules would deny", Way::Observed), ("deferred", Way::Deferred)]
    {
        if way == Way::Denied || tally.attempts_of(way) > 0 {
            affected(tally, verb, way, text)?;
        }
    }
    if tally.delayed > 0 {
        writeln!(text, "delayed {}, the longest by {}", number(tally.delayed), tally.longest_wait)?;
    }
    Ok(())
}

/// How many attempts and clients were affected in one way.
fn affected(tally: &Tally, verb: &str, way: Way, text: &mut Vec<u8>) -> io::Result<()> {
    let (attempts, clients) = (tally.attempts_of(way), tally.clients_of(way).count());
    let first = tally.first_of(way).map_or_else(String::new, |at| format!(", first at {}", time(at)));
    let share = percent(attempts, tally.attempts);
    writeln!(text, "{verb} {} of {} attempts ({share}){first}", number(attempts), number(tally.attempts))?;
    let all = tally.clients.count();
    if all == 0 {
        return Ok(());
    }
    let about = if tally.clients.is_exact() { "" } else { "about " };
    let share = percent(clients, all);
    writeln!(text, "{verb} {} of {about}{} clients ({share}) at least once", number(clients), number(all))
}

fn tables(outcome: &Outcome, top: usize, text: &mut Vec<u8>) -> io::Result<()> {
    let tally = &outcome.tally;
    let mut table =
        TextTable::new(&["rule", ">denied", ">share", ">clients", ">deferred", ">observed", "first"]);
    for rule in tally.rules.iter().filter(|rule| rule.affected() > 0) {
        table.line(
            Tone::Normal,
            [
                rule.rule.to_string(),
                number(rule.denied.count),
                percent(rule.denied.count, tally.attempts),
                number(rule.clients.count()),
                number(rule.deferred.count),
                number(rule.observed.count),
                rule.first().map_or_else(String::new, time),
            ],
        );
    }
    if !table.is_empty() {
        write!(text, "\n{table}")?;
    }
    for (word, way) in WAYS {
        let title = format!(">{word}");
        let mut table = TextTable::new(&["rule", "key", &title, ">were fine", ">agents", ">users", "first"]);
        for (rule, key) in tally.top_keys(way, top) {
            table.line(
                Tone::Normal,
                [
                    rule.to_string(),
                    key.key.to_string(),
                    counted(&key),
                    percent(key.good, key.count - key.error),
                    number(key.agent_count()),
                    number(key.user_count()),
                    time(key.first),
                ],
            );
        }
        if !table.is_empty() {
            write!(text, "\n{table}")?;
        }
    }
    Ok(())
}

fn counted(key: &TopKey) -> String {
    if key.error == 0 { number(key.count) } else { format!("{} ± {}", number(key.count), number(key.error)) }
}

fn compare(difference: &Difference, titles: &Titles, top: usize, text: &mut Vec<u8>) -> io::Result<()> {
    let other = plain(titles.against.as_deref().unwrap_or_default());
    let (denied, allowed) = (number(difference.newly_denied), number(difference.newly_allowed));
    writeln!(
        text,
        "\nagainst {other}, which denies {}: {denied} newly denied, {allowed} newly allowed",
        number(difference.denied_before)
    )?;
    let mut table = TextTable::new(&["change", "rule", "key", ">attempts", "first"]);
    for (change, keys) in [("denied", &difference.denied_keys), ("allowed", &difference.allowed_keys)] {
        for entry in keys.ranked(top) {
            let (rule, key) = rule_and_key(&entry);
            let cells =
                [change.to_owned(), rule.to_owned(), key.to_owned(), counted(&entry), time(entry.first)];
            table.line(Tone::Normal, cells);
        }
    }
    if table.is_empty() { Ok(()) } else { write!(text, "{table}") }
}

/// The outcome as JSON: with every rule, and with all keys that were kept unless `top` says how many.
pub(super) fn as_json(outcome: &Outcome, titles: &Titles, top: Option<usize>) -> Value {
    let top = top.unwrap_or(usize::MAX);
    let (account, tally) = (&outcome.account, &outcome.tally);
    let samples: Vec<Value> = account
        .samples
        .iter()
        .map(|sample| json!({ "log": sample.log, "line": sample.line, "reason": sample.reason.to_string(), "text": sample.text }))
        .collect();
    let rules: Vec<Value> = tally
        .rules
        .iter()
        .map(|rule| {
            json!({
                "rule": &*rule.rule,
                "denied": rule.denied.count,
                "deferred": rule.deferred.count,
                "observed": rule.observed.count,
                "clients": rule.clients.count(),
                "first": rule.first().map(time_of),
            })
        })
        .collect();
    let keys = |word: &'static str, way| -> Vec<Value> {
        tally.top_keys(way, top).iter().map(|(rule, key)| key_json(rule, word, key)).collect()
    };
    let mut report = json!({
        "version": VERSION,
        "logs": titles.logs,
        "formats": account.formats,
        "lines": account.lines,
        "unreadable": account.unreadable,
        "unreadable_lines": samples,
        "skipped": account.skipped,
        "late": account.late,
        "attempts": tally.attempts,
        "allowed": tally.allowed,
        "delayed": tally.delayed,
        "deferred": tally.deferred,
        "denied": tally.denied,
        "observed": tally.observed,
        "unlimited": tally.unlimited,
        "unrouted": tally.unrouted,
        "invalid": tally.invalid,
        "mistakes": tally.mistakes,
        "first_denial": tally.first_of(Way::Denied).map(time_of),
        "last_eviction": outcome.last_eviction.map(time_of),
        "clients": {
            "all": tally.clients.count(),
            "denied": tally.clients_of(Way::Denied).count(),
            "observed": tally.clients_of(Way::Observed).count(),
            "deferred": tally.clients_of(Way::Deferred).count(),
            "exact": tally.clients.is_exact(),
        },
        "rules": rules,
        "keys": keys("denied", Way::Denied),
        "observed_keys": keys("observed", Way::Observed),
        "deferred_keys": keys("deferred", Way::Deferred),
        "notes": titles.notes,
    });
    add_comparisons(outcome, top, &mut report);
    report
}

/// Adds the curve and the difference, if there are any.
fn add_comparisons(outcome: &Outcome, top: usize, report: &mut Value) {
    if let Some((rule, points)) = &outcome.curve {
        let points: Vec<Value> = points
            .iter()
            .map(|point| {
                json!({
                    "times": point.factor,
                    "limits": point.limits,
                    "denied": point.denied,
                    "observed": point.observed,
                    "deferred": point.deferred,
                    "clients": point.clients,
                })
            })
            .collect();
        report["curve"] = json!({ "rule": &**rule, "points": points });
    }
    if let Some(difference) = &outcome.difference {
        report["difference"] = json!({
            "denied_before": difference.denied_before,
            "newly_denied": difference.newly_denied,
            "newly_allowed": difference.newly_allowed,
            "newly_denied_keys": changed(&difference.denied_keys, top),
            "newly_allowed_keys": changed(&difference.allowed_keys, top),
        });
    }
}

fn key_json(rule: &str, word: &str, entry: &TopKey) -> Value {
    json!({
        "rule": rule,
        "key": &*entry.key,
        word: entry.count,
        "error": entry.error,
        "fine": entry.good,
        "agents": entry.agent_count(),
        "users": entry.user_count(),
        "first": time_of(entry.first),
        "last": time_of(entry.last),
    })
}

fn changed(keys: &Top, top: usize) -> Vec<Value> {
    let entry = |entry: &TopKey| {
        let (rule, key) = rule_and_key(entry);
        json!({ "rule": rule, "key": key, "attempts": entry.count, "first": time_of(entry.first) })
    };
    keys.ranked(top).iter().map(entry).collect()
}

/// A time with its fraction of a second.
fn time_of(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(0);
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| time.to_string())
}
