//! The reports of nodes: their totals, and the keys at the top of their rankings.
//!
//! Each node that shares its store writes one small record every few seconds, which expires soon after the
//! node has ended. The other nodes do not follow these records: they are read when an operator asks.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Span, StoreError, Timestamp};

use crate::binary::{Writer, byte, list, number, text};
use crate::counters::Counters;
use crate::followed::RecordStore;
use crate::meter::Labels;
use crate::named_records::NamedRecords;
use crate::nearest::Near;
use crate::observer::Observer;
use crate::ranking::Ranked;
use crate::ticket;

/// This node's own reporting, and its access to the reports of the others.
pub struct Nodes {
    id: String,
    name: Arc<str>,
    pulse: Mutex<Pulse>,
    others: NamedRecords,
    records: Arc<RecordStore>,
    counters: Arc<Counters>,
    observer: Arc<Observer>,
}

/// The totals at the last report, and how fast they grew before it.
#[derive(Default)]
struct Pulse {
    at: Timestamp,
    totals: HashMap<Labels, (u64, f64)>,
}

/// The report of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The node's own id: another one after a restart.
    pub id: String,
    /// The node's name.
    pub name: Arc<str>,
    /// When it reported, by the store's clock.
    pub at: Timestamp,
    /// The number of each outcome since the node started.
    pub totals: Vec<Total>,
    /// The keys refused most often.
    pub offenders: Vec<Ranked>,
    /// The keys that ask most often, in a sample.
    pub busiest: Vec<Ranked>,
    /// The keys that observed rules would have denied most often.
    pub observed: Vec<Ranked>,
    /// The keys nearest to their limits.
    pub nearest: Vec<Near>,
}

/// The number of one outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    /// The policy.
    pub policy: Arc<str>,
    /// The rule that decided; may be empty.
    pub rule: Arc<str>,
    /// The outcome.
    pub outcome: Arc<str>,
    /// The number since the node started.
    pub count: u64,
    /// The number a second in the last few seconds before the report.
    pub per_second: f64,
}

/// The interval of reports.
const EVERY: Span = Span::from_secs(5);
/// A report is valid for this long after it was written.
const LASTS: Span = Span::from_secs(15);
/// The format of reports. A node skips reports in another one.
const FORMAT: u8 = 1;
/// The longest report, in bytes. What does not fit is left out, from the end of each list.
const MOST_BYTES: usize = 16 * 1024;
/// The most totals of a report. The others are added up under [`OTHER`].
const MOST_TOTALS: usize = 64;
/// The most keys of each ranking in a report.
const MOST_RANKED: usize = 50;
/// Takes the place of the policies and rules whose totals are added up. No name contains parentheses.
const OTHER: &str = "(other)";

impl Pulse {
    /// The totals with their rates, measured at the last report.
    fn totals(&self, counts: Vec<(Labels, u64)>) -> Vec<Total> {
        let total = |(labels, count): (Labels, u64)| {
            let per_second = self.totals.get(&labels).map_or(0.0, |(_, rate)| *rate);
            let [policy, rule, outcome] = labels;
            Total { policy, rule, outcome, count, per_second }
        };
        counts.into_iter().map(total).collect()
    }

    /// Measures how fast the totals grow, if it is time for the next report. Returns whether it was.
    fn measure(&mut self, now: Timestamp, counts: impl FnOnce() -> Vec<(Labels, u64)>) -> bool {
        let passed = now.since(self.at);
        // A clock that went back starts the measurement again.
        if passed < EVERY && now >= self.at {
            return false;
        }
        let seconds = passed.as_micros() as f64 / 1e6;
        let first = self.at == Timestamp::ZERO || seconds <= 0.0;
        let grown = |labels: &Labels, count: u64| {
            let before = self.totals.get(labels).map_or(0, |(before, _)| *before);
            if first { 0.0 } else { count.saturating_sub(before) as f64 / seconds }
        };
        let counts = counts().into_iter().filter(|(_, count)| *count > 0);
        let totals = counts.map(|(labels, count)| (labels.clone(), (count, grown(&labels, count))));
        let totals = totals.collect();
        *self = Self { at: now, totals };
        true
    }
}

impl Nodes {
    pub(crate) fn new(records: Arc<RecordStore>, counters: Arc<Counters>, observer: Arc<Observer>) -> Self {
        let id = ticket::next().to_string();
        let (pulse, others) = (Mutex::default(), NamedRecords::new(Namespace::Nodes));
        Self { name: id.as_str().into(), id, pulse, others, records, counters, observer }
    }

    /// Sets the name of this node, which the other nodes show.
    pub fn set_name(&mut self, name: &str) {
        self.name = name.into();
    }

    /// The report of this node, as of now, with up to `most` keys of each ranking.
    pub fn report(&self, most: usize) -> NodeReport {
        let (at, observer) = (self.counters.time(), &self.observer);
        NodeReport {
            id: self.id.clone(),
            name: Arc::clone(&self.name),
            at,
            totals: self.pulse.lock().totals(observer.meters.counts()),
            offenders: observer.offenders.top(most),
            busiest: observer.busiest.top(most),
            observed: observer.observed.top(most),
            nearest: observer.nearest.top(most, at),
        }
    }

    /// The reports of all nodes that share the store, this one first. Only this node's own has more than a
    /// few keys of each ranking.
    pub async fn reports(&self, most: usize) -> Result<Vec<NodeReport>, StoreError> {
        let mut reports = vec![self.report(most)];
        if self.counters.are_shared() {
            self.records.refresh(&self.others).await?;
            let others = self.others.all().into_iter().filter(|(id, _)| *id != self.id);
            reports.extend(others.filter_map(|(id, record)| NodeReport::read(id, &record)));
            reports[1..].sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        }
        Ok(reports)
    }

    /// Measures the totals, and reports to the other nodes if there may be any.
    pub(crate) async fn report_if_due(&self) {
        let measured = self.pulse.lock().measure(self.counters.time(), || self.observer.meters.counts());
        let Some(shared) = self.counters.shared.as_ref().filter(|_| measured) else { return };
        // A store that has just failed is only probed.
        if shared.gate.is_strained() {
            return;
        }
        let report = self.report(MOST_RANKED);
        let edit = Edit::put(&*report.id, report.write()).until(Some(report.at + LASTS));
        // The call itself records a failure of the store; the next report comes soon.
        let _ = self.records.write(Namespace::Nodes, &[edit]).await;
    }
}

impl NodeReport {
    /// The recorded form.
    fn write(&self) -> Vec<u8> {
        let mut record = Writer::new(&[FORMAT], MOST_BYTES);
        record.text(&self.name);
        record.number(self.at.as_micros());
        record.list(&bounded(&self.totals), |record, total| {
            for label in [&total.policy, &total.rule, &total.outcome] {
                record.text(label);
            }
            record.number(total.count);
            record.number((total.per_second * 1e3) as u64);
        });
        for ranking in [&self.offenders, &self.busiest, &self.observed] {
            record.list(ranking, |record, ranked| {
                record.text(&ranked.rule);
                record.text(&ranked.key);
                record.number(ranked.count);
                record.number(ranked.last.as_micros());
            });
        }
        record.list(&self.nearest, |record, near| {
            for text in [&near.rule, &near.key, &near.limit] {
                record.text(text);
            }
            let reset = near.reset.map_or(0, Timestamp::as_micros);
            for number in [near.used, near.capacity, reset, near.at.as_micros()] {
                record.number(number);
            }
        });
        record.bytes
    }

    /// Reads a record; `None` if it has another format.
    fn read(id: String, record: &[u8]) -> Option<Self> {
        let body = &mut &*record;
        if byte(body)? != FORMAT {
            return None;
        }
        let (name, at) = (text(body)?.into(), Timestamp::from_micros(number(body)?));
        let totals = list(body, |body| {
            let [policy, rule, outcome] = [text(body)?, text(body)?, text(body)?].map(Into::into);
            let (count, per_second) = (number(body)?, number(body)? as f64 / 1e3);
            Some(Total { policy, rule, outcome, count, per_second })
        })?;
        let ranked = |body: &mut &[u8]| {
            let (rule, key) = (text(body)?, text(body)?);
            let (count, last) = (number(body)?, Timestamp::from_micros(number(body)?));
            Some(Ranked { rule, key, count, last })
        };
        let (offenders, busiest, observed) = (list(body, ranked)?, list(body, ranked)?, list(body, ranked)?);
        let nearest = list(body, |body| {
            let (rule, key, limit) = (text(body)?, text(body)?, text(body)?);
            let (used, capacity) = (number(body)?, number(body)?);
            let reset = Some(number(body)?).filter(|micros| *micros > 0).map(Timestamp::from_micros);
            let at = Timestamp::from_micros(number(body)?);
            Some(Near { rule, key, limit, used, capacity, reset, at })
        })?;
        Some(Self { id, name, at, totals, offenders, busiest, observed, nearest })
    }
}

/// The largest totals, with the others added up.
fn bounded(totals: &[Total]) -> Vec<Total> {
    let mut totals: Vec<Total> = totals.iter().filter(|total| total.count > 0).cloned().collect();
    totals.sort_by_key(|total| std::cmp::Reverse(total.count));
    let rest = totals.split_off(totals.len().min(MOST_TOTALS));
    let largest = totals.len();
    for Total { outcome, count, per_second, .. } in rest {
        match totals[largest..].iter_mut().find(|total| total.outcome == outcome) {
            Some(total) => {
                total.count += count;
                total.per_second += per_second;
            }
            None => {
                let (policy, rule) = (OTHER.into(), OTHER.into());
                totals.push(Total { policy, rule, outcome, count, per_second });
            }
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(keys: usize, long: usize) -> NodeReport {
        let at = Timestamp::from_micros(1_000_000);
        let ranked = |n: usize| Ranked {
            rule: "ip".into(),
            key: format!("{n}{}", "x".repeat(long)),
            count: n as u64,
            last: at,
        };
        let near = |n: usize| Near {
            rule: "ip".into(),
            key: n.to_string(),
            limit: "9/s".into(),
            used: n as u64,
            capacity: 9,
            reset: (n > 0).then_some(at),
            at,
        };
        let total = |n: usize| Total {
            policy: format!("p{n}").into(),
            rule: "".into(),
            outcome: "allow".into(),
            count: n as u64 + 1,
            per_second: 0.5,
        };
        NodeReport {
            id: "one".into(),
            name: "shop-1".into(),
            at,
            totals: (0..keys).map(total).collect(),
            offenders: (0..keys).map(ranked).collect(),
            busiest: (0..keys).map(ranked).collect(),
            observed: (0..keys).map(ranked).collect(),
            nearest: (0..keys).map(near).collect(),
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_stays_small() {
        let small = report(3, 0);
        let read = NodeReport::read("one".into(), &small.write()).unwrap();
        assert_eq!((read.offenders, read.busiest), (small.offenders, small.busiest));
        assert_eq!((read.observed, read.nearest), (small.observed, small.nearest));
        assert_eq!((read.name, read.totals.len()), (small.name, 3));
        let large = report(1_000, 8_000).write();
        assert!(large.len() < MOST_BYTES + 16, "{} bytes", large.len());
        let read = NodeReport::read("one".into(), &large).unwrap();
        assert_eq!(read.totals.len(), MOST_TOTALS + 1);
        assert_eq!(read.totals.iter().map(|total| total.count).sum::<u64>(), 500_500, "none is left out");
        assert_eq!(&*read.totals[MOST_TOTALS].policy, OTHER);
        for end in 0..large.len() {
            assert_eq!(NodeReport::read("one".into(), &large[..end]), None, "cut after {end} bytes");
        }
        assert_eq!(NodeReport::read("one".into(), &[FORMAT + 1]), None);
    }

    #[test]
    fn rates_are_measured_between_two_reports() {
        let mut nodes = Pulse::default();
        let labels = || ["api".into(), "".into(), "allow".into()];
        let at = |seconds: u64| Timestamp::from_micros(1_000_000_000 + seconds * 1_000_000);
        assert!(nodes.measure(at(0), || vec![(labels(), 100)]));
        assert_eq!(nodes.totals(vec![(labels(), 100)])[0].per_second, 0.0);
        assert!(!nodes.measure(at(4), || panic!("it is too early")));
        assert!(nodes.measure(at(10), || vec![(labels(), 130)]));
        assert_eq!(nodes.totals(vec![(labels(), 131)])[0].per_second, 3.0);
        assert!(nodes.measure(at(2), || vec![(labels(), 140)]), "the clock went back");
    }
}
