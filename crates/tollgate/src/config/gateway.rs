//! The reverse proxy, from its written form to its meaning: listeners, upstreams and routes.

mod guards;
mod listeners;
mod routes;
mod upstreams;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::policy::nearest;
use tollgate_core::{Guard, Policy, Span};
use tollgate_gateway::BadSettings;
use tollgate_gateway::settings::{AccessLog, Bounds, Settings};
use tollgate_web::Answers;

use super::clients::Clients;
use super::files;
use super::limits;
use super::problem::{Findings, hint, listed, shown};
use super::raw::gateway as raw;
use super::tree::Path;

pub(super) use listeners::collide;

/// The longest time-out of anything but a tunnel.
const MOST_WAIT: Span = Span::from_secs(86_400);

/// What the gateway's section refers to.
#[derive(Clone, Copy)]
pub(super) struct Known<'k> {
    pub(super) policies: &'k [Policy],
    pub(super) guards: &'k [Guard],
    pub(super) clients: &'k Clients,
    pub(super) answers: &'k Answers,
    /// The address of the HTTP API.
    pub(super) api: Option<SocketAddr>,
    /// The written names, whether or not what they stand for is valid.
    pub(super) written_policies: &'k [&'k str],
    pub(super) written_guards: &'k [&'k str],
}

/// Converts the gateway's section.
pub(super) fn mean(
    written: &raw::Gateway,
    known: Known<'_>,
    findings: &mut Findings<'_>,
) -> Option<Settings> {
    let path = Path::of(&["gateway"]);
    let listeners = listeners::mean(&written.listen, known.api, &path.key("listen"), findings);
    let upstreams = upstreams::mean(&written.upstreams, &path.key("upstreams"), findings);
    let names: Vec<&str> = written.upstreams.0.iter().map(|(name, _)| name.as_str()).collect();
    let routes = routes::mean(&written.routes, &names, known, &path.key("routes"), findings);
    let connections =
        written.connections.as_ref().and_then(|name| policy(name, known, &path.key("connections"), findings));
    let bounds = written.bounds.as_ref().map_or_else(
        || Some(Bounds::default()),
        |bounds| Some(self::bounds(bounds, &path.key("bounds"), findings)),
    );
    let access_log = access_log(written.access_log.as_deref(), &path.key("access_log"), findings);
    let settings = Settings {
        listeners: listeners?,
        workers: workers(written.workers, &path.key("workers"), findings)?,
        upstreams: upstreams?,
        routes: routes?,
        connections,
        bounds: bounds?,
        access_log: access_log?,
        trusted_proxies: known.clients.proxies.clone(),
        aliases: known.clients.aliases.clone(),
        credentials: Arc::clone(&known.clients.credentials),
        answers: known.answers.clone(),
    };
    if let Err(bad) = settings.check() {
        refuse(&bad, written, &settings, &path, findings);
    }
    Some(settings)
}

/// Reports the settings that a gateway would refuse, where they were written.
fn refuse(
    bad: &BadSettings,
    written: &raw::Gateway,
    settings: &Settings,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    match bad {
        BadSettings::Shadowed(shadowed) => {
            findings.key(&path.key("routes").key(&shadowed.route), bad.to_string());
        }
        BadSettings::NotNormal { route, .. } => {
            findings.value(&path.key("routes").key(route).key("path"), bad.to_string());
        }
        BadSettings::BadUpstream { upstream, reason } => {
            findings.value(&path.key("upstreams").key(upstream), reason.clone());
        }
        BadSettings::BadListener { address, reason } => {
            let place = settings.listeners.iter().position(|listener| listener.address == *address);
            listeners::refuse(&written.listen, place.unwrap_or(0), reason, &path.key("listen"), findings);
        }
        _ => findings.value(path, bad.to_string()),
    }
}

/// The name of an existing policy that requests can pass.
fn policy(name: &str, known: Known<'_>, path: &Path, findings: &mut Findings<'_>) -> Option<Arc<str>> {
    let Some(policy) = known.policies.iter().find(|policy| *policy.name == *name) else {
        // An error in the policy itself is reported where the policy is.
        let written = || known.written_policies.iter().copied();
        if !written().any(|written| written == name) {
            let near = hint(nearest(name, written()));
            findings.value(path, format!("there is no policy `{}`{near}", shown(name)));
        }
        return None;
    };
    known.clients.check(policy, path, findings);
    Some(Arc::clone(&policy.name))
}

fn workers(written: Option<u64>, path: &Path, findings: &mut Findings<'_>) -> Option<NonZeroUsize> {
    const MOST: u64 = 256;
    match written {
        None => Some(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        Some(count @ 1..=MOST) => usize::try_from(count).ok().and_then(NonZeroUsize::new),
        Some(count) => {
            findings.value(path, format!("`{count}` workers are too few or too many: write a number from 1 to {MOST}, or leave it out for one on each core"));
            None
        }
    }
}

fn bounds(written: &raw::Bounds, path: &Path, findings: &mut Findings<'_>) -> Bounds {
    let mut bounds = Bounds { body_bytes: written.body_bytes, ..Bounds::default() };
    let mut set = |name: &str, written: Option<u64>, (least, most): (u64, u64), setting: &mut usize| {
        let Some(written) = written else { return };
        match usize::try_from(written).ok().filter(|_| (least..=most).contains(&written)) {
            Some(number) => *setting = number,
            None => findings.value(
                &path.key(name),
                format!("`{written}` is too little or too much: write a number from {least} to {most}"),
            ),
        }
    };
    let mut streams = 128;
    let (most_bytes, most_lines) = (Bounds::MOST_HEAD_BYTES as u64, Bounds::MOST_HEAD_LINES as u64);
    // Browsers send heads of up to this size.
    set("head_bytes", written.head_bytes, (8192, most_bytes), &mut bounds.head_bytes);
    set("head_lines", written.head_lines, (1, most_lines), &mut bounds.head_lines);
    set("connections", written.connections, (1, 1_000_000), &mut bounds.connections);
    set("tunnels", written.tunnels, (0, 1_000_000), &mut bounds.tunnels);
    set("streams", written.streams, (1, 10_000), &mut streams);
    bounds.streams = u32::try_from(streams).unwrap_or(u32::MAX);
    for (name, written, setting) in [
        ("head_timeout", &written.head_timeout, &mut bounds.head_timeout),
        ("idle_timeout", &written.idle_timeout, &mut bounds.idle_timeout),
        ("stall_timeout", &written.stall_timeout, &mut bounds.stall_timeout),
        ("tunnel_timeout", &written.tunnel_timeout, &mut bounds.tunnel_timeout),
    ] {
        time(written.as_deref(), &path.key(name), findings, setting);
    }
    bounds
}

/// Sets a time-out that was written.
fn time(written: Option<&str>, path: &Path, findings: &mut Findings<'_>, setting: &mut Duration) {
    let Some(span) = written.and_then(|text| limits::span(text, path, findings)) else { return };
    if span > MOST_WAIT {
        findings.value(path, format!("`{span}` is too long: at most `{MOST_WAIT}` is allowed"));
        return;
    }
    *setting = Duration::from_micros(span.as_micros());
}

fn access_log(written: Option<&str>, path: &Path, findings: &mut Findings<'_>) -> Option<AccessLog> {
    let Some(written) = written else { return Some(AccessLog::Off) };
    let one_in = |text: &str| {
        let (one, many) = text.split_once('/')?;
        many.trim().parse::<NonZeroU32>().ok().filter(|_| one.trim() == "1")
    };
    match written.trim() {
        "off" => Some(AccessLog::Off),
        "all" => Some(AccessLog::OneIn(NonZeroU32::MIN)),
        text => {
            let sampled = one_in(text).map(AccessLog::OneIn);
            if sampled.is_none() {
                let known = listed(["all", "off", "1/100"]);
                findings.value(path, format!("`{}` is none of {known}", shown(written)));
            }
            sampled
        }
    }
}

/// The content of a PEM file that must contain `holds`.
pub(super) fn pem(file: &str, holds: &str, path: &Path, findings: &mut Findings<'_>) -> Option<Vec<u8>> {
    // A key may have been pasted where its file belongs.
    let name = if file.contains('\n') || file.contains("-----") {
        "the file that is named here".to_owned()
    } else {
        format!("the file `{}`", shown(file))
    };
    let message = match files::read(file) {
        Ok(bytes) if String::from_utf8_lossy(&bytes).contains(holds) => return Some(bytes),
        Ok(_) => format!("{name} has no `{holds}` in it: it is to be PEM"),
        Err(error) => format!("{name} cannot be read: {error}"),
    };
    findings.value(path, message);
    None
}
