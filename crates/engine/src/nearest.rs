//! The keys nearest to their limits, in bounded memory, as of their latest decisions.
//!
//! A decision is considered only if it leaves less than a fifth of a limit, and only a bounded number is
//! considered each second. So an ordinary decision pays for a comparison, and a flood costs next to nothing.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tollgate_core::{Decision, Line, Plan, Reading, Rule, Span, Timestamp};

use crate::log_limiter::LogLimiter;
use crate::ranking::Pair;

/// The keys nearest to their limits.
pub struct Nearest {
    table: Mutex<Table>,
    limiter: LogLimiter,
}

/// A key and how much of its tightest limit is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// The rule.
    pub rule: String,
    /// The key, as operators may see it.
    pub key: String,
    /// The limit, as text.
    pub limit: String,
    /// The used units after the key's latest decision.
    pub used: u64,
    /// The most units that can be used.
    pub capacity: u64,
    /// When it is unused again; `None` if that needs a release or a reset.
    pub reset: Option<Timestamp>,
    /// When the decision was made.
    pub at: Timestamp,
}

/// By rule and key, as operators may see it.
type Table = HashMap<(Box<str>, Box<str>), NearEntry>;

struct NearEntry {
    plan: Arc<Plan>,
    /// The index of the limit in the plan.
    limit: usize,
    reading: Reading,
    at: Timestamp,
}

/// The most keys.
const MOST: usize = 1_024;
/// A key is near if less than one in this many is left.
const NEAR: u64 = 5;

impl Default for Nearest {
    fn default() -> Self {
        Self { table: Mutex::default(), limiter: LogLimiter::new(Span::from_micros(500), 200) }
    }
}

impl Nearest {
    /// Whether a decision leaves so little of a limit that its key is to be noted. If two threads meet, one
    /// decision is left out: the next one of the key comes soon.
    #[inline]
    pub(crate) fn wants(&self, decision: &Decision<'_>) -> bool {
        decision.outcome.readings.iter().any(is_near) && self.limiter.admits(decision.outcome.now)
    }

    /// Notes the keys of a decision that are near their limits.
    #[cold]
    pub(crate) fn note<'k>(
        &self,
        decision: &'k Decision<'_>,
        shown: impl Fn(&Rule, &'k str) -> Cow<'k, str>,
    ) {
        let Some(mut table) = self.table.try_lock() else { return };
        let now = decision.outcome.now;
        for line in decision.lines().filter(|line| !line.rule.observes()) {
            let Some((limit, reading)) = tightest(&line) else { continue };
            let entry = NearEntry { plan: Arc::clone(line.plan), limit, reading, at: now };
            let key = shown(line.rule, line.key);
            if let Some(known) = table.get_mut(&Pair(&line.rule.name, &key)) {
                *known = entry;
                continue;
            }
            if table.len() >= MOST {
                make_room(&mut table, now);
            }
            table.insert(((&*line.rule.name).into(), (&*key).into()), entry);
        }
    }

    /// The keys nearest to their limits, nearest first.
    pub fn top(&self, most: usize, now: Timestamp) -> Vec<Near> {
        let table = self.table.lock();
        let lasting = table.iter().filter(|(_, entry)| entry.lasts(now));
        let near = |((rule, key), entry): (&(Box<str>, Box<str>), &NearEntry)| Near {
            rule: rule.to_string(),
            key: key.to_string(),
            limit: entry
                .plan
                .written()
                .nth(entry.limit)
                .map_or_else(String::new, |(_, text)| text.to_owned()),
            used: entry.reading.capacity - entry.reading.remaining,
            capacity: entry.reading.capacity,
            reset: entry.reading.reset,
            at: entry.at,
        };
        let mut all: Vec<Near> = lasting.map(near).collect();
        drop(table);
        all.sort_by(Near::order);
        all.truncate(most);
        all
    }

    /// Forgets a key, as operators see it, whose counts or limits have changed; or all keys of a rule, or all.
    pub fn forget(&self, rule: Option<&str>, key: Option<&str>) {
        let mut table = self.table.lock();
        table.retain(|(own, own_key), _| {
            rule.is_some_and(|rule| *rule != **own) || key.is_some_and(|key| *key != **own_key)
        });
    }
}

impl NearEntry {
    /// Whether the limit is still used. Holds without a time may last for ever.
    fn lasts(&self, now: Timestamp) -> bool {
        self.reading.reset.is_none_or(|reset| reset > now)
    }

    fn share(&self) -> f64 {
        share(self.reading)
    }
}

fn share(reading: Reading) -> f64 {
    // The difference of whole numbers is exact, that of ratios is not.
    reading.capacity.saturating_sub(reading.remaining) as f64 / reading.capacity.max(1) as f64
}

#[inline]
fn is_near(reading: &Reading) -> bool {
    reading.remaining.saturating_mul(NEAR) < reading.capacity
}

/// The limit of which the largest share is used, if that is enough to be noted.
fn tightest(line: &Line<'_>) -> Option<(usize, Reading)> {
    let readings = line.limits.iter().zip(line.readings).enumerate();
    let near = readings.filter(|(_, (limit, reading))| limit.consumes() && is_near(reading));
    let tightest = near.max_by(|(_, (_, one)), (_, (_, other))| share(**one).total_cmp(&share(**other)));
    tightest.map(|(index, (_, reading))| (index, *reading))
}

/// Drops the entries that have been reset since, or else the quarter with the most units left.
fn make_room(table: &mut Table, now: Timestamp) {
    table.retain(|_, entry| entry.lasts(now));
    if table.len() <= MOST / 4 * 3 {
        return;
    }
    let mut shares: Vec<f64> = table.values().map(NearEntry::share).collect();
    let (_, cut, _) = shares.select_nth_unstable_by(MOST / 4, f64::total_cmp);
    let cut = *cut;
    let mut room = MOST / 2;
    table.retain(|_, entry| {
        let keep = entry.share() > cut || (entry.share() == cut && room > 0);
        room = room.saturating_sub(usize::from(keep && entry.share() == cut));
        keep
    });
}

impl Near {
    /// The used share, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.used as f64 / self.capacity.max(1) as f64
    }

    /// Nearest first, and of equals the latest first.
    pub fn order(a: &Self, b: &Self) -> Ordering {
        b.share()
            .total_cmp(&a.share())
            .then(b.at.cmp(&a.at))
            .then_with(|| (&a.rule, &a.key).cmp(&(&b.rule, &b.key)))
    }
}
