//! Prints findings: as text for people, as JSON for programs.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};
use tollgate_redis::inspect::{Facts, Finding, Grade, Inspection};

use crate::cli::check_config::store_as_json;
use crate::command::plain;
use crate::config::Config;

/// The most serious finding.
pub(super) fn worst(inspection: &Inspection) -> Grade {
    all(inspection).map(|finding| finding.grade).max().unwrap_or(Grade::Fine)
}

fn all(inspection: &Inspection) -> impl Iterator<Item = &Finding> {
    inspection.findings.iter().chain(inspection.servers.iter().flat_map(|server| &server.findings))
}

/// Prints all findings.
pub(super) fn print(store: &str, inspection: &Inspection, out: &mut dyn Write) -> io::Result<()> {
    let wide = all(inspection).map(|finding| finding.about.len()).max().unwrap_or(0);
    writeln!(out, "{}", plain(&format!("counters are kept {store}")))?;
    if !inspection.findings.is_empty() {
        writeln!(out)?;
        print_findings(&inspection.findings, wide, out)?;
    }
    for server in &inspection.servers {
        let bold = Style::new().bold();
        writeln!(out, "\n{bold}{}{bold:#}", plain(&server.address.to_string()))?;
        print_findings(&server.findings, wide, out)?;
    }
    let style = style_of(worst(inspection));
    writeln!(out, "\n{style}{}{style:#}", summary(inspection))
}

fn print_findings(findings: &[Finding], wide: usize, out: &mut dyn Write) -> io::Result<()> {
    for Finding { grade, about, message, remedy } in findings {
        let (style, name) = (style_of(*grade), name_of(*grade));
        writeln!(out, "  {style}{name:<7}{style:#}  {about:<wide$}  {}", plain(message))?;
        if let Some(remedy) = remedy {
            writeln!(out, "  {:<7}  {:<wide$}  remedy: {}", "", "", plain(remedy))?;
        }
    }
    Ok(())
}

/// How many findings there are of each grade that is not fine.
fn summary(inspection: &Inspection) -> String {
    let mut parts = Vec::new();
    for grade in [Grade::Problem, Grade::Warning, Grade::Note] {
        match all(inspection).filter(|finding| finding.grade == grade).count() {
            0 => {}
            1 => parts.push(format!("1 {}", name_of(grade))),
            count => parts.push(format!("{count} {}s", name_of(grade))),
        }
    }
    if parts.is_empty() { "all is fine".to_owned() } else { parts.join(", ") }
}

fn name_of(grade: Grade) -> &'static str {
    match grade {
        Grade::Fine => "ok",
        Grade::Note => "note",
        Grade::Warning => "warning",
        Grade::Problem => "problem",
    }
}

fn style_of(grade: Grade) -> Style {
    match grade {
        Grade::Fine => AnsiColor::Green.on_default(),
        Grade::Note => AnsiColor::Cyan.on_default(),
        Grade::Warning => AnsiColor::Yellow.on_default().bold(),
        Grade::Problem => AnsiColor::Red.on_default().bold(),
    }
}

/// The findings as JSON.
pub(super) fn as_json(config: &Config, inspection: &Inspection) -> Value {
    let servers: Vec<Value> = inspection
        .servers
        .iter()
        .map(|server| {
            json!({
                "address": server.address.to_string(),
                "facts": facts_as_json(&server.facts),
                "findings": findings_as_json(&server.findings),
            })
        })
        .collect();
    json!({
        "verdict": name_of(worst(inspection)),
        "store": store_as_json(&config.store),
        "findings": findings_as_json(&inspection.findings),
        "servers": servers,
    })
}

fn findings_as_json(findings: &[Finding]) -> Vec<Value> {
    let one = |Finding { grade, about, message, remedy }: &Finding| json!({ "grade": name_of(*grade), "about": about, "message": message, "remedy": remedy });
    findings.iter().map(one).collect()
}

fn facts_as_json(facts: &Facts) -> Value {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let round_trip = facts.round_trip.map(|trip| {
        json!({
            "count": trip.count,
            "min_us": micros(trip.min),
            "median_us": micros(trip.median),
            "max_us": micros(trip.max),
        })
    });
    let clock = facts
        .clock
        .map(|clock| json!({ "ahead_us": clock.ahead_micros, "uncertainty_us": clock.uncertainty_micros }));
    let memory = facts.memory.as_ref().map(|memory| {
        json!({
            "used_bytes": memory.used,
            "max_bytes": memory.max,
            "policy": memory.policy,
            "evicted_keys": memory.evicted,
        })
    });
    let persistence = facts.persistence.as_ref().map(|persistence| {
        json!({
            "append_only": persistence.append_only,
            "fsync": persistence.fsync,
            "save": persistence.save,
        })
    });
    let keys = facts.keys.map(|keys| {
        json!({
            "ours": keys.estimate(),
            "exact": keys.is_whole(),
            "looked_at": keys.looked_at,
            "total": keys.total,
        })
    });
    let scripts: Vec<Value> =
        facts.scripts.iter().map(|run| json!({ "name": run.name, "refusal": run.refusal })).collect();
    json!({
        "connected_us": facts.connected_in.map(micros),
        "user": facts.user,
        "flavour": facts.flavour,
        "version": facts.version,
        "mode": facts.mode,
        "role": facts.role,
        "replicas": facts.replicas,
        "round_trip": round_trip,
        "clock": clock,
        "memory": memory,
        "persistence": persistence,
        "keys": keys,
        "scripts": scripts,
        "forbidden_commands": facts.forbidden,
        "forbidden_keys": facts.keys_forbidden,
        "unread": facts.unread,
    })
}
