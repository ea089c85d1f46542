//! Runs every script once on keys of its own. A script that runs here runs for attempts too.
//!
//! The keys are named like counters of a rule that no configuration can have. They expire within seconds, and
//! are deleted at the end.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tollgate_core::{Charges, Limit, Plan, Ticket, Timestamp};

use super::facts::ScriptRun;
use super::gather::short;
use super::talk::{Silence, Talk};
use crate::cluster::slot_of;
use crate::name::{Names, spent};
use crate::request::{Ask, Known, Mode, Request, Timing, packed, run_command};
use crate::resp::Reply;
use crate::script::{Script, Scripts};

/// The name of no configured rule has a `~`.
const RULE: &str = "~doctor";

/// The expiry of a probe's hash, in milliseconds.
const LASTS_MILLIS: &[u8] = b"5000";

/// The most names that are tried to find one in a server's slots.
const MOST_NAMES: usize = 1 << 20;

/// The keys of a probe on one server.
pub(super) struct Probe<'n> {
    names: &'n Names,
    scripts: Scripts,
    key: String,
}

/// A script, its keys and its arguments.
struct Run<'s> {
    name: &'static str,
    script: &'s Script,
    keys: [Vec<String>; 2],
    words: Vec<Vec<u8>>,
}

impl<'n> Probe<'n> {
    /// A probe with keys in these slots, or anywhere.
    pub(super) fn new(names: &'n Names, slots: Option<&[RangeInclusive<u16>]>) -> Option<Self> {
        let plan = plan("1/s burst 1");
        let fits = |key: &String| {
            let slot = slot_of(&names.plain(plan.rule(), key));
            slots.is_none_or(|slots| slots.iter().any(|range| range.contains(&slot)))
        };
        let key = (0..MOST_NAMES).map(|_| format!("{:016x}", fastrand::u64(..))).find(fits)?;
        Some(Self { names, scripts: Scripts::default(), key })
    }

    /// A key that the probe does not use otherwise.
    pub(super) fn spare(&self) -> String {
        format!("{}:spare", self.names.plain(plan("1/s").rule(), &self.key))
    }

    /// Runs all scripts and returns the result of each.
    pub(super) async fn run_all(&self, talk: &mut Talk) -> Result<Vec<ScriptRun>, Silence> {
        let scripts = &self.scripts;
        let logs = plan("1/s sliding, 1/s sliding by 100ms, 1 at once for 1s");
        let taking = Ask::to(Mode::Take);
        let own = format!("{}:probe", self.names.plain(plan("1/s").rule(), &self.key));
        let alive =
            Run { name: "probe", script: &scripts.probe, keys: [vec![own], Vec::new()], words: Vec::new() };
        let mut all = vec![
            alive,
            self.lone(),
            self.settle("plain", &scripts.plain, &plan("1/s"), taking, &[]),
            self.settle("full", &scripts.full, &logs, taking, &[]),
        ];
        let (mut runs, mut now) = (Vec::new(), Timestamp::ZERO);
        for run in &all {
            let reply = run.send(talk).await?;
            now = time_of(&reply).unwrap_or(now);
            runs.push(ScriptRun { name: run.name, refusal: refusal(&reply) });
        }
        let refunding = Ask { moment: now, ..Ask::to(Mode::Refund) };
        let rest = [
            self.settle("holds", &scripts.holds, &logs, taking, &[b"list"]),
            self.settle("refund", &scripts.refund, &logs, refunding, &[b"0", RULE.as_bytes()]),
            // The first of these sets an expiry on the hash; the others keep it.
            self.hash("forget", &scripts.forget, &[b"rule", b"0", LASTS_MILLIS]),
            self.hash(
                "change",
                &scripts.change,
                &[b"0", b"10", b"0", b"10", b"0", b"probe", b"*", b"0", b"1"],
            ),
            self.hash("changes", &scripts.changes, &[b"0", b"10", b"-1", b"10", b"1000"]),
            self.hash("page", &scripts.page, &[b"0", b"10", b"1000"]),
        ];
        for run in &rest {
            runs.push(ScriptRun { name: run.name, refusal: refusal(&run.send(talk).await?) });
        }
        all.extend(rest);
        let keys = all.iter().flat_map(|run| run.keys.iter().flatten());
        let words: Vec<&str> = ["DEL"].into_iter().chain(keys.map(String::as_str)).collect();
        // If deleting is not permitted, the keys expire.
        talk.ask(&words).await?;
        Ok(runs)
    }

    /// Takes from a single bucket.
    fn lone(&self) -> Run<'_> {
        let plan = plan("1/s burst 1");
        let mut charges = Charges::new(Ticket(1), 1, None);
        charges.push(&plan, &self.key, true);
        let mut request =
            Request::new(&charges, vec![0], self.names).expect("nothing about a probe is secret");
        let (heading, bucket) = request.lone_bucket().expect("a bucket that is alone");
        let mut numbers = packed(&[1, 0, 0, 0]);
        numbers.extend_from_slice(&bucket);
        let words = vec![heading.as_bytes().to_vec(), numbers];
        request.keys[0].push_str(":lone");
        Run { name: "lone", script: &self.scripts.lone, keys: [request.keys, Vec::new()], words }
    }

    /// Runs a script with one charge.
    fn settle<'s>(
        &'s self,
        name: &'static str,
        script: &'s Script,
        plan: &Arc<Plan>,
        ask: Ask,
        more: &[&[u8]],
    ) -> Run<'s> {
        let mut charges = Charges::new(Ticket(1), 1, Some("probe"));
        charges.push(plan, &self.key, true);
        let mut request =
            Request::new(&charges, vec![0], self.names).expect("nothing about a probe is secret");
        if request.keys.len() == 1 {
            // Another name, since the one with logs would be found with other limits.
            request.keys[0].push_str(":plain");
        }
        if ask.mode == Mode::Refund {
            let counter = &request.keys[0];
            request.last = vec![format!("{counter}:forgotten"), spent(counter, charges.ticket)];
        }
        let mut words = vec![request.body(ask, Timing::default())];
        if !more.is_empty() {
            words.push(Vec::new());
            words.extend(more.iter().map(|word| word.to_vec()));
        }
        Run { name, script, keys: [request.keys, request.last], words }
    }

    /// Runs a script on a hash.
    fn hash<'s>(&'s self, name: &'static str, script: &'s Script, words: &[&[u8]]) -> Run<'s> {
        let key = format!("{}:hash", self.names.plain(plan("1/s").rule(), &self.key));
        let words = words.iter().map(|word| word.to_vec()).collect();
        let ends = format!("{key}:ends");
        Run { name, script, keys: [vec![key, ends], Vec::new()], words }
    }
}

impl Run<'_> {
    /// Runs it as the store does: by its hash, and in full if the server does not know it.
    async fn send(&self, talk: &mut Talk) -> Result<Reply, Silence> {
        let keys = [&self.keys[0][..], &self.keys[1][..]];
        let words: Vec<&[u8]> = self.words.iter().map(Vec::as_slice).collect();
        let reply = talk.send(&run_command(self.script, Known::Yes, keys, &words)).await?;
        match &reply {
            Reply::Error(error) if error.starts_with("NOSCRIPT") => {
                talk.send(&run_command(self.script, Known::No, keys, &words)).await
            }
            _ => Ok(reply),
        }
    }
}

fn plan(limits: &str) -> Arc<Plan> {
    let limits: Vec<Limit> = limits.split(", ").map(|limit| limit.parse().expect("a limit")).collect();
    Arc::new(Plan::new(RULE.into(), limits).expect("limits of different kinds"))
}

/// The time in a script's reply.
fn time_of(reply: &Reply) -> Option<Timestamp> {
    let now = reply.list()?.first()?.number()?;
    u64::try_from(now).ok().map(Timestamp::from_micros)
}

/// The server's error, or that the script ran but did nothing.
fn refusal(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Error(error) => Some(short(error)),
        Reply::List(parts) => {
            let status = parts.get(1).and_then(Reply::number).filter(|status| *status < 0)?;
            Some(format!("it ran and answered {status}"))
        }
        _ => None,
    }
}
