//! Elemta: `[resources]` in TOML, and the environment that overrides it.
//!
//! Its rate is 100 connections in 60 seconds unless `max_requests_per_window` and `rate_limit_window` say otherwise. The
//! defaults are those that it documents.

use tollgate_tree::{Path, Place};

use crate::detect::{Content, Parsed};
use crate::draft::{PolicyDraft, RuleDraft};
use crate::section::Section;
use crate::store::Address;
use crate::work::Work;

/// What the files say.
#[derive(Default)]
struct Found {
    connections: Option<u64>,
    connections_per_ip: Option<u64>,
    /// Connections of one address in each window, and the seconds of the window.
    rate: Option<u64>,
    window: Option<u64>,
    url: Option<(String, Place)>,
    key_prefix: Option<String>,
    first: Option<Place>,
}

/// Connections in all, and of one address, unless the file says otherwise.
const CONNECTIONS: u64 = 1000;
const CONNECTIONS_PER_IP: u64 = 50;
/// Connections of one address in each window, and the seconds of the window.
const RATE: u64 = 100;
const WINDOW: u64 = 60;

pub(crate) fn read(files: &[Parsed], work: &mut Work<'_>) {
    let mut found = Found::default();
    for file in files {
        for tree in file.trees() {
            let Some(mut top) = Section::of(tree, Path::default(), work) else { continue };
            if let Some(resources) = top.section("resources", work) {
                read_resources(resources, &mut found, work);
            }
            if let Some(entry) = top.take("rate_limiter") {
                work.left_out(
                    &entry.key_place,
                    "`rate_limiter`: only the limits of `[resources]` are imported",
                );
            }
            top.leave("it is not about limits", work);
        }
    }
    // The environment overrides the file.
    for file in files {
        let Content::Variables(variables) = &file.content else { continue };
        for variable in variables {
            found.first.get_or_insert_with(|| variable.place.clone());
            let place = &variable.place;
            match &*variable.name {
                "VALKEY_URL" => {
                    work.exact(
                        place,
                        format!(
                            "the store is {}; tollgate reads `VALKEY_URL` itself too",
                            Address::of(&variable.value).shown()
                        ),
                    );
                    found.url = Some((variable.value.clone(), place.clone()));
                }
                "VALKEY_KEY_PREFIX" => {
                    work.exact(place, "the prefix of keys in the store");
                    found.key_prefix = Some(variable.value.clone());
                }
                name => work.left_out(place, format!("`{name}`: it is not about limits")),
            }
        }
    }
    write(found, work);
}

fn read_resources(mut resources: Section<'_>, found: &mut Found, work: &mut Work<'_>) {
    found.first.get_or_insert_with(|| resources.place.clone());
    if let Some((number, place)) = resources.whole("max_connections", work) {
        work.exact(place, connections(number, "in all"));
        found.connections = Some(number);
    }
    if let Some((number, place)) = resources.whole("max_connections_per_ip", work) {
        work.exact(place, connections(number, "from one address"));
        found.connections_per_ip = Some(number);
    }
    found.rate = in_window(&mut resources, "max_requests_per_window", RATE, work);
    found.window = in_window(&mut resources, "rate_limit_window", WINDOW, work);
    if let Some((url, place)) = resources.text("valkey_url", work) {
        work.exact(place, format!("the store is {}", Address::of(&url).shown()));
        found.url = Some((url, place.clone()));
    }
    if let Some((prefix, place)) = resources.text("valkey_key_prefix", work) {
        work.exact(place, "the prefix of keys in the store");
        found.key_prefix = Some(prefix);
    }
    resources.leave("it is not about limits", work);
}

/// A setting of the rate. Zero stands for its default there.
fn in_window(resources: &mut Section<'_>, key: &str, default: u64, work: &mut Work<'_>) -> Option<u64> {
    let (number, place) = resources.whole(key, work)?;
    if number == 0 {
        work.exact(place, format!("`{key}`: 0 is the default, {default}"));
        return None;
    }
    work.exact(place, format!("`{key}` is a part of the rule `rate`"));
    Some(number)
}

/// The limit of connections of one address in a window, and what the report says of it.
fn rate_of(found: &Found, first: &Place, work: &mut Work<'_>) -> Option<String> {
    let (rate, window) = (found.rate.unwrap_or(RATE), found.window.unwrap_or(WINDOW));
    if found.rate.is_none() && found.window.is_none() {
        work.exact(first, "`100/min sliding` for each address: it is built in there, and a setting here");
        return work.limit(first, "100/60s sliding");
    }
    work.sliding(
        first,
        &format!("{rate} connections of an address in {window} seconds"),
        rate,
        &format!("{window}s"),
    )
}

fn connections(number: u64, whose: &str) -> String {
    if number == 0 {
        return format!("connections {whose} have no limit");
    }
    format!("`{number} at once for 1m`: connections {whose}, over all nodes")
}

fn write(found: Found, work: &mut Work<'_>) {
    let Some(first) = found.first.clone() else { return };
    let rate = rate_of(&found, &first, work);
    work.exact(
        &first,
        "`on_outage: local 100%`: without the store each node holds the full limits by itself",
    );
    work.differs(
        &first,
        "a node that dies keeps its connections for a minute at most: they are renewed while they are open",
    );
    work.differs(&first, "a refused connection gets a 421 with the reason, and counts nowhere; there the socket is closed, and the attempt drains the node's budget");
    if let Some((url, place)) = &found.url {
        Address::of(url).write(found.key_prefix.as_deref(), "VALKEY_PASSWORD", place, work);
    }
    work.draft.on_outage = Some("local 100%".to_owned());
    let at_once = |number: u64| (number > 0).then(|| format!("{number} at once for 1m"));
    let per_ip = at_once(found.connections_per_ip.unwrap_or(CONNECTIONS_PER_IP));
    let overall = at_once(found.connections.unwrap_or(CONNECTIONS));
    let ip = Some("ip".to_owned());
    let rules = [
        (
            "rate",
            ip.clone(),
            rate,
            "How often a client may connect. `ip` is the peer's address, never a header.",
        ),
        ("per_ip", ip, per_ip, "Open connections of a client, over all nodes."),
        ("overall", None, overall, "Open connections in all."),
    ];
    let mut names = Vec::new();
    for (name, by, limit, comment) in rules {
        let Some(limit) = limit.and_then(|limit| work.limit(&first, &limit)) else { continue };
        names.push(name.to_owned());
        work.draft.rules.push(RuleDraft {
            name: name.to_owned(),
            comments: vec![comment.to_owned()],
            by: by.into_iter().collect(),
            limits: vec![limit],
            ..RuleDraft::default()
        });
    }
    let comments = vec![
        "Asked for every connection, with an id of its own (`POST /api/v1/holds`), or by the relay."
            .to_owned(),
    ];
    work.draft.policies.push(PolicyDraft { name: "smtp.connect".to_owned(), comments, rules: names });
    work.draft.hints.push(HINT.to_owned());
}

const HINT: &str = "\
With tollgate's own relay, the policy limits connections without a change to any program:
relay:
  networks: [127.0.0.0/8]
  connect: smtp.connect
  accounts: { default/next-hop: { host: mail.example.com } }";
