//! One counter while a transaction has it: loaded, settled in this process, and what has to be written of
//! it then.
//!
//! A log is not loaded whole. It is handed to the core as its oldest entries, as many as settling needs,
//! and one entry for all others, which is as old as the newest of them: what a limit says depends on
//! nothing else. Many holds are handed over as those that an attempt names, and two that stand for the rest.

mod edit;
pub(crate) mod holds;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tollgate_core::limit::{Entry, Hold, Limit, Log, State};
use tollgate_core::{Plan, StoreError, Ticket, Timestamp};

pub(crate) use edit::CounterEdit;

use crate::codec::{self, Garbled, Small, moment_of, natural};
use crate::fault::damaged;
use crate::name::Name;

/// The row of a counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Header {
    pub(crate) limits: String,
    pub(crate) states: Vec<u8>,
    pub(crate) born: Vec<i64>,
    pub(crate) used: Vec<i64>,
    pub(crate) seq: i64,
    pub(crate) holds: i64,
    pub(crate) held: i64,
    pub(crate) oldest: i64,
    pub(crate) newest: i64,
    /// When the newest entry was taken.
    pub(crate) last_at: Option<i64>,
}

/// One entry of a log, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRow {
    pub(crate) seq: i64,
    pub(crate) entry: Entry,
}

/// What was read of a counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) header: Option<Header>,
    /// Of each sliding limit of the header, the oldest entries that count.
    pub(crate) logs: Vec<Vec<LogRow>>,
    /// The entry of the ticket that is given back.
    pub(crate) own: Option<LogRow>,
    pub(crate) holds: BTreeMap<String, Hold>,
    /// Whether these are all holds.
    pub(crate) all_holds: bool,
}

/// A counter while a transaction has it.
pub(crate) struct Counter {
    pub(crate) name: Name,
    loaded: Loaded,
    /// What the states stand under; `None` as long as the counter is new.
    plan: Option<Arc<Plan>>,
    states: Vec<State>,
    /// Of each sliding limit, which rows its log is made of.
    tracks: Vec<Option<Track>>,
    seq: i64,
    added: Vec<LogRow>,
    /// Entries that lie after this moment were made by a clock that went back.
    clamp: Option<Timestamp>,
    /// What became of the entry of the ticket that is given back: what is left of it.
    own_left: Option<u64>,
    forgotten: bool,
}

/// The rows that a log's entries come from, in order.
#[derive(Clone, Debug, Default)]
struct Track {
    places: VecDeque<Place>,
    /// The first row that may count, where no row is known to.
    born: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Row(i64),
    /// All rows between those before and those after it.
    Rest,
}

impl Header {
    /// The limits that the counter was written under.
    pub(crate) fn plan(&self, rule: &Arc<str>) -> Result<Plan, Garbled> {
        let limits: Result<Vec<Limit>, _> =
            self.limits.split(", ").filter(|text| !text.is_empty()).map(str::parse).collect();
        Plan::new(Arc::clone(rule), limits.map_err(|_| Garbled)?).map_err(|_| Garbled)
    }
}

/// The text of a plan's limits, as it is kept.
pub(crate) fn heading(plan: &Plan) -> String {
    let texts: Vec<&str> = plan.written().map(|(_, text)| text).collect();
    texts.join(", ")
}

impl Counter {
    /// A counter as it was read.
    pub(crate) fn new(name: Name, loaded: Loaded) -> Result<Self, StoreError> {
        let mut counter = Self {
            name,
            plan: None,
            states: Vec::new(),
            tracks: Vec::new(),
            seq: loaded.header.as_ref().map_or(0, |header| header.seq),
            loaded,
            added: Vec::new(),
            clamp: None,
            own_left: None,
            forgotten: false,
        };
        let read = counter.read();
        read.map_err(|Garbled| damaged(&format!("{}:{}", counter.name.rule, counter.name.key)))?;
        Ok(counter)
    }

    /// Makes states of what was loaded.
    fn read(&mut self) -> Result<(), Garbled> {
        let Some(header) = &self.loaded.header else { return Ok(()) };
        let plan = header.plan(&self.name.rule.as_str().into())?;
        let mut log = 0;
        for (small, limit) in codec::decode(&header.states, &plan)?.into_iter().zip(plan.limits()) {
            let mut track = limit.sliding().map(|_| Track::default());
            let state = match (small, &mut track) {
                (Small::State(state), _) => state,
                (Small::Rows, Some(track)) => self.read_log(header, log, track)?,
                (Small::Rows, None) => self.read_holds(header)?,
            };
            if let Some(track) = &mut track {
                track.born = *header.born.get(log).ok_or(Garbled)?;
                log += 1;
            }
            self.states.push(state);
            self.tracks.push(track);
        }
        self.plan = Some(Arc::new(plan));
        Ok(())
    }

    fn read_log(&self, header: &Header, index: usize, track: &mut Track) -> Result<State, Garbled> {
        let (born, used) = header.born.get(index).zip(header.used.get(index)).ok_or(Garbled)?;
        let used = natural(*used)?;
        let mut rows = self.loaded.logs.get(index).cloned().unwrap_or_default();
        if let Some(own) = self.loaded.own
            && own.seq >= *born
            && rows.last().is_none_or(|last| last.seq < own.seq)
        {
            rows.push(own);
        }
        let known: u64 = rows.iter().map(|row| row.entry.cost).sum();
        let rest = used.checked_sub(known).ok_or(Garbled)?;
        track.places = rows.iter().map(|row| Place::Row(row.seq)).collect();
        let mut entries: Vec<Entry> = rows.into_iter().map(|row| row.entry).collect();
        if rest > 0 {
            let at = moment_of(header.last_at.ok_or(Garbled)?)?;
            entries.push(Entry { at, ticket: Ticket(0), cost: rest });
            track.places.push_back(Place::Rest);
        }
        let log: Log = entries.into_iter().collect();
        Ok(if track.places.is_empty() { State::Fresh } else { State::Log(Box::new(log)) })
    }

    /// Carries the states over to these limits, if they stand under others.
    pub(crate) fn stand_under(&mut self, plan: &Arc<Plan>, now: Timestamp) {
        let tracked = |limit: &Limit| limit.sliding().is_some();
        let fresh = Track { places: VecDeque::new(), born: self.seq };
        match self.plan.take() {
            None => {
                self.states = vec![State::Fresh; plan.limits().len()];
                self.tracks =
                    plan.limits().iter().map(|limit| tracked(limit).then(|| fresh.clone())).collect();
            }
            Some(old) if old.limits() == plan.limits() => {}
            Some(old) => {
                self.states = plan.adopt(&old, std::mem::take(&mut self.states), now);
                let mut tracks = std::mem::take(&mut self.tracks);
                let same = |limit: &Limit| {
                    old.limits().iter().position(|other| other.identity() == limit.identity())
                };
                self.tracks = plan
                    .limits()
                    .iter()
                    .map(|limit| {
                        let kept = same(limit).and_then(|index| tracks[index].take());
                        tracked(limit).then(|| kept.unwrap_or_else(|| fresh.clone()))
                    })
                    .collect();
            }
        }
        self.plan = Some(Arc::clone(plan));
    }

    /// Takes the states out to be settled.
    pub(crate) fn states(&mut self) -> Vec<State> {
        std::mem::take(&mut self.states)
    }

    /// Puts the states back after an attempt was settled, with the entry that it added.
    pub(crate) fn settled(&mut self, states: Vec<State>, taken: Option<Entry>, now: Timestamp) {
        let mut adds = false;
        for (track, state) in self.tracks.iter_mut().zip(&states) {
            let Some(track) = track else { continue };
            let length = log_of(state).map_or(0, |log| log.entries().len());
            let gone = (track.places.len() + usize::from(taken.is_some())).saturating_sub(length);
            for _ in 0..gone {
                if let Some(Place::Row(seq)) = track.places.pop_front() {
                    track.born = seq + 1;
                }
            }
            if taken.is_some() {
                track.places.push_back(Place::Row(self.seq));
                adds = true;
            }
        }
        self.states = states;
        let last_at = self.loaded.header.as_ref().and_then(|header| header.last_at);
        if last_at.is_some_and(|at| at > codec::column(now.as_micros())) {
            self.clamp = Some(now);
        }
        if let Some(entry) = taken.filter(|_| adds) {
            self.added.push(LogRow { seq: self.seq, entry });
            self.seq += 1;
        }
    }

    /// Puts the states back after something was given back.
    pub(crate) fn given_back(&mut self, states: Vec<State>) {
        if let Some(own) = self.loaded.own {
            for (track, state) in self.tracks.iter_mut().zip(&states) {
                let Some(track) = track else { continue };
                let Some(index) = track.places.iter().position(|place| *place == Place::Row(own.seq)) else {
                    continue;
                };
                let log = log_of(state);
                let entry = log.and_then(|log| log.entries().nth(index));
                let left = entry.filter(|entry| entry.ticket == own.entry.ticket).map_or(0, |it| it.cost);
                if left == 0 {
                    track.places.remove(index);
                }
                self.own_left = Some(left);
            }
        }
        self.states = states;
    }

    /// Puts the states back as they are.
    pub(crate) fn put_back(&mut self, states: Vec<State>) {
        self.states = states;
    }

    /// Forgets everything about the counter.
    pub(crate) fn forget(&mut self) {
        self.forgotten = true;
    }
}

fn log_of(state: &State) -> Option<&Log> {
    if let State::Log(log) = state { Some(log) } else { None }
}
