//! Probes every server: whether it can be used, and for what.

use std::sync::Arc;

use tollgate_core::StoreError;
use tollgate_core::store::{Impairment, ImpairmentKind};

use super::{RedisStore, nonsense};
use crate::inspect::{acl_name, consequence_of_eviction, needs, policy_of_info};
use crate::pool::{Invocation, Pool, Way};
use crate::resp::{Reply, write_command};

/// The reply of a server that runs scripts.
const PROBED: &str = "tollgate";
/// The commands that read the eviction policy; the first permitted one is used.
const ASK_EVICTION: [&str; 2] = ["CONFIG GET maxmemory-policy", "INFO memory"];

/// The result of probing one server.
struct Probed {
    /// The error, if the server refused to write.
    refusal: String,
    /// The forbidden commands, among those that the store uses and those that read the eviction policy.
    forbidden: Vec<String>,
    /// Whether this user may not use the keys of counters.
    keys_forbidden: bool,
    mute: Vec<&'static str>,
}

impl RedisStore {
    /// Probes every server. It is an error if none can be used. A partial failure is an impairment.
    pub(super) async fn ping(&self) -> Result<Vec<Impairment>, StoreError> {
        let servers = self.fleet.servers();
        let (mut impairments, mut down, mut first_error) = (Vec::new(), Vec::new(), None);
        for server in &servers {
            match self.ping_at(server).await {
                Ok(found) => {
                    server.standing.probe_answered();
                    impairments.extend(found);
                }
                Err(error) => {
                    server.standing.probe_failed();
                    first_error.get_or_insert(error);
                }
            }
            if server.standing.is_suspended() {
                down.extend(server.address.as_ref().map(ToString::to_string));
            }
        }
        let all_failed = !servers.is_empty() && servers.iter().all(|server| server.standing.is_suspended());
        if servers.is_empty() || first_error.is_some() || self.fleet.unowned() > 0 {
            self.fleet.look_again();
        }
        match first_error {
            Some(error) if self.fleet.is_whole() || all_failed => return Err(error),
            None if servers.is_empty() => {
                let failure = self.fleet.ready().err();
                return Err(failure.map_or_else(nonsense, StoreError::from));
            }
            _ => {}
        }
        if !self.fleet.is_whole() {
            impairments.extend(self.missing_part(&down));
        }
        impairments.sort_by_key(|impairment| impairment.kind);
        Ok(impairments)
    }

    fn missing_part(&self, down: &[String]) -> Option<Impairment> {
        let mut parts = Vec::new();
        if !down.is_empty() {
            parts.push(format!("these nodes of the Cluster cannot be used: {}", down.join(", ")));
        }
        if self.fleet.unowned() > 0 {
            parts.push("some slots of the Cluster have no node".to_owned());
        }
        let detail = parts.join("; ");
        (!detail.is_empty()).then_some(Impairment { kind: ImpairmentKind::PartUnavailable, detail })
    }

    async fn ping_at(&self, server: &Arc<Pool>) -> Result<Vec<Impairment>, StoreError> {
        server.ready()?;
        let Some(key) = self.fleet.key_at(server, |number| self.names.probe(number)) else {
            return Ok(Vec::new());
        };
        let mut needed = needs(&self.settings.topology);
        needed.push(format!("GET {}", self.names.plain("~probe", "")));
        let lines = needed.iter().map(String::as_str).chain(ASK_EVICTION);
        let words: Vec<&[u8]> = lines.map(str::as_bytes).collect();
        let keys = [key];
        let invocation = Invocation::Script(&self.scripts.probe, [&keys, &[]], &words);
        let reply = server.run(Way::Direct, invocation, self.deadline()).await?;
        let probed = match &reply {
            // The slot has just moved; the node itself works.
            Reply::Error(error) if error.starts_with("MOVED") || error.starts_with("ASK") => {
                self.fleet.look_again();
                return Ok(Vec::new());
            }
            Reply::Error(error) => return Err(self.refused(error, &[])),
            reply => read_probe(reply, &needed).ok_or_else(nonsense)?,
        };
        if probed.keys_forbidden {
            let reason = format!("the user may not use the keys {}:*", self.settings.prefix);
            return Err(StoreError::Refused { reason });
        }
        self.judge(server, probed).await
    }

    /// Converts a probe's reply to impairments.
    async fn judge(&self, server: &Arc<Pool>, probed: Probed) -> Result<Vec<Impairment>, StoreError> {
        let at = |words: String| match &server.address {
            Some(address) => format!("{address}: {words}"),
            None => words,
        };
        let mut found = Vec::new();
        match self.refused(&probed.refusal, &[]) {
            _ if probed.refusal.is_empty() => {}
            StoreError::OutOfMemory { .. } => {
                let detail = at("raise `maxmemory`, or delete what else is kept there".to_owned());
                found.push(Impairment { kind: ImpairmentKind::Full, detail });
            }
            StoreError::Forbidden { .. } => {}
            error => return Err(error),
        }
        if !probed.forbidden.is_empty() {
            let user = self.settings.user.as_deref().unwrap_or("default");
            let grants: Vec<String> = probed.forbidden.iter().map(|name| format!("+{name}")).collect();
            let names = probed.forbidden.join(", ");
            let words =
                format!("user {user} may not run {names}; grant it: ACL SETUSER {user} {}", grants.join(" "));
            found.push(Impairment { kind: ImpairmentKind::Forbidden, detail: at(words) });
        }
        if let Some(policy) = self.eviction_at(server, &probed).await?
            && let Some((consequence, remedy)) = consequence_of_eviction(&policy)
        {
            let detail = at(format!("{policy} {consequence}; {remedy}"));
            found.push(Impairment { kind: ImpairmentKind::Evicting, detail });
        }
        Ok(found)
    }

    /// The server's `maxmemory-policy`, if this user may read it.
    async fn eviction_at(&self, server: &Arc<Pool>, probed: &Probed) -> Result<Option<String>, StoreError> {
        let Some(line) = ASK_EVICTION.iter().find(|line| !probed.mute.contains(line)) else {
            return Ok(None);
        };
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut command = Vec::new();
        write_command(&mut command, &words);
        let reply =
            server.run(Way::Direct, Invocation::Command(&command), self.background_deadline()).await?;
        Ok(match &reply {
            Reply::List(pair) => pair.get(1).and_then(Reply::text).map(ToOwned::to_owned),
            reply => reply.text().and_then(policy_of_info),
        })
    }
}

/// Reads the greeting, the refusal to write, and the numbers of forbidden commands.
fn read_probe(reply: &Reply, needed: &[String]) -> Option<Probed> {
    let [greeting, refusal, numbers @ ..] = reply.list()? else { return None };
    if greeting.text() != Some(PROBED) {
        return None;
    }
    let refusal = refusal.text()?.to_owned();
    let mut probed = Probed { refusal, forbidden: Vec::new(), keys_forbidden: false, mute: Vec::new() };
    for number in numbers {
        let index = usize::try_from(number.number()?).ok()?.checked_sub(1)?;
        match needed.get(index) {
            // The last command reads a counter; an earlier one shows whether `GET` itself is permitted.
            Some(_) if index + 1 == needed.len() => {
                probed.keys_forbidden = !probed.forbidden.iter().any(|name| name == "get");
            }
            Some(line) => {
                let name = acl_name(line);
                if !probed.forbidden.contains(&name) {
                    probed.forbidden.push(name);
                }
            }
            None => probed.mute.extend(ASK_EVICTION.get(index - needed.len())),
        }
    }
    Some(probed)
}
