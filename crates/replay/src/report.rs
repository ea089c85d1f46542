//! The report: one HTML file with charts, which loads nothing from anywhere.
//!
//! The charts are SVG drawings in the page. They look like those of the console: the report includes the
//! console's style sheet for charts and colours. The colours follow the reader's choice of light or dark.

mod chart;

use std::fmt::Write as _;

use tollgate_core::Timestamp;

use crate::replay::{Difference, Outcome, rule_and_key};
use crate::tally::{Tally, Way};
use crate::top::TopKey;

/// The texts of a report that are not in the outcome.
#[derive(Clone, Debug)]
pub struct Titles {
    /// The names of the logs.
    pub logs: Vec<String>,
    /// The name of the configuration.
    pub config: String,
    /// The name of the configuration to compare with.
    pub against: Option<String>,
    /// Notes about the figures, for the reader.
    pub notes: Vec<String>,
}

/// The most keys that a table shows.
const SHOWN: usize = 50;
/// A key with at least this many user agents or users probably stands for many people.
const SHARED_FROM: u64 = 5;

/// Writes the report.
pub fn html(outcome: &Outcome, titles: &Titles) -> String {
    let mut page = String::with_capacity(64 << 10);
    let title = format!("Replay of {}", titles.logs.join(", "));
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    let _ = write!(
        page,
        "<title>{}</title>\n<style>{CHARTS}{STYLE}</style>\n</head>\n<body>\n<main>\n",
        Escaped(&title)
    );
    let _ = writeln!(page, "<h1>{}</h1>", Escaped(&title));
    let _ = write!(page, "<p class=\"sub\">Configuration <code>{}</code>", Escaped(&titles.config));
    if let Some(against) = &titles.against {
        let _ = write!(page, ", compared with <code>{}</code>", Escaped(against));
    }
    page.push_str("</p>\n");
    headline(outcome, &mut page);
    section("Denials over time", &chart::timeline(&outcome.tally.timeline), &mut page);
    rules(&outcome.tally, &mut page);
    keys(&outcome.tally, &mut page);
    if let Some((rule, points)) = &outcome.curve {
        let mut body =
            format!("<p>What rule <code>{}</code> would do if its numbers were others.</p>", Escaped(rule));
        body.push_str(&chart::curve(points));
        section("Impact curve", &body, &mut page);
    }
    if let Some(difference) = &outcome.difference {
        section("Difference", &compared(difference), &mut page);
    }
    suspects(&outcome.tally, &mut page);
    reading(outcome, titles, &mut page);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn section(title: &str, body: &str, page: &mut String) {
    let _ = write!(page, "<section>\n<h2>{title}</h2>\n{body}\n</section>\n");
}

/// The four numbers that matter most.
fn headline(outcome: &Outcome, page: &mut String) {
    let tally = &outcome.tally;
    let clients = (tally.clients_of(Way::Denied).count(), tally.clients.count());
    let share = percent(clients.0, clients.1);
    let first = tally.first_of(Way::Denied).map_or_else(|| "never".to_owned(), time);
    let about = if tally.clients.is_exact() { "" } else { "about " };
    let tiles = [
        ("Attempts", grouped(tally.attempts), format!("of {} lines", grouped(outcome.account.lines))),
        ("Denied", grouped(tally.denied), percent(tally.denied, tally.attempts)),
        ("Clients denied", grouped(clients.0), format!("{share} of {about}{}", grouped(clients.1))),
        ("First denial", first, String::new()),
    ];
    page.push_str("<div class=\"tiles\">\n");
    for (label, number, small) in tiles {
        let _ = writeln!(
            page,
            "<div class=\"tile\"><span>{label}</span><strong>{}</strong><small>{}</small></div>",
            Escaped(&number),
            Escaped(&small)
        );
    }
    page.push_str("</div>\n");
    if tally.delayed > 0 {
        let (delayed, longest) = (grouped(tally.delayed), tally.longest_wait);
        let _ = writeln!(page, "<p>{delayed} attempts were allowed after a wait of at most {longest}.</p>");
    }
    for (way, did) in [(Way::Observed, "observing rules would deny"), (Way::Deferred, "rules deferred")] {
        let (attempts, clients) = (tally.attempts_of(way), tally.clients_of(way).count());
        if attempts > 0 {
            let (attempts, clients) = (grouped(attempts), grouped(clients));
            let _ = writeln!(page, "<p>In addition, {did} {attempts} attempts of {clients} clients.</p>");
        }
    }
}

fn rules(tally: &Tally, page: &mut String) {
    let mut body = String::new();
    if tally.rules.iter().all(|rule| rule.affected() == 0) {
        body.push_str("<p>No rule would have denied anything.</p>");
        return section("Rules", &body, page);
    }
    body.push_str("<div class=\"wide\"><table><thead><tr><th>rule<th class=n>denied<th class=n>share<th class=n>clients<th class=n>deferred<th class=n>observed<th>first</thead>\n<tbody>");
    for rule in tally.rules.iter().filter(|rule| rule.affected() > 0) {
        let _ = writeln!(
            body,
            "<tr><td><code>{}</code><td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}",
            Escaped(&rule.rule),
            grouped(rule.denied.count),
            percent(rule.denied.count, tally.attempts),
            grouped(rule.clients.count()),
            grouped(rule.deferred.count),
            grouped(rule.observed.count),
            rule.first().map_or_else(String::new, time)
        );
    }
    body.push_str("</tbody></table></div>");
    section("Rules", &body, page);
}

/// The keys that each kind of decision affected.
fn keys(tally: &Tally, page: &mut String) {
    for (title, word, class, way) in [
        ("Keys denied", "denied", "deny", Way::Denied),
        ("Keys that observing rules would deny", "observed", "observe", Way::Observed),
        ("Keys deferred", "deferred", "defer", Way::Deferred),
    ] {
        let keys = tally.top_keys(way, SHOWN);
        if keys.is_empty() {
            continue;
        }
        let bar = |(rule, key): &(_, TopKey)| (format!("{rule}: {}", key.key), key.count);
        let bars: Vec<(String, u64)> = keys.iter().take(15).map(bar).collect();
        let mut body = chart::bars(class, title, &bars);
        let _ = write!(
            body,
            "<div class=\"wide\"><table><thead><tr><th>rule<th>key<th class=n>{word}<th class=n>were fine<th class=n>agents<th class=n>users<th>first<th>last</thead>\n<tbody>"
        );
        keys.iter().for_each(|(rule, key)| key_row(rule, key, &mut body));
        body.push_str("</tbody></table></div>\n<p class=\"sub\"><em>Were fine</em>: had been answered with 2xx or 3xx. Agents and users are estimates.");
        if keys.iter().any(|(_, key)| key.error > 0) {
            body.push_str(" There were more keys than places in the table: a count with ± may be too high by that much.");
        }
        body.push_str("</p>");
        section(title, &body, page);
    }
}

fn key_row(rule: &str, key: &TopKey, body: &mut String) {
    let _ = writeln!(
        body,
        "<tr><td><code>{}</code><td class=\"key\">{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}<td>{}",
        Escaped(rule),
        Escaped(&key.key),
        counted(key),
        percent(key.good, key.count - key.error),
        key.agent_count(),
        key.user_count(),
        time(key.first),
        time(key.last)
    );
}

/// A count with its possible error.
fn counted(key: &TopKey) -> String {
    if key.error == 0 {
        grouped(key.count)
    } else {
        format!("{} ± {}", grouped(key.count), grouped(key.error))
    }
}

fn compared(difference: &Difference) -> String {
    let mut body = format!(
        "<p>The other configuration denies {}. Of the same attempts, this one newly denies <strong>{}</strong> and newly allows <strong>{}</strong>.</p>",
        grouped(difference.denied_before),
        grouped(difference.newly_denied),
        grouped(difference.newly_allowed)
    );
    for (title, class, keys) in [
        ("Newly denied", "deny", &difference.denied_keys),
        ("Newly allowed", "allow", &difference.allowed_keys),
    ] {
        let keys = keys.ranked(15);
        if keys.is_empty() {
            continue;
        }
        let bars: Vec<(String, u64)> = keys
            .iter()
            .map(|entry| {
                let (rule, key) = rule_and_key(entry);
                (format!("{rule}: {key}"), entry.count)
            })
            .collect();
        let _ = write!(body, "<h3>{title}</h3>\n{}", chart::bars(class, title, &bars));
    }
    body
}

/// Keys whose denials may be false positives.
fn suspects(tally: &Tally, page: &mut String) {
    let ways = [Way::Denied, Way::Observed].into_iter();
    let keys: Vec<_> = ways.flat_map(|way| tally.top_keys(way, usize::MAX)).collect();
    let shared = |key: &TopKey| key.agent_count().max(key.user_count()) >= SHARED_FROM;
    let suspects: Vec<_> = keys.iter().filter(|(_, key)| shared(key)).take(SHOWN).collect();
    if suspects.is_empty() {
        return;
    }
    let mut body = "<p>Behind these keys there are probably many people, as in an office or behind a mobile network. Look at them before you deny them.</p>\n<ul>".to_owned();
    for (rule, key) in suspects {
        let _ = writeln!(
            body,
            "<li><code>{}</code> <span class=\"key\">{}</span>: about {} user agents and {} users, {} of these requests had been answered with 2xx or 3xx",
            Escaped(rule),
            Escaped(&key.key),
            key.agent_count(),
            key.user_count(),
            percent(key.good, key.count - key.error)
        );
    }
    body.push_str("</ul>");
    section("Possible false positives", &body, page);
}

fn reading(outcome: &Outcome, titles: &Titles, page: &mut String) {
    let account = &outcome.account;
    let mut body = format!(
        "<p>{} lines ({}), {} unreadable, {} further out of order than the bound.</p>\n",
        grouped(account.lines),
        Escaped(&account.formats.join(", ")),
        grouped(account.unreadable),
        grouped(account.late)
    );
    if !titles.notes.is_empty() {
        body.push_str("<ul>");
        for note in &titles.notes {
            let _ = writeln!(body, "<li>{}", Escaped(note));
        }
        body.push_str("</ul>");
    }
    if !account.samples.is_empty() {
        body.push_str("<h3>The first unreadable lines</h3>\n<ul>");
        for sample in &account.samples {
            let _ = writeln!(
                body,
                "<li>{}:{}: {}: <code class=\"key\">{}</code>",
                Escaped(&sample.log),
                sample.line,
                sample.reason,
                Escaped(&sample.text)
            );
        }
        body.push_str("</ul>");
    }
    section("What was read", &body, page);
}

/// Whether a character controls a terminal, is invisible, ends a line or turns text: a reader must see it.
fn acts(c: char) -> bool {
    let turns_text =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    c.is_control() || turns_text || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A text inside of HTML. Characters that act are escaped, as in the summary: `\u{202e}` turns the text behind it.
struct Escaped<'t>(&'t str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                character if acts(character) => write!(f, "{}", character.escape_unicode())?,
                character => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// A number with separated thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in per cent.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.01 => "< 0.01 %".to_owned(),
        percent if percent < 10.0 => format!("{percent:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// A time in UTC, in whole seconds.
pub fn time(at: Timestamp) -> String {
    let seconds = i64::try_from(at.as_micros() / 1_000_000).unwrap_or(0);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "–".to_owned(), |time| time.to_string())
}

/// Colours and charts, as in the console.
const CHARTS: &str = include_str!("../../../console/src/charts.css");
const STYLE: &str = include_str!("report/style.css");
