//! Turns the facts about a server into findings. Pure: no I/O.

mod setup;

pub(crate) use setup::consequence_of_eviction;

use super::Finding;
use super::facts::{ClockOffset, Facts, RoundTrip, Trouble};
use super::talk::NO_ANSWER;
use super::words::{count, time};
use crate::settings::{Settings, Topology};

/// The first major version with everything that the store needs.
const LEAST_VERSION: u32 = 7;
/// A clock that differs by more than this is not synchronised.
const WRONG_CLOCK_MICROS: u64 = 1_000_000;

/// The findings about one server.
pub(super) fn server(facts: &Facts, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(connected_in) = facts.connected_in {
        findings.push(Finding::fine("connection", format!("connected in {}", time(connected_in))));
    }
    if let Some(user) = &facts.user {
        findings.push(Finding::fine("login", format!("logged in as {user}")));
    }
    findings.extend(identity(facts, settings));
    findings.extend(facts.round_trip.map(|round_trip| distance(&round_trip, settings)));
    findings.extend(facts.clock.map(clock));
    findings.extend(setup::memory(facts));
    findings.extend(setup::eviction(facts));
    findings.extend(setup::persistence(facts));
    findings.extend(setup::unread(facts));
    findings.extend(keys(facts, settings));
    findings.extend(scripts(facts));
    findings.extend(permissions(facts, settings));
    findings.extend(facts.trouble.as_ref().map(|trouble| in_the_way(trouble, facts, settings)));
    findings
}

fn in_the_way(trouble: &Trouble, facts: &Facts, settings: &Settings) -> Finding {
    let user = settings.user.as_deref().unwrap_or("default");
    match trouble {
        Trouble::Unreachable(reason) => {
            Finding::problem("connection", reason).remedy(remedy_of_connecting(reason, settings))
        }
        Trouble::LoginRefused(error) if error.starts_with("NOAUTH") => {
            Finding::problem("login", "the server asks for a password, and none is configured")
                .remedy("set `password_env` or `password_file` beside the address in `store`")
        }
        Trouble::LoginRefused(error) if error.contains("without any password configured") => {
            Finding::problem("login", "a password is configured, and the server's default user has none")
                .remedy("leave the password out, or name the `user` that it belongs to")
        }
        Trouble::LoginRefused(error) => {
            let check = format!(
                "check the password; `ACL GETUSER {user}` at the server says whether the user is `on`"
            );
            Finding::problem("login", format!("the server refuses user {user}: {error}"))
                .remedy(remedy_of(error).map_or(check, ToOwned::to_owned))
        }
        Trouble::Refusing(error) => {
            let finding = Finding::problem("server", format!("it refuses to work: {error}"));
            match remedy_of(error) {
                Some(remedy) => finding.remedy(remedy),
                None => finding,
            }
        }
        Trouble::Silent(reason) if facts.version.is_none() && !reason.starts_with(NO_ANSWER) => {
            Finding::problem("connection", format!("it hangs up before it answers anything: {reason}"))
                .remedy("it may speak TLS on this port: write `rediss://`, or name the port without TLS")
        }
        Trouble::Silent(reason) if facts.version.is_none() => {
            Finding::problem("connection", format!("it accepts connections and does not answer: {reason}"))
                .remedy("the server is paused or stuck: look at its process, its log and `SLOWLOG GET`")
        }
        Trouble::Silent(reason) => {
            Finding::problem("connection", format!("it stopped answering while it was looked at: {reason}"))
                .remedy("look at the server's log and at `SLOWLOG GET`")
        }
    }
}

fn remedy_of_connecting(reason: &str, settings: &Settings) -> &'static str {
    if reason.contains("CertificateRequired") {
        "it accepts only clients with a certificate: write `tls_certificate` and `tls_key`"
    } else if reason.contains("certificate") {
        "name the authority that vouches for the server in `tls_ca`, and the server as its certificate does"
    } else if reason.contains("corrupt message") {
        "it speaks no TLS on this port: write `redis://`, or name the port with TLS"
    } else if settings.tls.is_some() && reason.starts_with("no connection") {
        // A server without TLS waits for the end of the TLS greeting, which it takes for a command.
        "start the server, or correct the address in `store`; it may speak no TLS on this port, or a \
         firewall may be in the way"
    } else {
        "start the server, or correct the address in `store`; the server's `bind`, and a firewall, may be \
         in the way too"
    }
}

fn identity(facts: &Facts, settings: &Settings) -> Vec<Finding> {
    let (Some(flavour), Some(version)) = (&facts.flavour, &facts.version) else { return Vec::new() };
    let mut words = format!("{flavour} {version}");
    if let Some(role) = &facts.role {
        words.push_str(&format!(", {role}"));
    }
    if let Some(replicas) = facts.replicas {
        words.push_str(&format!(", {}", count(replicas, "replica")));
    }
    let mut findings = vec![Finding::fine("server", words)];
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    if major.is_some_and(|major: u32| major < LEAST_VERSION) {
        findings.push(
            Finding::problem("server", format!("version {version} is too old"))
                .remedy("use Redis from 7.0 on, or Valkey"),
        );
    }
    let is_cluster = matches!(settings.topology, Topology::Cluster { .. });
    match facts.mode.as_deref() {
        Some("sentinel") => findings.push(
            Finding::problem("server", "this is a Sentinel, which keeps nothing")
                .remedy("write `redis+sentinel://host:26379/service` in `store`"),
        ),
        Some("cluster") if !is_cluster => findings.push(
            Finding::problem("server", "this is a node of a Cluster, which has a part of the keys")
                .remedy("write `redis+cluster://` in `store` instead of `redis://`"),
        ),
        _ => {}
    }
    if facts.role.as_deref().is_some_and(|role| role != "master") {
        findings.push(
            Finding::problem("server", "this is a replica, which takes no writes")
                .remedy("name the master in `store`, or let Sentinels find it: `redis+sentinel://…`"),
        );
    }
    let lonely = facts.replicas == Some(0) && !matches!(settings.topology, Topology::Single(_));
    if lonely && facts.role.as_deref() == Some("master") {
        findings.push(
            Finding::warning("server", "it has no replica: when it dies, nothing takes its place")
                .remedy("add a replica"),
        );
    }
    findings
}

fn distance(round_trip: &RoundTrip, settings: &Settings) -> Finding {
    let RoundTrip { count, min, median, max } = *round_trip;
    let words =
        format!("{count} pings took {} to {} and {} in the middle", time(min), time(max), time(median));
    let timeout = settings.command_timeout;
    let remedy = "put the server nearer, find out what keeps it busy (`SLOWLOG GET`), or raise \
                  `command_timeout` in `store`";
    if median >= timeout {
        let words =
            format!("{words}: most decisions do not get an answer within `command_timeout` ({timeout:?})");
        Finding::problem("round trip", words).remedy(remedy)
    } else if max >= timeout {
        let words =
            format!("{words}: some decisions do not get an answer within `command_timeout` ({timeout:?})");
        Finding::warning("round trip", words).remedy(remedy)
    } else {
        Finding::fine("round trip", words)
    }
}

fn clock(offset: ClockOffset) -> Finding {
    let micros = offset.ahead_micros.unsigned_abs();
    let shown = |micros: u64| time(std::time::Duration::from_micros(micros));
    let way = if offset.ahead_micros < 0 { "behind" } else { "ahead of" };
    let words = format!(
        "its clock is {} {way} this machine's, give or take {}",
        shown(micros),
        shown(offset.uncertainty_micros)
    );
    if micros > WRONG_CLOCK_MICROS.saturating_add(offset.uncertainty_micros) {
        let words = format!(
            "{words}: counting goes by the server's, so calendar periods turn at that time, and resets \
             are told in it"
        );
        Finding::warning("clock", words).remedy("let NTP keep both clocks")
    } else {
        Finding::fine("clock", words)
    }
}

fn keys(facts: &Facts, settings: &Settings) -> Option<Finding> {
    let keys = facts.keys?;
    let about = if keys.is_whole() { "" } else { "about " };
    let words = format!(
        "{about}{} under {}:, of {} in the database",
        count(keys.estimate(), "key"),
        settings.prefix,
        keys.total
    );
    Some(Finding::fine("keys", words))
}

fn scripts(facts: &Facts) -> Option<Finding> {
    let refused: Vec<_> =
        facts.scripts.iter().filter_map(|run| Some((run.name, run.refusal.as_ref()?))).collect();
    let all = facts.scripts.len();
    match refused.first() {
        None if all == 0 => None,
        None => Some(Finding::fine("scripts", format!("all {all} scripts run"))),
        Some((_, error)) => {
            let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
            let words =
                format!("{} of {all} scripts are refused ({}): {error}", refused.len(), names.join(", "));
            let finding = Finding::problem("scripts", words);
            Some(match remedy_of(error) {
                Some(remedy) => finding.remedy(remedy),
                None => finding,
            })
        }
    }
}

/// The remedy for an error of the server.
fn remedy_of(error: &str) -> Option<&'static str> {
    let kind = error.split(' ').next().unwrap_or_default();
    Some(match kind {
        "OOM" => "raise `maxmemory` at the server, or take away what else is kept there",
        "READONLY" => "name the master in `store`: this is a replica",
        "MISCONF" => "the server cannot write its snapshot: look at its log and at the disk",
        "NOREPLICAS" => "too few replicas follow for `min-replicas-to-write`: bring them back",
        "LOADING" => "wait until the server has read its data; `INFO persistence` says how far it is",
        "BUSY" => "another script keeps the server busy: `SCRIPT KILL` ends it",
        "CLUSTERDOWN" => "the Cluster is not whole: `redis-cli --cluster check` says what is missing",
        "MASTERDOWN" => "the server has lost its master",
        "DENIED" => "set a password at the server, or `protected-mode no` if no one else can reach it",
        "NOPERM" => "grant the missing permissions, as listed under permissions",
        _ if error.contains("max number of clients") => "raise `maxclients` at the server",
        _ if error.contains("ACL failure") || error.contains("can't run this command") => {
            "grant the missing permissions, as listed under permissions"
        }
        _ => return None,
    })
}

fn permissions(facts: &Facts, settings: &Settings) -> Option<Finding> {
    let user = facts.user.as_deref().unwrap_or("default");
    let mut granted: Vec<String> = facts.forbidden.iter().map(|command| format!("+{command}")).collect();
    let mut words = Vec::new();
    if facts.keys_forbidden {
        let prefix = &settings.prefix;
        granted.insert(0, format!("~{prefix}:* ~{prefix}/*"));
        words.push(format!("the keys {prefix}:* and {prefix}/*"));
    }
    if !facts.forbidden.is_empty() {
        words.push(facts.forbidden.join(", "));
    }
    match (facts.tried, words.as_slice()) {
        (0, _) => None,
        (tried, []) => {
            Some(Finding::fine("permissions", format!("all {tried} commands that are used are permitted")))
        }
        _ => Some(
            Finding::problem("permissions", format!("user {user} may not use {}", words.join(" and ")))
                .remedy(format!("ACL SETUSER {user} {}", granted.join(" "))),
        ),
    }
}
