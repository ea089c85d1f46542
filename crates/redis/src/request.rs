//! Encodes the charges of one attempt for a script.

use smallvec::SmallVec;
use tollgate_core::limit::Ladder;
use tollgate_core::{Charge, Charges, Fate, Limit, Span, Timestamp, When};

use crate::name::{Names, Unnamed, beside};
use crate::pack;
use crate::resp::{write_header, write_word};
use crate::row::{Adoption, heading, width};
use crate::script::Script;

/// The operation that a script performs on the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Peek = 0,
    Take = 1,
    Refund = 2,
    Retract = 3,
    /// As `Refund`, if it is known which charges were forgotten since.
    RefundKnown = 4,
    /// As `Take`, for a part of the charges, when not all of their ids are already held.
    TakePart = 5,
    /// Undoes a `TakePart`, because another part was refused.
    Undo = 6,
}

/// The times of a call, by the server's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    /// When the caller stops waiting for the reply; 0 if unknown.
    pub(crate) deadline: u64,
    /// The time to use instead of the server's; 0 for the server's.
    pub(crate) time: u64,
    /// The time for which keys are kept longer than necessary, in milliseconds.
    pub(crate) slack: u64,
}

/// The charges of one attempt, or those of them that share a slot.
pub(crate) struct Request<'r, 'c> {
    pub(crate) charges: &'r Charges<'c>,
    /// The indices of these charges in the attempt.
    pub(crate) chosen: Vec<usize>,
    list: SmallVec<[&'r Charge<'c>; 6]>,
    /// The main key of each charge, followed by those of logs and holds.
    pub(crate) keys: Vec<String>,
    /// Further keys, which a script reads at the end.
    pub(crate) last: Vec<String>,
    /// For each charge, whether its rule was not forgotten since the charge was taken; `None` if that was not
    /// checked.
    pub(crate) known: Option<Vec<bool>>,
    /// The text of each charge's limits.
    headings: Vec<String>,
    logs: bool,
}

/// The operation of a script, with its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) mode: Mode,
    /// When the charges to refund were taken.
    pub(crate) moment: Timestamp,
    /// The time for which the refund is remembered.
    pub(crate) spent_for: Span,
}

impl Ask {
    /// A request without further arguments.
    pub(crate) fn to(mode: Mode) -> Self {
        Self { mode, moment: Timestamp::ZERO, spent_for: Span::ZERO }
    }
}

impl<'r, 'c> Request<'r, 'c> {
    /// A request about these charges of an attempt.
    pub(crate) fn new(charges: &'r Charges<'c>, chosen: Vec<usize>, names: &Names) -> Result<Self, Unnamed> {
        let (keys, last, headings) = (Vec::new(), Vec::new(), Vec::new());
        let list = chosen.iter().filter_map(|index| charges.iter().nth(*index)).collect();
        let mut request = Self { charges, chosen, list, keys, last, known: None, headings, logs: false };
        for charge in request.chosen() {
            let (name, heading) = (names.counter(charge.plan, charges.key(charge))?, heading(charge.plan));
            request.keys.push(name);
            request.headings.push(heading);
        }
        for (index, charge) in request.chosen().enumerate() {
            for limit in charge.plan.limits() {
                if let Some(key) = beside(&request.keys[index], limit) {
                    request.logs = true;
                    request.keys.push(key);
                }
            }
        }
        Ok(request)
    }

    /// The charges of the request.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = &'r Charge<'c>> + use<'r, 'c> {
        self.list.clone().into_iter()
    }

    /// Whether a limit keeps a log or holds.
    pub(crate) fn has_logs(&self) -> bool {
        self.logs
    }

    /// The heading and the bucket, if the request is for a single bucket.
    pub(crate) fn lone_bucket(&self) -> Option<(&str, Vec<u8>)> {
        let [charge] = &*self.list else { return None };
        let [limit] = charge.plan.limits() else { return None };
        let bucket = limit.bucket()?;
        if !charge.enforced || charge.cost == 0 {
            return None;
        }
        let (numerator, denominator) = bucket.token();
        let numbers = [numerator, denominator, bucket.empty(), bucket.fills_in().as_micros(), bucket.burst()];
        Some((&self.headings[0], packed(&numbers)))
    }

    /// Encodes the request.
    pub(crate) fn body(&self, ask: Ask, timing: Timing) -> Vec<u8> {
        let charges = self.charges;
        let mut values = Vec::with_capacity(256);
        let mut count = 9;
        for number in
            [u64::from(charges.takes()), ask.mode as u64, timing.deadline, timing.time, timing.slack]
        {
            pack::number(&mut values, number);
        }
        pack::bytes(&mut values, charges.ticket.to_string().as_bytes());
        match charges.id {
            _ if matches!(ask.mode, Mode::Refund | Mode::RefundKnown) => {
                let millis = ask.spent_for.as_micros().div_ceil(1_000) + 1 + timing.slack;
                pack::number(&mut values, millis);
            }
            Some(id) => pack::bytes(&mut values, id.as_bytes()),
            None => pack::no(&mut values),
        }
        pack::number(&mut values, ask.moment.as_micros());
        pack::number(&mut values, self.chosen.len() as u64);
        let mut key = self.chosen.len() as u64;
        for (index, (charge, heading)) in self.chosen().zip(&self.headings).enumerate() {
            let mut limits = Vec::with_capacity(64);
            let mut length = 7;
            let mut wide = 0;
            for limit in charge.plan.limits() {
                length += write_limit(&mut limits, limit, charges, &mut key);
                wide += width(limit);
            }
            pack::number(&mut values, length as u64);
            pack::bytes(&mut values, heading.as_bytes());
            pack::bytes(&mut values, &b"LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL"[..wide]);
            pack::bytes(&mut values, itoa::Buffer::new().format(heading.len()).as_bytes());
            pack::number(&mut values, self.flag(index, charge, ask.mode));
            pack::number(&mut values, charge.cost);
            pack::number(&mut values, back(charge));
            values.extend_from_slice(&limits);
            count += length;
        }
        let mut body = Vec::with_capacity(values.len() + 5);
        pack::list(&mut body, count);
        body.extend_from_slice(&values);
        body
    }

    /// Encodes the converted counters of charges that were kept under other limits. Keys that are no longer
    /// needed are added to the request's.
    pub(crate) fn adoptions(&mut self, adoptions: &[(usize, Vec<u8>, Adoption)]) -> Vec<u8> {
        let mut out = Vec::new();
        pack::list(&mut out, adoptions.len());
        let charges: Vec<_> = self.chosen().collect();
        for (index, found, adoption) in adoptions {
            let now: Vec<_> = charges[*index].plan.limits().iter().map(Limit::identity).collect();
            let gone = adoption.old.limits().iter().filter(|limit| !now.contains(&limit.identity()));
            let gone: Vec<_> = gone.filter_map(|limit| beside(&self.keys[*index], limit)).collect();
            pack::map(&mut out, 7);
            pack::bytes(&mut out, b"charge");
            pack::number(&mut out, *index as u64 + 1);
            for (name, value) in [(&b"old"[..], found), (b"new", &adoption.kept)] {
                pack::bytes(&mut out, name);
                pack::bytes(&mut out, value);
            }
            pack::bytes(&mut out, b"lease");
            pack::number(&mut out, adoption.lease);
            let (row, key) = self.place_of_holds(*index);
            pack::bytes(&mut out, b"row");
            pack::number(&mut out, row as u64);
            pack::bytes(&mut out, b"key");
            pack::number(&mut out, key as u64);
            pack::bytes(&mut out, b"gone");
            pack::list(&mut out, gone.len());
            for key in gone {
                self.keys.push(key);
                pack::number(&mut out, self.keys.len() as u64);
            }
        }
        out
    }
}

impl Request<'_, '_> {
    /// Whether a charge is enforced; for a refund, what happens to it.
    fn flag(&self, index: usize, charge: &Charge<'_>, mode: Mode) -> u64 {
        let known = self.known.as_ref().is_none_or(|known| known[index]);
        match (mode, charge.fate) {
            (Mode::Refund | Mode::RefundKnown, _) if !known => 0,
            (Mode::Refund | Mode::RefundKnown, Fate::Back | Fate::Part(_)) => 1,
            (Mode::Refund | Mode::RefundKnown, Fate::Clear) => 2,
            (Mode::Refund | Mode::RefundKnown, Fate::Keep) => 3,
            _ => u64::from(charge.enforced),
        }
    }

    /// The index of a charge's holds in its row, and of their key; both from 1. 0 if it has none.
    fn place_of_holds(&self, index: usize) -> (usize, usize) {
        let mut key = self.chosen.len();
        for (position, charge) in self.chosen().enumerate() {
            let mut row = 1;
            for limit in charge.plan.limits() {
                key += usize::from(beside("", limit).is_some());
                if position == index && limit.holds() {
                    return (row, key);
                }
                row += width(limit);
            }
        }
        (0, 0)
    }
}

/// The amount that a refund returns of a charge.
fn back(charge: &Charge<'_>) -> u64 {
    match charge.fate {
        Fate::Part(part) => part.min(charge.cost),
        Fate::Back | Fate::Clear | Fate::Keep => charge.cost,
    }
}

/// Appends a limit: its kind and the values of that kind. Returns the number of values.
fn write_limit(out: &mut Vec<u8>, limit: &Limit, charges: &Charges<'_>, key: &mut u64) -> usize {
    let mut next_key = || {
        *key += 1;
        *key
    };
    let mut put = |numbers: &[u64]| {
        numbers.iter().for_each(|number| pack::number(out, *number));
        numbers.len()
    };
    match limit {
        Limit::Window(limit) => put(&[1, limit.max(), limit.period().as_micros()]),
        Limit::Bucket(limit) => {
            let (numerator, denominator) = limit.token();
            put(&[2, numerator, denominator, limit.empty(), limit.fills_in().as_micros(), limit.burst()])
        }
        Limit::Calendar(limit) => {
            let page = charges.calendar.iter().find(|page| page.period == *limit.period());
            // Without a page no time is covered, and the script answers that it is stale.
            let edges = page.map_or([0; 3], |page| page.edges.map(Timestamp::as_micros));
            put(&[3, limit.max(), edges[0], edges[1], edges[2]])
        }
        Limit::Total(limit) => put(&[4, limit.max()]),
        Limit::PerAttempt(limit) => {
            let amount = charges.amount(limit.field());
            put(&[5, u64::from(limit.when_amount_is(amount) == When::Now)])
        }
        Limit::Sliding(limit) => put(&[6, limit.max(), limit.period().as_micros(), next_key()]),
        Limit::Slotted(limit) => {
            put(&[7, limit.max(), limit.period().as_micros(), limit.slot().as_micros(), next_key()])
        }
        Limit::InFlight(limit) => {
            put(&[8, limit.max(), limit.lease().map_or(0, |lease| lease.as_micros()), next_key()])
        }
        Limit::Ladder(limit) => {
            pack::number(out, 9);
            pack::bytes(out, pauses(limit).as_bytes());
            let numbers =
                [limit.forget().as_micros(), next_key(), limit.at_once(), limit.most_entries() as u64];
            numbers.iter().for_each(|number| pack::number(out, *number));
            2 + numbers.len()
        }
    }
}

/// The steps of a ladder for a script: failures and microseconds of pause in turn.
fn pauses(ladder: &Ladder) -> String {
    let texts = ladder.steps().iter().map(|step| format!("{} {}", step.from, step.pause.span().as_micros()));
    texts.collect::<Vec<_>>().join(" ")
}

/// Numbers in the form that a script unpacks.
pub(crate) fn packed(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Encodes a call of a script, by its hash or in full.
pub(crate) fn run_command(script: &Script, known: Known, keys: [&[String]; 2], words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let count = keys[0].len() + keys[1].len();
    write_header(&mut out, b'*', 3 + count + words.len());
    match known {
        Known::Yes => {
            write_word(&mut out, b"EVALSHA");
            write_word(&mut out, script.name.as_bytes());
        }
        Known::No => {
            write_word(&mut out, b"EVAL");
            write_word(&mut out, script.source.as_bytes());
        }
    }
    write_word(&mut out, count.to_string().as_bytes());
    keys.iter().copied().flatten().for_each(|key| write_word(&mut out, key.as_bytes()));
    words.iter().for_each(|word| write_word(&mut out, word));
    out
}

/// Whether the server is expected to know a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Yes,
    No,
}
