//! The servers that requests are forwarded to.

use std::num::NonZeroU32;

use http::HeaderValue;
use tollgate_gateway::settings::{Address, HostHeader, Protocol, UpstreamSettings, UpstreamTls};

use super::raw::{Upstream, UpstreamTable};
use super::{pem, time};
use crate::config::identity;
use crate::config::problem::{Findings, shown};
use crate::config::raw::Named;
use crate::config::rules::check_name;
use crate::config::tree::Path;

pub(super) fn mean(
    written: &Named<Upstream>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Vec<UpstreamSettings>> {
    if written.0.is_empty() {
        findings.value(path, "there is no upstream: name one, as in `{ shop: 127.0.0.1:9000 }`");
        return None;
    }
    let mut upstreams = Vec::new();
    for (name, upstream) in &written.0 {
        let path = path.key(name);
        if let Err(message) = check_name(name) {
            findings.key(&path, message);
        }
        upstreams.extend(one(name, upstream, &path, findings));
    }
    (upstreams.len() == written.0.len()).then_some(upstreams)
}

fn one(name: &str, written: &Upstream, path: &Path, findings: &mut Findings<'_>) -> Option<UpstreamSettings> {
    match written {
        Upstream::Address(text) => {
            address(text, path, findings).map(|address| UpstreamSettings::new(name, vec![address]))
        }
        Upstream::Addresses(texts) => {
            addresses(texts, path, findings).map(|addresses| UpstreamSettings::new(name, addresses))
        }
        Upstream::Table(table) => {
            let addresses = addresses(&table.addresses, &path.key("addresses"), findings);
            let mut upstream = UpstreamSettings::new(name, addresses.unwrap_or_default());
            fill(&mut upstream, table, path, findings);
            (!upstream.addresses.is_empty()).then_some(upstream)
        }
    }
}

fn addresses(texts: &[String], path: &Path, findings: &mut Findings<'_>) -> Option<Vec<Address>> {
    if texts.is_empty() {
        findings.value(path, "there is no address in this list: write one, as in `127.0.0.1:9000`");
        return None;
    }
    let found =
        texts.iter().enumerate().filter_map(|(index, text)| address(text, &path.index(index), findings));
    let found: Vec<Address> = found.collect();
    (found.len() == texts.len()).then_some(found)
}

fn address(text: &str, path: &Path, findings: &mut Findings<'_>) -> Option<Address> {
    // Users write what they would type into a browser.
    let scheme = ["http://", "https://"].into_iter().find(|scheme| text.starts_with(scheme));
    if let Some(scheme) = scheme {
        let rest = text[scheme.len()..].trim_end_matches('/');
        let tls = if scheme == "https://" { ", and `tls: {}` beside the `addresses`" } else { "" };
        findings.value(path, format!("write only the host and the port: `{}`{tls}", shown(rest)));
        return None;
    }
    match text.parse() {
        Ok(address) => Some(address),
        Err(error) => {
            findings.value(path, format!("{error}"));
            None
        }
    }
}

fn fill(upstream: &mut UpstreamSettings, table: &UpstreamTable, path: &Path, findings: &mut Findings<'_>) {
    for (name, written, setting) in [
        ("connect_timeout", &table.connect_timeout, &mut upstream.connect_timeout),
        ("response_timeout", &table.response_timeout, &mut upstream.response_timeout),
        ("stall_timeout", &table.stall_timeout, &mut upstream.stall_timeout),
        ("idle_timeout", &table.idle_timeout, &mut upstream.idle_timeout),
        ("out_for", &table.out_for, &mut upstream.health.out_for),
    ] {
        time(written.as_deref(), &path.key(name), findings, setting);
    }
    if let Some(tls) = &table.tls {
        let authorities = tls
            .ca
            .as_ref()
            .and_then(|file| pem(file, "-----BEGIN CERTIFICATE-----", &path.key("tls").key("ca"), findings));
        let pair = [("certificate", &tls.certificate), ("key", &tls.key)];
        let identity = identity::mean(pair, &path.key("tls"), findings);
        upstream.tls = Some(UpstreamTls { authorities, server_name: tls.server_name.clone(), identity });
    }
    if table.http2.unwrap_or(false) {
        upstream.protocol = Protocol::Http2;
    }
    upstream.retry = table.retry.unwrap_or(upstream.retry);
    match table.host.as_deref() {
        None | Some("client") => {}
        Some("address") => upstream.host = HostHeader::Address,
        Some(name) => match HeaderValue::from_str(name) {
            Ok(value) if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()) => {
                upstream.host = HostHeader::Fixed(value);
            }
            _ => findings.value(&path.key("host"), format!("`{}` is not a host", shown(name))),
        },
    }
    match table.most_idle {
        None => {}
        Some(count @ 0..=65_536) => upstream.most_idle = usize::try_from(count).unwrap_or(0),
        Some(count) => {
            findings
                .value(&path.key("most_idle"), format!("`{count}` is too much: write a number up to 65536"));
        }
    }
    match table.fails.map(|count| u32::try_from(count).ok().and_then(NonZeroU32::new)) {
        None => {}
        Some(Some(count)) => upstream.health.fails = count,
        Some(None) => findings.value(&path.key("fails"), "write a number of failures from 1 on"),
    }
}
