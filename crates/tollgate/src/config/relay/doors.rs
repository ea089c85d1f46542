//! Where clients connect, which of them may send without a login, and how much they may send.

use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use rustls::ServerConfig;
use tollgate_core::Net;
use tollgate_relay::RelaySettings;
use tollgate_relay::server::Kind;

use super::raw;
use super::size;
use super::users::check_tenant;
use super::{RelayKnown, RelayListener};
use crate::config::clients::{covered, network};
use crate::config::gateway::{collide, pem};
use crate::config::problem::{Findings, shown};
use crate::config::raw::gateway::Texts;
use crate::config::tree::Path;

const DEFAULT: RelayListener = RelayListener {
    address: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2525),
    kind: Kind::Smtp,
};
/// The shortest prefixes of networks that may send without a login: larger networks include strangers.
const LEAST_V4: u8 = 8;
const LEAST_V6: u8 = 16;

pub(super) fn listeners(
    written: &raw::Relay,
    known: RelayKnown<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Vec<RelayListener> {
    let Some(list) = &written.listen else { return vec![DEFAULT] };
    let path = path.key("listen");
    if list.is_empty() {
        findings
            .value(&path, "there is no listener in this list: write one, as in `{ smtp: 127.0.0.1:2525 }`");
    }
    let mut listeners: Vec<RelayListener> = Vec::new();
    for (index, listener) in list.iter().enumerate() {
        let path = path.index(index);
        let (setting, text, kind) = match (&listener.smtp, &listener.smtps) {
            (Some(text), None) => ("smtp", text, Kind::Smtp),
            (None, Some(text)) => ("smtps", text, Kind::Smtps),
            (None, None) | (Some(_), Some(_)) => {
                findings
                    .value(&path, "a listener is either `smtp` or `smtps`, as in `{ smtp: 127.0.0.1:2525 }`");
                continue;
            }
        };
        let path = path.key(setting);
        let Ok(address) = text.parse::<SocketAddr>() else {
            let text = shown(text);
            findings.value(
                &path,
                format!("`{text}` is not an address and a port, as in `127.0.0.1:2525` or `[::1]:2525`"),
            );
            continue;
        };
        let own = listeners.iter().map(|listener| (listener.address, "another listener of the relay"));
        let mut taken = known.taken.iter().copied().chain(own);
        if let Some((_, who)) = taken.find(|(other, _)| collide(*other, address)) {
            findings
                .value(&path, format!("`{address}` is where {who} listens: give one of them another port"));
        }
        if kind == Kind::Smtps && written.tls.is_none() {
            findings.value(
                &path,
                "`smtps` needs a certificate: add `tls` to `relay`, as in `tls: { certificate: cert.pem, key: key.pem }`",
            );
        }
        listeners.push(RelayListener { address, kind });
    }
    listeners
}

pub(super) fn tls(
    written: &raw::Relay,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Arc<ServerConfig>> {
    let (tls, path) = (written.tls.as_ref()?, path.key("tls"));
    let certificate =
        pem(&tls.certificate, "-----BEGIN CERTIFICATE-----", &path.key("certificate"), findings);
    let key = pem(&tls.key, "PRIVATE KEY-----", &path.key("key"), findings);
    match tollgate_remote::listener(&certificate?, &key?) {
        Ok(config) => Some(Arc::new(config)),
        Err(reason) => {
            let [certificate, key] = [&tls.certificate, &tls.key].map(|file| file.escape_debug());
            findings.value(&path, format!("certificate `{certificate}` and key `{key}`: {reason}"));
            None
        }
    }
}

/// Which clients may send, and how much.
pub(super) fn clients(
    written: &raw::Relay,
    relay: &mut RelaySettings,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let (settings, terms) = (&mut relay.server, &mut relay.accept);
    settings.networks = networks(written.networks.as_ref(), &path.key("networks"), findings);
    if let Some(tenant) = &written.network_tenant {
        check_tenant(tenant, &path.key("network_tenant"), findings);
        settings.network_tenant = tenant.as_str().into();
    }
    let nets = read(written.trusted_proxies.as_ref(), &path.key("trusted_proxies"), findings);
    for family in covered(&nets) {
        let message = format!(
            "these networks are every {family} address, so any client can choose the address that it is counted by"
        );
        let remedy = "name only the networks of your proxies, as in `10.0.0.0/8`";
        findings.warn(&path.key("trusted_proxies"), &message, remedy);
    }
    settings.proxies = nets.iter().filter_map(as_net).collect();
    if let Some(text) = &written.max_size
        && let Some(bytes) = size::bytes(&text.0, &path.key("max_size"), findings)
    {
        if bytes < 1_024 {
            findings.value(&path.key("max_size"), "hardly any message is that small: write at least `1KiB`");
        }
        terms.max_size = bytes;
    }
    terms.check_from = written.check_from.unwrap_or(true);
    let number = |written, most, name: &str, findings: &mut Findings<'_>| {
        let number = size::between(written, (1, most), &path.key(name), findings);
        number.and_then(|number| usize::try_from(number).ok())
    };
    if let Some(most) = number(written.max_recipients, 100_000, "max_recipients", findings) {
        terms.max_recipients = most;
    }
    if let Some(most) = number(written.max_connections, 1_000_000, "max_connections", findings) {
        settings.max_connections = most;
    }
}

/// The networks whose clients may send without a login.
fn networks(written: Option<&Texts>, path: &Path, findings: &mut Findings<'_>) -> Vec<Net> {
    let nets = read(written, path, findings);
    let wide = |net: &IpNet| match net {
        IpNet::V4(net) => net.prefix_len() < LEAST_V4,
        IpNet::V6(net) => net.prefix_len() < LEAST_V6,
    };
    if let Some(net) = nets.iter().find(|net| wide(net)) {
        findings.value(
            path,
            format!("`{net}` would make this an open relay: strangers could send mail in your name. Name only your own networks, as in `10.0.0.0/8`, and let others log in with `users`"),
        );
    } else if let Some(family) = covered(&nets).first() {
        findings.value(
            path,
            format!("these networks are every {family} address, which would make this an open relay: name only your own networks, as in `10.0.0.0/8`"),
        );
    }
    nets.iter().filter_map(as_net).collect()
}

/// The networks that direct delivery may use though they are not public.
pub(super) fn allowed(written: Option<&Texts>, path: &Path, findings: &mut Findings<'_>) -> Vec<Net> {
    read(written, path, findings).iter().filter_map(as_net).collect()
}

fn as_net(net: &IpNet) -> Option<Net> {
    Net::parse(&net.to_string()).ok()
}

fn read(written: Option<&Texts>, path: &Path, findings: &mut Findings<'_>) -> Vec<IpNet> {
    let Some(texts) = written else { return Vec::new() };
    let several = matches!(texts, Texts::Several(_));
    let mut nets = Vec::new();
    for (index, text) in texts.as_slice().iter().enumerate() {
        match network(text) {
            Ok(net) => nets.push(net),
            Err(message) if several => findings.value(&path.index(index), message),
            Err(message) => findings.value(path, message),
        }
    }
    nets
}
