//! nginx: `limit_req` and `limit_conn` of http, servers and locations.
//!
//! A zone with the same burst everywhere becomes one rule, so that locations share its counters as they do there. Every
//! block that has limits of its own becomes a policy. `limit_req` and `limit_conn` are inherited from the block around
//! it, each only if the block has none of its own.

pub(crate) mod syntax;
mod zones;

use tollgate_tree::Place;

use crate::draft::{PolicyDraft, RuleDraft};
use crate::work::{Work, shorten};
use syntax::Directive;
use zones::{Kind, Use, Zones};

/// The limits that hold in a block.
#[derive(Clone, Default)]
struct Scope {
    requests: Vec<Use>,
    connections: Vec<Use>,
    dry_run: [bool; 2],
    /// Whether the status of a denied request is set.
    has_status: [bool; 2],
    /// The server's name, for names of policies.
    server: String,
}

pub(crate) fn read(files: &[&[Directive]], work: &mut Work<'_>) {
    let mut zones = Zones::default();
    for directives in files {
        zones.collect(directives, work);
    }
    let mut found = false;
    for directives in files {
        found |= walk(directives, "", &Scope::default(), &mut zones, work);
    }
    if !found {
        for directive in files.iter().filter_map(|directives| directives.first()) {
            work.wrong(
                &directive.place,
                "there is no `limit_req` and no `limit_conn` in this file: nothing to import",
            );
        }
    }
    zones.finish(work);
    work.draft.hints.push(HINT.to_owned());
}

const HINT: &str = "\
nginx can stay in front and ask tollgate before it passes a request on:
docs/guides/forward-auth.md has its configuration. Or tollgate's own gateway takes its place:
gateway:
  listen: 127.0.0.1:8000
  upstreams: { app: 127.0.0.1:9000 }
  routes: { app: { path: /*, upstream: app, policy: NAME } }";

/// Reads a block. Returns whether it has limits.
fn walk(
    directives: &[Directive],
    name: &str,
    around: &Scope,
    zones: &mut Zones,
    work: &mut Work<'_>,
) -> bool {
    let mut scope = around.clone();
    let mut own = None;
    if let Some(server) = directives.iter().find(|directive| directive.name == "server_name") {
        scope.server = server.arguments.first().cloned().unwrap_or_default();
    }
    for kind in [Kind::Requests, Kind::Connections] {
        if let Some(switch) = directives.iter().find(|directive| directive.name == kind.dry_run()) {
            scope.dry_run[kind as usize] = switch.arguments.first().is_some_and(|word| word == "on");
        }
        let written: Vec<&Directive> =
            directives.iter().filter(|directive| directive.name == kind.directive()).collect();
        scope.has_status[kind as usize] |= status(directives, kind, work);
        if let Some(first) = written.first() {
            if !scope.has_status[kind as usize] && !scope.dry_run[kind as usize] {
                differing_status(&first.place, "503", work);
            }
            own.get_or_insert(&first.place);
            let uses: Vec<Use> = written.iter().filter_map(|one| Use::of(kind, one, zones, work)).collect();
            match kind {
                Kind::Requests => scope.requests = uses,
                Kind::Connections => scope.connections = uses,
            }
        }
    }
    note_others(directives, work);
    if let Some(place) = own {
        add_policy(name, place, &scope, zones, work);
    }
    let mut found = own.is_some();
    for directive in directives.iter().filter(|directive| !directive.block.is_empty()) {
        let name = match &*directive.name {
            "location" => format!("location {}", directive.arguments.join(" ")),
            other => other.to_owned(),
        };
        found |= walk(&directive.block, &name, &scope, zones, work);
    }
    found
}

/// What nginx answers over a limit. Returns whether the block says so; without it the answer is 503.
fn status(directives: &[Directive], kind: Kind, work: &mut Work<'_>) -> bool {
    let Some(directive) = directives.iter().find(|directive| directive.name == kind.status()) else {
        return false;
    };
    match directive.arguments.first().map_or("", |status| status) {
        "429" => work.exact(&directive.place, "a denied request gets 429"),
        other => differing_status(&directive.place, other, work),
    }
    true
}

fn differing_status(place: &Place, status: &str, work: &mut Work<'_>) {
    let message = format!(
        "a denied request gets 429 with Retry-After, not {}: 429 tells clients to slow down, and 5xx that the server fails",
        shorten(status)
    );
    work.differs(place, message);
}

/// Reports directives that have to do with limits and are not imported.
fn note_others(directives: &[Directive], work: &mut Work<'_>) {
    for directive in directives {
        let why = match &*directive.name {
            "limit_rate" | "limit_rate_after" => {
                "it bounds the bandwidth of a response; tollgate counts requests"
            }
            "limit_req_log_level" | "limit_conn_log_level" => {
                "denials are counted in metrics and listed by `tollgate decisions`, whatever the level of the log"
            }
            "include" => "the file that it includes is not read: name it too, after this one",
            "deny" => "an address to keep out belongs into `blocklist`",
            _ => continue,
        };
        let words = shorten(&directive.arguments.join(" "));
        if directive.name == "include" {
            work.asks(&directive.place, format!("`include {words}`: {why}"));
        } else {
            work.left_out(&directive.place, format!("`{} {words}`: {why}", directive.name));
        }
    }
}

/// Adds a policy for a block.
fn add_policy(name: &str, place: &Place, scope: &Scope, zones: &mut Zones, work: &mut Work<'_>) {
    let mut rules: Vec<String> = Vec::new();
    for one in scope.requests.iter().chain(&scope.connections) {
        let rule = zones.rule(one, scope.dry_run[one.kind as usize], work);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    if rules.is_empty() {
        return;
    }
    if rules.len() > tollgate_core::Policies::MOST_RULES {
        work.wrong(
            place,
            format!(
                "{} limits hold here: a policy has at most {}",
                rules.len(),
                tollgate_core::Policies::MOST_RULES
            ),
        );
        return;
    }
    if rules.len() > 1 {
        work.exact(place, "several limits are charged together or not at all, as in nginx");
    }
    let (text, shown) = match name {
        "" => ("http".to_owned(), "the whole file".to_owned()),
        "server" if !scope.server.is_empty() => {
            (format!("server.{}", scope.server), format!("server {}", scope.server))
        }
        name => (name.strip_prefix("location ").unwrap_or(name).to_owned(), name.to_owned()),
    };
    let comments = vec![format!("{}: {}", crate::draft::short(place), shorten(&shown))];
    let name = work.policy_names.free(&text);
    work.draft.policies.push(PolicyDraft { name, comments, rules });
}

/// Adds a rule for a use of a zone.
fn add_rule(
    name: &str,
    by: Vec<String>,
    limit: String,
    on_exceed: Option<String>,
    comment: String,
    work: &mut Work<'_>,
) -> String {
    let name = work.rule_names.free(name);
    let rule = RuleDraft {
        name: name.clone(),
        by,
        limits: vec![limit],
        on_exceed,
        comments: vec![comment],
        ..RuleDraft::default()
    };
    work.draft.rules.push(rule);
    name
}
