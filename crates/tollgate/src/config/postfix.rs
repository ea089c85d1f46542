//! The Postfix policy service: where it listens, and which policy decides which requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_postfix::{FIELDS, PolicyAddress, PolicySettings};

use super::gateway::collide;
use super::problem::{Findings, shown};
use super::raw;
use super::relay::{RelayKnown, size};
use super::stage::{Stage, policy_at};
use super::tree::Path;

/// The checked `postfix` section and its listener.
#[derive(Clone, Debug)]
pub struct PostfixConfig {
    /// Where Postfix connects.
    pub address: PolicyAddress,
    /// Which policy decides what.
    pub settings: PolicySettings,
}

/// More connections than a Postfix with its default of 100 processes opens.
const CONNECTIONS: usize = 1_000;
const MOST_CONNECTIONS: u64 = 100_000;
const MOST_CHOICES: usize = 100;
const STAGE: Stage = Stage { what: "request of Postfix", fields: &FIELDS };

/// Converts and checks the section and `listen.postfix`.
pub(super) fn mean(
    written: Option<&raw::postfix::Postfix>,
    listen: Option<&raw::Listen>,
    known: RelayKnown<'_>,
    findings: &mut Findings<'_>,
) -> Option<PostfixConfig> {
    let listener = listen.and_then(|listen| listen.postfix.as_deref());
    let address = listener.and_then(|text| address(text, known, findings));
    let (Some(written), Some(_)) = (written, listener) else {
        if written.is_some() {
            let message =
                "Postfix cannot connect: add its listener, as in `listen: { postfix: 127.0.0.1:10031 }`";
            findings.key(&Path::of(&["postfix"]), message);
        } else if listener.is_some() {
            let message =
                "no policy decides requests of Postfix: add one, as in `postfix: { policy: mail.accept }`";
            findings.value(&Path::of(&["listen", "postfix"]), message);
        }
        return None;
    };
    let path = Path::of(&["postfix"]);
    let settings = settings(written, known, &path, findings);
    Some(PostfixConfig { address: address?, settings: settings? })
}

fn settings(
    written: &raw::postfix::Postfix,
    known: RelayKnown<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<PolicySettings> {
    let default = policy(&written.policy, &path.key("policy"), known, findings);
    let (mut contexts, mut ports) = (BTreeMap::new(), BTreeMap::new());
    let path_of = |setting: &str, name: &str| path.key(setting).key(name);
    for (setting, named) in [("contexts", &written.contexts), ("ports", &written.ports)] {
        if named.as_ref().is_some_and(|named| named.0.len() > MOST_CHOICES) {
            findings
                .value(&path.key(setting), format!("there are too many: at most {MOST_CHOICES} are allowed"));
            return None;
        }
    }
    for (context, name) in written.contexts.iter().flat_map(|named| &named.0) {
        let path = path_of("contexts", context);
        if context.is_empty() {
            findings.key(&path, "a context is not empty: requests without one are decided by `policy`");
        }
        contexts.extend(policy(name, &path, known, findings).map(|policy| (context.clone(), policy)));
    }
    for (port, name) in written.ports.iter().flat_map(|named| &named.0) {
        let path = path_of("ports", port);
        let number = port.parse().ok().filter(|number: &u16| *number > 0);
        if number.is_none() {
            findings.key(&path, format!("`{}` is not a port, as in `587`", shown(port)));
        }
        ports.extend(number.zip(policy(name, &path, known, findings)));
    }
    let most =
        size::between(written.max_connections, (1, MOST_CONNECTIONS), &path.key("max_connections"), findings);
    let max_connections = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(CONNECTIONS);
    Some(PolicySettings { policy: default?, contexts, ports, max_connections })
}

/// The name of a policy that exists, and whose fields requests have.
fn policy(name: &str, path: &Path, known: RelayKnown<'_>, findings: &mut Findings<'_>) -> Option<Arc<str>> {
    let policy = policy_at(name, STAGE, (known.policies, known.written_policies), path, findings)?;
    if policy.holds() {
        let message = format!(
            "policy `{name}` has a limit `at once`, which never applies here: Postfix does not report when a message ends"
        );
        findings.warn(path, &message, "limit a rate instead, as in `100/hour`");
    }
    Some(Arc::clone(&policy.name))
}

fn address(text: &str, known: RelayKnown<'_>, findings: &mut Findings<'_>) -> Option<PolicyAddress> {
    let path = Path::of(&["listen", "postfix"]);
    let address = match PolicyAddress::parse(text) {
        Ok(address) => address,
        Err(message) => {
            findings.value(&path, format!("`{}` {message}", shown(text)));
            return None;
        }
    };
    if let PolicyAddress::Tcp(address) = address {
        if let Some((_, who)) = known.taken.iter().find(|(other, _)| collide(*other, address)) {
            let message = format!("`{address}` is where {who} listens: give one of them another port");
            findings.value(&path, message);
        }
        if !address.ip().to_canonical().is_loopback() {
            let message = format!(
                "`{address}` can be reached from other machines, and the protocol has no passwords: any of them can use up the limits of any sender"
            );
            let remedy = "listen on `127.0.0.1` or a Unix socket, or let a firewall admit your Postfix alone";
            findings.warn(&path, &message, remedy);
        }
    }
    Some(address)
}
