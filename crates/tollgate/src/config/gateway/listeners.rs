//! The listeners of the gateway.

use std::net::SocketAddr;

use tollgate_gateway::settings::{ListenerSettings, TlsSettings};

use super::pem;
use super::raw::{Listener, ListenerTable, ListenerTls, Listeners};
use crate::config::problem::{Findings, shown};
use crate::config::tree::Path;

pub(super) fn mean(
    written: &Listeners,
    api: Option<SocketAddr>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Vec<ListenerSettings>> {
    match written {
        Listeners::One(listener) => one(listener, api, path, findings).map(|listener| vec![listener]),
        Listeners::Several(listeners) if listeners.is_empty() => {
            findings.value(
                path,
                "there is no listener in this list: write an address and a port, as in `0.0.0.0:8000`",
            );
            None
        }
        Listeners::Several(listeners) => {
            let mut meant: Vec<ListenerSettings> = Vec::new();
            for (index, listener) in listeners.iter().enumerate() {
                let path = path.index(index);
                let Some(listener) = one(listener, api, &path, findings) else { continue };
                let taken = |other: &ListenerSettings| {
                    other.address == listener.address && listener.address.port() != 0
                };
                if meant.iter().any(taken) {
                    findings.value(&path, format!("`{}` is listened on already", listener.address));
                }
                meant.push(listener);
            }
            (meant.len() == listeners.len()).then_some(meant)
        }
    }
}

/// Reports an error of a listener, by its index.
pub(super) fn refuse(
    written: &Listeners,
    place: usize,
    reason: &str,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let (listener, path) = match written {
        Listeners::One(listener) => (Some(&**listener), path.clone()),
        Listeners::Several(listeners) => (listeners.get(place), path.index(place)),
    };
    match listener {
        Some(Listener::Table(ListenerTable { tls: Some(tls), .. })) => {
            // Not shortened, since two file names often differ at the end.
            let [certificate, key] = [&tls.certificate, &tls.key].map(|file| file.escape_debug());
            let message = format!("certificate `{certificate}` and key `{key}`: {reason}");
            findings.value(&path.key("tls"), message);
        }
        _ => findings.value(&path, reason.to_owned()),
    }
}

fn one(
    written: &Listener,
    api: Option<SocketAddr>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<ListenerSettings> {
    match written {
        Listener::Address(text) => {
            let address = address(text, api, path, findings);
            address.map(|address| ListenerSettings { address, tls: None, http2: true })
        }
        Listener::Table(table) => {
            let address = address(&table.address, api, &path.key("address"), findings);
            let tls = match &table.tls {
                None => Some(None),
                Some(tls) => self::tls(tls, &path.key("tls"), findings).map(Some),
            };
            Some(ListenerSettings { address: address?, tls: tls?, http2: table.http2.unwrap_or(true) })
        }
    }
}

fn address(
    text: &str,
    api: Option<SocketAddr>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<SocketAddr> {
    let address = text.parse().ok();
    match address {
        None => findings.value(
            path,
            format!("`{}` is not an address and a port, as in `0.0.0.0:8000` or `[::]:8000`", shown(text)),
        ),
        Some(address) => {
            if let Some(api) = api.filter(|api| collide(*api, address)) {
                findings.value(
                    path,
                    format!("`{address}` is where the HTTP interface listens (`listen.http`, {api}): give one of them another port"),
                );
            }
        }
    }
    address
}

/// Whether only one of two listeners can be opened.
pub(in crate::config) fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let all = one.ip().is_unspecified() || other.ip().is_unspecified();
    let same = one.ip() == other.ip() || all && one.is_ipv4() == other.is_ipv4();
    same && one.port() == other.port() && one.port() != 0
}

fn tls(written: &ListenerTls, path: &Path, findings: &mut Findings<'_>) -> Option<TlsSettings> {
    let certificates =
        pem(&written.certificate, "-----BEGIN CERTIFICATE-----", &path.key("certificate"), findings);
    let key = pem(&written.key, "PRIVATE KEY-----", &path.key("key"), findings);
    Some(TlsSettings { certificates: certificates?, key: key? })
}
