//! The locations of nginx as routes of the gateway: one for each, with the policy that holds in it.
//!
//! A location by a regular expression has no route, and the report says so. An upstream that the file does not name, or
//! names by a variable, is assumed.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use tollgate_tree::Place;

use super::syntax::Directive;
use crate::draft::scalar;
use crate::names::Names;
use crate::work::{Work, shorten};

/// The routes so far, and the upstreams that they need.
#[derive(Default)]
pub(super) struct Routes {
    /// The addresses of the `upstream` blocks.
    blocks: HashMap<String, Vec<String>>,
    servers: usize,
    upstreams: Vec<(String, String)>,
    /// The names of the upstreams, by what is written of them.
    known: HashMap<String, String>,
    upstream_names: Names,
    names: Names,
    taken: HashSet<(Vec<String>, String)>,
    lines: Vec<String>,
    /// Whether an upstream was assumed already.
    assumed: bool,
}

/// Which requests a location is for.
enum Path {
    Exact(String),
    Below(String),
    /// Requests cannot ask for it.
    Internal,
    /// A regular expression, or a text that no path of a route has.
    Other,
}

/// The upstream of a location, and the prefixes that it replaces.
struct Target {
    upstream: String,
    strip: Option<String>,
    add: Option<String>,
}

/// More routes than a reader wants to look through.
const MOST_ROUTES: usize = 1_000;
const ASSUMED: &str = "127.0.0.1:9000";

impl Routes {
    /// Finds the servers and upstreams of a file, at any depth.
    pub(super) fn collect(&mut self, directives: &[Directive]) {
        for directive in directives {
            match &*directive.name {
                "upstream" => {
                    let name = directive.arguments.first().cloned().unwrap_or_default();
                    self.blocks.insert(name, members(&directive.block));
                }
                name => {
                    self.servers += usize::from(name == "server" && !directive.block.is_empty());
                    self.collect(&directive.block);
                }
            }
        }
    }

    /// The hosts of a server's routes. A single server takes all.
    pub(super) fn hosts(&self, server_name: &Directive) -> Vec<String> {
        let written = if self.servers > 1 { server_name.arguments.as_slice() } else { &[] };
        let is_host = |name: &&String| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
            let bare = name.strip_prefix("*.").unwrap_or(name);
            !bare.is_empty() && !bare.starts_with(['.', '-']) && bare.chars().all(plain)
        };
        written.iter().filter(is_host).map(|name| name.to_ascii_lowercase()).collect()
    }

    /// Adds the route of a location.
    pub(super) fn location(
        &mut self,
        location: &Directive,
        hosts: &[String],
        policy: Option<&str>,
        work: &mut Work<'_>,
    ) {
        let place = &location.place;
        let shown = shorten(&location.arguments.join(" "));
        let path = match Path::of(&location.arguments) {
            Path::Exact(path) => path,
            Path::Below(prefix) if prefix.ends_with('/') => prefix + "*",
            Path::Below(prefix) => {
                work.differs(
                    place,
                    format!("`location {shown}` also takes `{shown}x`, and the route only `{prefix}` and what is below it"),
                );
                prefix + "/*"
            }
            Path::Internal => return,
            Path::Other => {
                work.left_out(
                    place,
                    format!("`location {shown}` has no route: a path of a route is a text, not a regular expression. Add one with the policy that the report names"),
                );
                return;
            }
        };
        let pass = location.block.iter().find(|directive| directive.name == "proxy_pass");
        let target = self.target(pass, place, &path, work);
        self.add(&path, hosts, &target, policy, place, work);
    }

    /// Adds the route of everything that has no location.
    pub(super) fn rest(
        &mut self,
        hosts: &[String],
        policy: Option<&str>,
        place: &Place,
        work: &mut Work<'_>,
    ) {
        if !self.taken.contains(&(hosts.to_vec(), "/*".to_owned())) {
            let target = self.target(None, place, "/*", work);
            self.add("/*", hosts, &target, policy, place, work);
        }
    }

    fn add(
        &mut self,
        path: &str,
        hosts: &[String],
        target: &Target,
        policy: Option<&str>,
        place: &Place,
        work: &mut Work<'_>,
    ) {
        if !self.taken.insert((hosts.to_vec(), path.to_owned())) {
            work.left_out(place, format!("`{path}` has a route already"));
            return;
        }
        let name = self.names.free(path.trim_end_matches('*'));
        let mut line = format!("    {name}: {{ path: {path}");
        if !hosts.is_empty() {
            let hosts: Vec<String> = hosts.iter().map(|host| scalar(host)).collect();
            let _ = write!(line, ", host: [{}]", hosts.join(", "));
        }
        let _ = write!(line, ", upstream: {}", target.upstream);
        for (setting, value) in [
            ("policy", policy),
            ("strip_prefix", target.strip.as_deref()),
            ("add_prefix", target.add.as_deref()),
        ] {
            value.into_iter().for_each(|value| line += &format!(", {setting}: {value}"));
        }
        self.lines.push(line + " }");
    }

    /// Where `proxy_pass` sends requests.
    fn target(&mut self, pass: Option<&Directive>, place: &Place, path: &str, work: &mut Work<'_>) -> Target {
        let url = pass.and_then(|pass| pass.arguments.first()).map_or("", String::as_str);
        let parsed = url.strip_prefix("http://").map(|rest| (rest, false));
        let parsed = parsed.or_else(|| url.strip_prefix("https://").map(|rest| (rest, true)));
        let found = parsed.and_then(|(rest, tls)| {
            let (authority, uri) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            Some((self.upstream(authority, tls)?, uri))
        });
        let Some((upstream, uri)) = found else { return self.assume(place, work) };
        let mut target = Target { upstream, strip: None, add: None };
        match (uri, path.strip_suffix("/*")) {
            ("", _) => {}
            (uri, Some(prefix)) if uri.ends_with('/') && is_plain(uri) => {
                target.strip = Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty());
                target.add = Some(uri.trim_end_matches('/').to_owned()).filter(|uri| !uri.is_empty());
            }
            (uri, _) => work.differs(
                place,
                format!(
                    "`{}` of `proxy_pass` replaces the location there; here the path is passed on as it is",
                    shorten(uri)
                ),
            ),
        }
        target
    }

    /// The upstream of an authority; `None` if it is a variable, a socket or not an address.
    fn upstream(&mut self, authority: &str, tls: bool) -> Option<String> {
        let port = if tls { 443 } else { 80 };
        let (addresses, name) = match self.blocks.get(authority) {
            Some(members) => {
                let addresses: Option<Vec<_>> = members.iter().map(|one| address(one, port)).collect();
                (addresses.filter(|addresses| !addresses.is_empty())?, authority)
            }
            None => (vec![address(authority, port)?], name_of(authority)),
        };
        let listed: Vec<String> = addresses.iter().map(|address| scalar(address)).collect();
        let written = match (listed.as_slice(), tls) {
            (_, true) => format!("{{ addresses: [{}], tls: {{}} }}", listed.join(", ")),
            ([one], false) => one.clone(),
            (several, false) => format!("[{}]", several.join(", ")),
        };
        Some(self.named(written, name))
    }

    fn named(&mut self, written: String, name: &str) -> String {
        if let Some(name) = self.known.get(&written) {
            return name.clone();
        }
        let name = self.upstream_names.free(name);
        self.upstreams.push((name.clone(), written.clone()));
        self.known.insert(written, name.clone());
        name
    }

    fn assume(&mut self, place: &Place, work: &mut Work<'_>) -> Target {
        if !std::mem::replace(&mut self.assumed, true) {
            work.asks(
                place,
                format!("the file does not tell with `proxy_pass` where these requests go; assumed `{ASSUMED}`. Change `gateway.upstreams`"),
            );
        }
        Target { upstream: self.named(ASSUMED.to_owned(), "app"), strip: None, add: None }
    }

    /// Writes the gateway. Without any location, all requests have the first policy.
    pub(super) fn finish(mut self, first: Option<&str>, place: &Place, work: &mut Work<'_>) {
        if self.lines.is_empty() {
            self.rest(&[], first, place, work);
        }
        if self.lines.len() > MOST_ROUTES {
            work.left_out(
                place,
                format!("{} locations have no route: at most {MOST_ROUTES} are written. Write `gateway` by hand, or let nginx stay in front", self.lines.len()),
            );
            return;
        }
        work.asks(
            place,
            "assumed that tollgate's gateway takes the place of nginx, and listens at `127.0.0.1:8000`: change `gateway.listen`. If nginx stays in front and asks by forward-auth, remove `gateway`",
        );
        let mut section = HEAD.to_owned();
        for (name, written) in &self.upstreams {
            let _ = writeln!(section, "    {name}: {written}");
        }
        section.push_str("  routes:\n");
        section.push_str(&self.lines.join("\n"));
        work.draft.sections.push(section);
    }
}

const HEAD: &str = "\
# The gateway takes the place of nginx, with one route for each location. Or nginx stays in front and asks tollgate
# before it passes a request on: docs/guides/forward-auth.md has its configuration. Remove this section then.
gateway:
  listen: 127.0.0.1:8000
  upstreams:
";

impl Path {
    fn of(arguments: &[String]) -> Self {
        let (modifier, path) = match arguments {
            [one] => one.strip_prefix('=').map_or(("", one.as_str()), |path| ("=", path)),
            [modifier, path, ..] => (modifier.as_str(), path.as_str()),
            [] => ("", ""),
        };
        match modifier {
            "" if path.starts_with('@') => Self::Internal,
            "=" if is_plain(path) => Self::Exact(path.to_owned()),
            "" | "^~" if is_plain(path) => Self::Below(path.to_owned()),
            _ => Self::Other,
        }
    }
}

/// Whether a text is a path as the gateway writes it, and has nothing that a route reads as a pattern.
fn is_plain(path: &str) -> bool {
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '~' | '-');
    let dots = |segment: &str| matches!(segment, "." | "..");
    path.starts_with('/') && path.chars().all(kept) && !path.contains("//") && !path.split('/').any(dots)
}

/// The addresses in an `upstream` block that take part.
fn members(block: &[Directive]) -> Vec<String> {
    let away = |word: &String| word == "down" || word == "backup";
    let servers = block.iter().filter(|directive| directive.name == "server");
    servers
        .filter(|server| !server.arguments.iter().any(away))
        .filter_map(|server| server.arguments.first().cloned())
        .collect()
}

/// The name of an upstream at this address: its host, unless that is a number.
fn name_of(authority: &str) -> &str {
    let host = authority.split(':').next().unwrap_or_default();
    if host.starts_with(|c: char| c.is_ascii_alphabetic()) { host } else { "app" }
}

/// A host and a port, if the text has them.
fn address(text: &str, default_port: u16) -> Option<String> {
    let is_v6 = text.starts_with('[');
    let end = if is_v6 { text.find(']')? + 1 } else { text.find(':').unwrap_or(text.len()) };
    let (host, port) = text.split_at(end);
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None if port.is_empty() => default_port,
        None => return None,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_host = if is_v6 {
        host[1..host.len() - 1].parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        !host.is_empty() && host != "unix" && host.chars().all(plain)
    };
    is_host.then(|| format!("{host}:{port}"))
}
