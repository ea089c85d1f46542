//! nginx: `limit_req` and `limit_conn` of http, servers and locations.
//!
//! A zone with the same burst everywhere becomes one rule, so that locations share its counters as they do there. Every
//! block that has limits of its own becomes a policy. `limit_req` and `limit_conn` are inherited from the block around
//! it, each only if the block has none of its own. Every location becomes a route of the gateway.
//!
//! `limit_conn` counts requests in progress. Only the gateway learns when a request ends, so a block with `limit_conn` has
//! a policy of its own for the gateway, and one without these limits for forward-auth.

mod routes;
pub(crate) mod syntax;
mod zones;

use std::collections::HashSet;

use tollgate_tree::Place;

use crate::draft::{PolicyDraft, RuleDraft};
use crate::work::{Work, shorten};
use routes::Routes;
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
    /// The hosts of the server's routes.
    hosts: Vec<String>,
    /// The policy of requests at the gateway.
    policy: Option<String>,
}

/// What the files become.
#[derive(Default)]
struct Site {
    zones: Zones,
    routes: Routes,
    /// Whether the report says already which policies forward-auth cannot ask.
    told: bool,
    /// The first policy of the gateway.
    first_policy: Option<String>,
}

/// The ending of the name of a policy that only the gateway can use.
pub(crate) const AT_GATEWAY: &str = "gateway";
/// Why there are two policies.
pub(crate) const IN_PROGRESS: &str = "requests in progress are counted at the gateway only, by the policies whose names end in `.gateway`: forward-auth does not learn when a request ends, and would answer 500";

pub(crate) fn read(files: &[&[Directive]], work: &mut Work<'_>) {
    let mut site = Site::default();
    for directives in files {
        site.zones.collect(directives, work);
        site.routes.collect(directives);
    }
    let mut found = false;
    for directives in files {
        found |= walk(directives, None, &Scope::default(), &mut site, work);
    }
    if !found {
        for directive in files.iter().filter_map(|directives| directives.first()) {
            work.wrong(
                &directive.place,
                "there is no `limit_req` and no `limit_conn` in this file: nothing to import",
            );
        }
    }
    site.zones.finish(work);
    if let Some(first) = files.iter().find_map(|directives| directives.first()) {
        site.routes.finish(site.first_policy.as_deref(), &first.place, work);
    }
}

/// Reads the block of a directive, or a file. Returns whether it has limits.
fn walk(
    directives: &[Directive],
    of: Option<&Directive>,
    around: &Scope,
    site: &mut Site,
    work: &mut Work<'_>,
) -> bool {
    let mut scope = around.clone();
    if let Some(server) = directives.iter().find(|directive| directive.name == "server_name") {
        scope.server = server.arguments.first().cloned().unwrap_or_default();
        scope.hosts = site.routes.hosts(server);
    }
    let own = read_limits(directives, &mut scope, &site.zones, work);
    note_others(directives, work);
    if let Some(place) = own {
        scope.policy = add_policies(of, place, &scope, site, work);
    }
    let mut found = own.is_some();
    if let Some(location) = of.filter(|of| of.name == "location") {
        site.routes.location(location, &scope.hosts, scope.policy.as_deref(), work);
    }
    for directive in directives.iter().filter(|one| one.name == "location" || !one.block.is_empty()) {
        found |= walk(&directive.block, Some(directive), &scope, site, work);
    }
    if let (Some(server), Some(policy)) = (of.filter(|of| of.name == "server"), &scope.policy) {
        site.routes.rest(&scope.hosts, Some(policy), &server.place, work);
    }
    found
}

/// Reads the limits of a block into its scope. Returns the place of the first.
fn read_limits<'d>(
    directives: &'d [Directive],
    scope: &mut Scope,
    zones: &Zones,
    work: &mut Work<'_>,
) -> Option<&'d Place> {
    let mut own = None;
    for kind in [Kind::Requests, Kind::Connections] {
        if let Some(switch) = directives.iter().find(|directive| directive.name == kind.dry_run()) {
            scope.dry_run[kind as usize] = switch.arguments.first().is_some_and(|word| word == "on");
        }
        let written: Vec<&Directive> =
            directives.iter().filter(|directive| directive.name == kind.directive()).collect();
        scope.has_status[kind as usize] |= status(directives, kind, work);
        let Some(first) = written.first() else { continue };
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
    own
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

/// Adds the policies of a block: one that every door can ask, and with `limit_conn` one for the gateway. Returns the one
/// for the gateway.
fn add_policies(
    of: Option<&Directive>,
    place: &Place,
    scope: &Scope,
    site: &mut Site,
    work: &mut Work<'_>,
) -> Option<String> {
    let requests = rules_of(&scope.requests, scope, &mut site.zones, work);
    let connections = rules_of(&scope.connections, scope, &mut site.zones, work);
    let all: Vec<String> = requests.iter().chain(&connections).cloned().collect();
    if all.is_empty() {
        return None;
    }
    if all.len() > tollgate_core::Policies::MOST_RULES {
        work.wrong(
            place,
            format!(
                "{} limits hold here: a policy has at most {}",
                all.len(),
                tollgate_core::Policies::MOST_RULES
            ),
        );
        return None;
    }
    if all.len() > 1 {
        work.exact(place, "several limits are charged together or not at all, as in nginx");
    }
    let (text, shown) = match of {
        None => ("http".to_owned(), "the whole file".to_owned()),
        Some(of) if of.name == "server" && !scope.server.is_empty() => {
            (format!("server.{}", scope.server), format!("server {}", scope.server))
        }
        Some(of) if of.name == "location" => {
            let path = of.arguments.join(" ");
            (path.clone(), format!("location {path}"))
        }
        Some(of) => (of.name.clone(), of.name.clone()),
    };
    let comment = format!("{}: {}", crate::draft::short(place), shorten(&shown));
    let add = |text: &str, comments: Vec<String>, rules: Vec<String>, work: &mut Work<'_>| {
        let name = work.policy_names.free(text);
        work.draft.policies.push(PolicyDraft { name: name.clone(), comments, rules });
        name
    };
    let mut name = None;
    if !requests.is_empty() {
        name = Some(add(&text, vec![comment.clone()], requests, work));
    }
    if !connections.is_empty() {
        if !std::mem::replace(&mut site.told, true) {
            work.differs(place, IN_PROGRESS);
        }
        let comments = vec![format!("{comment}, for the gateway alone: it counts requests in progress")];
        name = Some(add(&format!("{text}.{AT_GATEWAY}"), comments, all, work));
    }
    site.first_policy = site.first_policy.take().or_else(|| name.clone());
    name
}

/// The rules of uses, each once.
fn rules_of(uses: &[Use], scope: &Scope, zones: &mut Zones, work: &mut Work<'_>) -> Vec<String> {
    let mut seen = HashSet::new();
    let rules = uses.iter().map(|one| zones.rule(one, scope.dry_run[one.kind as usize], work));
    rules.filter(|rule| !rule.is_empty() && seen.insert(rule.clone())).collect()
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
