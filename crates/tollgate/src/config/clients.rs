//! How the gateway and forward-auth identify clients.

mod tokens;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;
use tollgate_core::Policy;
use tollgate_web::address::{TrustedProxies, X_FORWARDED_FOR};
use tollgate_web::facts::{Aliases, Reach};
use tollgate_web::identity::{ApiKey, ApiKeys, Credentials, X_API_KEY};

use super::keys::{TokenPlace, token};
use super::problem::{Findings, shown};
use super::raw::clients as raw;
use super::raw::gateway::Texts;
use super::rules::check_name;
use super::tree::Path;

/// How clients are identified.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The proxies that may state a client's address; by default none.
    pub proxies: TrustedProxies,
    /// Aliases of fields.
    pub aliases: Aliases,
    /// Their credentials.
    pub credentials: Arc<Credentials>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { proxies: TrustedProxies::none(), aliases: Aliases::default(), credentials: Arc::default() }
    }
}

pub(super) fn mean(
    written: &raw::Clients,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Clients {
    let path = Path::of(&["clients"]);
    let api_keys = written
        .api_keys
        .as_ref()
        .and_then(|keys| api_keys(keys, &path.key("api_keys"), environment, findings));
    let tokens = written
        .tokens
        .as_ref()
        .and_then(|tokens| tokens::mean(tokens, &path.key("tokens"), environment, findings));
    Clients {
        proxies: proxies(written, &path, findings),
        aliases: aliases(written, &path.key("fields"), findings),
        credentials: Arc::new(Credentials::new(api_keys, tokens)),
    }
}

impl Clients {
    /// Reports fields of a policy that no request can have, at the place where the policy is named.
    pub(super) fn check(&self, policy: &Policy, path: &Path, findings: &mut Findings<'_>) {
        if let Err(unknown) = self.aliases.check(policy, Reach::Head) {
            findings.value(path, format!("{unknown}, or name it under `clients.fields`"));
        }
    }
}

fn proxies(written: &raw::Clients, path: &Path, findings: &mut Findings<'_>) -> TrustedProxies {
    let header = match &written.address_header {
        None => X_FORWARDED_FOR,
        Some(name) => header(name, &path.key("address_header"), findings).unwrap_or(X_FORWARDED_FOR),
    };
    let Some(texts) = &written.trusted_proxies else {
        if written.address_header.is_some() {
            let message = "this header is used only with `trusted_proxies`: add them, as in `[10.0.0.0/8]`";
            findings.key(&path.key("address_header"), message);
        }
        return TrustedProxies::none();
    };
    let path = path.key("trusted_proxies");
    let several = matches!(texts, Texts::Several(_));
    let mut nets = Vec::new();
    for (index, text) in texts.as_slice().iter().enumerate() {
        match network(text) {
            Ok(net) => nets.push(net),
            Err(message) if several => findings.value(&path.index(index), message),
            Err(message) => findings.value(&path, message),
        }
    }
    for family in covered(&nets) {
        let message = format!(
            "these networks are every {family} address, so any client can choose the address that it is counted by"
        );
        findings.warn(&path, &message, "name only the networks of your proxies, as in `10.0.0.0/8`");
    }
    TrustedProxies::new(nets, header)
}

/// The address families that these networks cover completely.
pub(super) fn covered(nets: &[IpNet]) -> Vec<&'static str> {
    let mapped: IpNet = "::ffff:0:0/96".parse().expect("the IPv4 addresses within IPv6");
    let whole = IpNet::aggregate(&nets.to_vec());
    let (v4, v6): (Vec<IpNet>, Vec<IpNet>) = whole.into_iter().partition(|net| matches!(net, IpNet::V4(_)));
    let all_of_v6 = v6.iter().any(|net| net.prefix_len() == 0);
    let all_of_v4 = v4.iter().any(|net| net.prefix_len() == 0) || v6.contains(&mapped);
    [(all_of_v4, "IPv4"), (all_of_v6, "IPv6")]
        .into_iter()
        .filter_map(|(all, name)| all.then_some(name))
        .collect()
}

/// A network or a single address. Set bits after the prefix are an error.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    let net: IpNet = text.parse().map_err(|_| {
        format!("`{}` is not an address or a network, as in `10.0.0.1` or `10.0.0.0/8`", shown(text))
    })?;
    if net.trunc() != net {
        return Err(format!(
            "`{net}` names a machine inside of a network: write `{}` or `{}`",
            net.trunc(),
            net.addr()
        ));
    }
    Ok(net)
}

fn header(name: &str, path: &Path, findings: &mut Findings<'_>) -> Option<HeaderName> {
    let header = HeaderName::from_bytes(name.as_bytes()).ok();
    if header.is_none() {
        findings.value(path, format!("`{}` cannot name a header", shown(name)));
    }
    header
}

fn aliases(written: &raw::Clients, path: &Path, findings: &mut Findings<'_>) -> Aliases {
    let pairs = written.fields.iter().flat_map(|named| &named.0);
    match Aliases::new(pairs.map(|(alias, source)| (alias.as_str(), source.as_str()))) {
        Ok(aliases) => aliases,
        Err(error) => {
            findings.value(path, error.to_string());
            Aliases::default()
        }
    }
}

fn api_keys(
    written: &raw::ApiKeys,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<ApiKeys> {
    let header = match &written.header {
        None => Some(X_API_KEY),
        Some(name) => header(name, &path.key("header"), findings),
    };
    let mut keys = Vec::new();
    for (index, key) in written.keys.iter().enumerate() {
        let path = path.key("keys").index(index);
        if let Err(message) = check_name(&key.name) {
            findings.value(&path.key("name"), message);
        }
        if key.consumer.as_ref().is_some_and(|consumer| consumer.is_empty() || consumer.len() > 256) {
            findings.value(&path.key("consumer"), "a consumer is called by 1 to 256 bytes");
        }
        let place = TokenPlace {
            env: key.token_env.as_deref(),
            file: key.token_file.as_deref(),
            sha256: key.token_sha256.as_deref(),
        };
        if let Some((_, hash)) = token(&place, &path, environment, findings) {
            let consumer = key.consumer.as_deref().map(Arc::from);
            keys.push(ApiKey { name: key.name.as_str().into(), consumer, hash: hash.bytes() });
        }
    }
    match ApiKeys::new(header?, keys) {
        Ok(keys) => Some(keys),
        Err(error) => {
            let [one, other] = error.names;
            findings.value(
                &path.key("keys"),
                format!("`{one}` and `{other}` are the same key: give each its own"),
            );
            None
        }
    }
}
