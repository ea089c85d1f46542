//! Where clients connect.

use std::net::SocketAddr;

use tollgate_gateway::settings::{ListenerSettings, TlsSettings};

use super::pem;
use super::raw::{Listener, ListenerTls, Listeners};
use crate::config::problem::{Findings, shown};
use crate::config::tree::Path;

pub(super) fn mean(
    written: &Listeners,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Vec<ListenerSettings>> {
    match written {
        Listeners::One(listener) => one(listener, path, findings).map(|listener| vec![listener]),
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
                let Some(listener) = one(listener, &path, findings) else { continue };
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

fn one(written: &Listener, path: &Path, findings: &mut Findings<'_>) -> Option<ListenerSettings> {
    match written {
        Listener::Address(text) => {
            address(text, path, findings).map(|address| ListenerSettings { address, tls: None, http2: true })
        }
        Listener::Table(table) => {
            let address = address(&table.address, &path.key("address"), findings);
            let tls = match &table.tls {
                None => Some(None),
                Some(tls) => self::tls(tls, &path.key("tls"), findings).map(Some),
            };
            Some(ListenerSettings { address: address?, tls: tls?, http2: table.http2.unwrap_or(true) })
        }
    }
}

fn address(text: &str, path: &Path, findings: &mut Findings<'_>) -> Option<SocketAddr> {
    let address = text.parse().ok();
    if address.is_none() {
        findings.value(
            path,
            format!("`{}` is not an address and a port, as in `0.0.0.0:8000` or `[::]:8000`", shown(text)),
        );
    }
    address
}

fn tls(written: &ListenerTls, path: &Path, findings: &mut Findings<'_>) -> Option<TlsSettings> {
    let certificates =
        pem(&written.certificate, "-----BEGIN CERTIFICATE-----", &path.key("certificate"), findings);
    let key = pem(&written.key, "PRIVATE KEY-----", &path.key("key"), findings);
    Some(TlsSettings { certificates: certificates?, key: key? })
}
