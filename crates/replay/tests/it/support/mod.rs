//! Logs in memory, policies in a few words, and everything that a replay reported.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::io::Read;
use std::sync::Arc;

use tollgate_core::{Limit, Policies, Policy, Rule, Span, Timestamp, grammar};
use tollgate_replay::choose::{Choosing, Strictness, Wishes};
use tollgate_replay::feed::{Feed, FeedError, Reading, Refused};
use tollgate_replay::lane::{Fate, Report};
use tollgate_replay::layout::Mapping;
use tollgate_replay::replay::{Outcome, Replay, Setup};
use tollgate_web::Aliases;

/// 2026-11-18T00:00:00Z: the present of every test.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_794_960_000_000_000);

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) fate: Fate,
}

pub(crate) fn reading() -> Reading {
    Reading {
        format: None,
        mappings: Vec::new(),
        taken: None,
        zone: None,
        reorder: Span::from_secs(60),
        now: NOW,
        refused: Refused::Replayed,
    }
}

pub(crate) fn mapped(maps: &[&str]) -> Reading {
    let mappings = maps.iter().map(|map| Mapping::parse(map).unwrap()).collect();
    Reading { mappings, ..reading() }
}

pub(crate) fn limits(texts: &[&str]) -> Vec<Limit> {
    texts.iter().map(|text| grammar::parse(text).unwrap().unwrap()).collect()
}

pub(crate) fn rule(name: &str, by: &[&str], texts: &[&str]) -> Rule {
    Rule::new(name, by, limits(texts)).unwrap()
}

/// One policy, `api`, of these rules.
pub(crate) fn policies(rules: Vec<Rule>) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policy = Policy::new("api".into(), rules.clone(), true);
    Policies::new(true, rules, vec![policy])
}

pub(crate) fn setup(policies: Policies) -> Setup {
    Setup { policies, max_keys: 100_000, choosing: Arc::new(Choosing::Policy("api".into())) }
}

/// The fields that policies need, beside the client and the user.
pub(crate) fn wishes(policies: &Policies) -> Wishes {
    let mut wishes = Wishes::default();
    wishes.add("ip", None);
    wishes.add("user", None);
    wishes.add_policies(
        policies,
        &Choosing::Policy("api".into()),
        Strictness::AllFields,
        &Aliases::default(),
    );
    wishes
}

pub(crate) fn open(logs: &[&[u8]], reading: &Reading, wishes: &Wishes) -> Result<Feed, FeedError> {
    let log = |(number, text): (usize, &&[u8])| {
        let reader: Box<dyn Read> = Box::new(std::io::Cursor::new(text.to_vec()));
        (format!("log{number}"), reader)
    };
    Feed::open(logs.iter().enumerate().map(log).collect(), reading, &wishes.list)
}

/// Replays logs, and returns what became of every attempt.
pub(crate) fn replay(
    policies: &Policies,
    logs: &[&[u8]],
    reading: &Reading,
) -> Result<(Outcome, Vec<Decided>), FeedError> {
    let wishes = wishes(policies);
    let mut feed = open(logs, reading, &wishes)?;
    let run = Replay::new(setup(policies.clone()), &wishes).unwrap();
    let mut decided = Vec::new();
    let outcome = run.run(&mut feed, &mut |report| {
        let Report::Fate(moment, fate) = report else { return };
        let pairs = wishes.list.iter().zip(moment.values);
        let fields = pairs.filter_map(|(wish, value)| Some((wish.field.to_string(), (*value)?.to_owned())));
        let (number, at) = (moment.number, moment.entry.at);
        decided.push(Decided { number, at, fields: fields.collect(), fate: Fate::clone(fate) });
    })?;
    Ok((outcome, decided))
}

impl Decided {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.fate, Fate::Denied(_))
    }
}

/// A line in the combined format, so many seconds after 2026-11-17T00:00:00Z.
pub(crate) fn combined(second: u64, ip: &str, path: &str, status: u16) -> String {
    let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
    format!(
        "{ip} - - [17/Nov/2026:{hours:02}:{minutes:02}:{seconds:02} +0000] \"GET {path} HTTP/1.1\" {status} 512 \"-\" \"Mozilla/5.0\"\n"
    )
}

/// The midnight that [`combined`] counts from.
pub(crate) const MIDNIGHT: u64 = 1_794_873_600_000_000;
