//! Zones of nginx, and the rules that their uses become.

use std::collections::HashMap;

use tollgate_tree::Place;

use super::add_rule;
use super::syntax::Directive;
use crate::work::{Work, shorten};

/// What a zone counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Requests,
    Connections,
}

impl Kind {
    pub(super) fn directive(self) -> &'static str {
        match self {
            Self::Requests => "limit_req",
            Self::Connections => "limit_conn",
        }
    }

    pub(super) fn dry_run(self) -> &'static str {
        match self {
            Self::Requests => "limit_req_dry_run",
            Self::Connections => "limit_conn_dry_run",
        }
    }

    pub(super) fn status(self) -> &'static str {
        match self {
            Self::Requests => "limit_req_status",
            Self::Connections => "limit_conn_status",
        }
    }
}

/// A zone: what it counts by, and how fast.
struct Zone {
    by: Vec<String>,
    rate: String,
    place: Place,
}

/// A use of a zone: the zone, and its burst or its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Use {
    pub(super) kind: Kind,
    zone: String,
    words: String,
    place: Line,
}

/// A place that does not distinguish uses.
#[derive(Clone, Debug)]
struct Line(Place);

impl PartialEq for Line {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Line {}

impl std::hash::Hash for Line {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// All zones, and the rules made so far.
#[derive(Default)]
pub(super) struct Zones {
    zones: HashMap<(Kind, String), Zone>,
    rules: HashMap<(Use, bool), String>,
    /// How many rules a zone has become.
    made: HashMap<(Kind, String), usize>,
}

impl Use {
    /// `limit_req zone=api burst=50 nodelay`, `limit_conn addr 10`.
    pub(super) fn of(kind: Kind, directive: &Directive, zones: &Zones, work: &mut Work<'_>) -> Option<Self> {
        let mut arguments = directive.arguments.iter();
        let zone = match kind {
            Kind::Requests => arguments.clone().find_map(|word| word.strip_prefix("zone=")),
            Kind::Connections => arguments.next().map(String::as_str),
        };
        let Some(zone) = zone else {
            work.wrong(&directive.place, format!("`{}` names no zone", directive.name));
            return None;
        };
        if !zones.zones.contains_key(&(kind, zone.to_owned())) {
            let message = format!(
                "the zone `{}` is not defined: name the file with its `{}_zone` too",
                shorten(zone),
                kind.directive()
            );
            work.wrong(&directive.place, message);
            return None;
        }
        // `burst=0` is the default.
        let kept = |word: &&String| !word.starts_with("zone=") && *word != "burst=0";
        let words: Vec<&str> = arguments.filter(kept).map(String::as_str).collect();
        let words = words.join(" ");
        Some(Self { kind, zone: zone.to_owned(), words, place: Line(directive.place.clone()) })
    }
}

impl Zones {
    /// Finds the zones of a file, at any depth.
    pub(super) fn collect(&mut self, directives: &[Directive], work: &mut Work<'_>) {
        for directive in directives {
            match &*directive.name {
                "limit_req_zone" => self.add(Kind::Requests, directive, work),
                "limit_conn_zone" => self.add(Kind::Connections, directive, work),
                _ => self.collect(&directive.block, work),
            }
        }
    }

    fn add(&mut self, kind: Kind, directive: &Directive, work: &mut Work<'_>) {
        let find = |start| directive.arguments.iter().find_map(|word| word.strip_prefix(start));
        let zone = find("zone=").and_then(|zone: &str| zone.split(':').next()).unwrap_or_default();
        let key = directive.arguments.first().map_or("", String::as_str);
        let rate = find("rate=").unwrap_or_default();
        if zone.is_empty() || key.is_empty() || kind == Kind::Requests && rate.is_empty() {
            work.wrong(
                &directive.place,
                format!("`{}` needs a key, `zone=NAME:SIZE` and for requests `rate=`", directive.name),
            );
            return;
        }
        if kind == Kind::Requests && !rate.ends_with("r/s") && !rate.ends_with("r/m") {
            let message =
                format!("`{}` is not a rate of nginx: they are written `10r/s` or `5r/m`", shorten(rate));
            work.wrong(&directive.place, message);
        }
        let by = match work.answered_fields(zone) {
            Some(fields) => fields,
            None => fields(key).unwrap_or_else(|| {
                let why = format!("it counts by `{}`, which has no equivalent", shorten(key));
                work.fields_of(&directive.place, zone, "ip", &why)
            }),
        };
        if by.len() > tollgate_core::Rule::MOST_FIELDS {
            work.wrong(
                &directive.place,
                format!(
                    "`{}` has more than four variables: answer with `--by {zone}=FIELD,FIELD`",
                    shorten(key)
                ),
            );
            return;
        }
        if find("zone=").is_some_and(|zone: &str| zone.contains(':')) {
            work.differs(&directive.place, format!("`{zone}`: the size of the zone has no equivalent: `max_keys` of the store bounds all counters, and a blocked key is not forgotten to make room"));
        }
        let zone_of = Zone { by, rate: rate.to_owned(), place: directive.place.clone() };
        if let Some(before) = self.zones.insert((kind, zone.to_owned()), zone_of) {
            work.wrong(&directive.place, format!("the zone `{zone}` is defined at {} already", before.place));
        }
    }

    /// The rule for a use. The same zone with the same numbers is the same rule.
    pub(super) fn rule(&mut self, one: &Use, dry_run: bool, work: &mut Work<'_>) -> String {
        if let Some(rule) = self.rules.get(&(one.clone(), dry_run)) {
            return rule.clone();
        }
        let place = &one.place.0;
        let zone = &self.zones[&(one.kind, one.zone.clone())];
        let written = match one.kind {
            Kind::Requests => format!("{} {}", zone.rate, one.words).trim().to_owned(),
            Kind::Connections => format!("{} at once for 60s", one.words),
        };
        let limit = match one.kind {
            Kind::Requests => work.rewrite(place, &written).map(|rewrite| (rewrite.limit, rewrite.wait)),
            Kind::Connections => work.limit(place, &written).map(|limit| (limit, None)),
        };
        let Some((limit, wait)) = limit else { return String::new() };
        let waits = wait.map(|wait| format!("wait {wait}"));
        work.exact(place, explain(one, &written, &limit, waits.as_deref()));
        if dry_run {
            work.exact(place, format!("`{}`: the dry run is `on_exceed: observe`", one.zone));
        }
        let made = self.made.entry((one.kind, one.zone.clone())).or_default();
        *made += 1;
        if *made > 1 {
            work.differs(place, format!("the zone `{}` is used with other numbers elsewhere: each has counters of its own here, because a rule has one limit", one.zone));
        }
        let on_exceed = if dry_run { Some("observe".to_owned()) } else { waits };
        let comment = format!("The zone {}: {}", shorten(&one.zone), shorten(&written));
        let rule = add_rule(&one.zone, zone.by.clone(), limit, on_exceed, comment, work);
        self.rules.insert((one.clone(), dry_run), rule.clone());
        rule
    }

    /// Reports zones that no block uses.
    pub(super) fn finish(self, work: &mut Work<'_>) {
        let mut unused: Vec<_> = self.zones.iter().filter(|(key, _)| !self.made.contains_key(key)).collect();
        unused.sort_by(|(a, _), (b, _)| a.1.cmp(&b.1));
        for ((_, name), zone) in unused {
            work.left_out(&zone.place, format!("the zone `{name}` is not used"));
        }
    }
}

fn explain(one: &Use, written: &str, limit: &str, waits: Option<&str>) -> String {
    match (one.kind, waits) {
        (Kind::Connections, _) => {
            format!("`limit_conn {} {}` is `{limit}`: requests in progress", one.zone, one.words)
        }
        (Kind::Requests, Some(wait)) => {
            format!("`{written}` is `{limit}` and `on_exceed: {wait}`: nginx delays requests over the rate")
        }
        (Kind::Requests, None) => format!("`{written}` is `{limit}`: nginx admits one more than its burst"),
    }
}

/// The fields that stand for the variables of a key; `None` if one has no equivalent.
fn fields(key: &str) -> Option<Vec<String>> {
    let mut fields: Vec<String> = Vec::new();
    for piece in key.split('$').skip(1) {
        let piece = piece.strip_prefix('{').map_or(piece, |piece| piece.split('}').next().unwrap_or(piece));
        let name = piece.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        let field = match name {
            "binary_remote_addr" | "remote_addr" => "ip".to_owned(),
            "host" | "server_name" | "http_host" => "host".to_owned(),
            "uri" | "document_uri" | "request_uri" => "path".to_owned(),
            "request_method" => "method".to_owned(),
            "jwt_claim_sub" => "subject".to_owned(),
            name => {
                let (source, rest) = name.split_once('_')?;
                let source = match source {
                    "http" => "header",
                    "cookie" => "cookie",
                    "arg" => "query",
                    _ => return None,
                };
                let rest = if source == "header" { rest.replace('_', "-") } else { rest.to_owned() };
                format!("{source}.{rest}")
            }
        };
        if tollgate_core::key::check_field_name(&field).is_err() {
            return None;
        }
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    // A key without variables has one counter for all.
    Some(fields)
}
