//! Denials that repeat an earlier one.
//!
//! Whoever floods a service is told nearly the same each time: all that changes is the id, and the time
//! to wait. So a door that writes refusals as text keeps the last one with what it was about, and of the
//! next that is about the same it writes only what has changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use tollgate_core::{Decision, Line, Origin, Plan, Reading, Rule, Span, Verdict};
use tollgate_engine::Engine;

use super::headers::whole_secs;
use super::{Answers, Lines};
use crate::correlation::{Correlation, Id};
use crate::json::Json;

/// An answer as text, and what it is about if it is a refusal that may be said again.
#[derive(Clone, Debug, Default)]
pub struct Written {
    lines: Vec<u8>,
    body: Vec<u8>,
    /// Whom the last refusal named, and where what it went by is: what comes once is not looked through.
    last: String,
    last_places: [usize; 3],
    about: Option<Box<About>>,
}

/// What a refusal is about, beside the last key. Rules, limits and names are kept, so that what is at the
/// same place is the same.
#[derive(Clone, Debug)]
struct About {
    answers: u64,
    policy: Arc<str>,
    rule: Arc<Rule>,
    plan: Arc<Plan>,
    /// The place of the limit that binds.
    limit: usize,
    remaining: u64,
    times: Times,
    spots: Spots,
}

/// What a refusal says of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    secs: u64,
    millis: u64,
    reset: Option<u64>,
}

/// Where what changes stands: in the lines, and in the body.
#[derive(Clone, Copy, Debug)]
struct Spots {
    line_id: usize,
    line_secs: usize,
    line_reset: Option<usize>,
    id: usize,
    secs: [usize; 3],
    millis: usize,
}

impl Written {
    /// An answer of these header lines, as [`Lines`] has them, and this body.
    pub fn new(lines: Vec<u8>, body: Vec<u8>) -> Self {
        Self { lines, body, ..Self::default() }
    }

    /// Its header lines, as [`Lines`] has them.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Its body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// How much memory it takes.
    pub fn capacity(&self) -> usize {
        self.lines.capacity() + self.body.capacity() + self.last.capacity()
    }

    /// Adds a header line, which ends as lines do.
    pub fn add_line(&mut self, line: &[u8]) {
        self.about = None;
        self.lines.extend_from_slice(line);
    }
}

/// The number of the next [`Answers`].
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Answers {
    /// As [`Answers::refuse`], as text.
    pub fn refuse_once(
        &self,
        engine: &Engine,
        decision: &Decision<'_>,
        correlation: &Correlation,
    ) -> (StatusCode, Written) {
        let mut written = Written::default();
        let status = self.refuse_anew(engine, decision, correlation, &mut written);
        (status, written)
    }

    /// As [`Answers::refuse`], over what was written before.
    pub fn refuse_again(
        &self,
        engine: &Engine,
        decision: &Decision<'_>,
        correlation: &Correlation,
        written: &mut Written,
    ) -> StatusCode {
        let plain = self.repeats() && correlation.given.is_none();
        let Some((line, wait)) = Some(decision).filter(|_| plain).and_then(repeatable) else {
            return self.refuse_anew(engine, decision, correlation, written);
        };
        if !written.comes_again(decision, &line) {
            return self.refuse_anew(engine, decision, correlation, written);
        }
        let id = correlation.id_of(decision);
        if written.say_again(self, decision, &line, wait, &id) {
            return StatusCode::TOO_MANY_REQUESTS;
        }
        let settled = Correlation { given: Some(id.clone().into()) };
        let status = self.refuse_anew(engine, decision, &settled, written);
        written.about = About::of(self, decision, &line, wait, &id, written).map(Box::new);
        status
    }

    fn refuse_anew(
        &self,
        engine: &Engine,
        decision: &Decision<'_>,
        correlation: &Correlation,
        written: &mut Written,
    ) -> StatusCode {
        written.about = None;
        let mut lines = Lines(std::mem::take(&mut written.lines));
        let mut body = Json::after(std::mem::take(&mut written.body));
        lines.0.clear();
        body.bytes().clear();
        let status = self.refuse(engine, decision, correlation, &mut lines, &mut body);
        (written.lines, written.body) = (lines.0, body.into_bytes());
        status
    }

    /// Whether all that changes from one refusal to the next of the same kind stands where it is known:
    /// not where somebody else chose the words.
    fn repeats(&self) -> bool {
        self.body.is_none() && self.detail.is_none() && !self.headers.ietf
    }
}

/// The rule that is named, and the wait, of a denial that says nothing but these.
#[inline]
fn repeatable<'d>(decision: &'d Decision<'_>) -> Option<(Line<'d>, Span)> {
    if decision.verdict != Verdict::Deny || decision.origin != Origin::Store {
        return None;
    }
    // Another rule that determines the time is named too.
    let wait = decision.wait().filter(|_| decision.retry_by().is_none())?;
    // Secrets are not kept.
    decision.denied_by().filter(|line| !line.rule.secret).map(|line| (line, wait))
}

impl Times {
    fn of(wait: Span, reading: Reading) -> Self {
        let reset = reading.reset.map(|reset| reset.as_secs_ceil());
        Self { secs: whole_secs(wait), millis: wait.as_millis_ceil().max(1), reset }
    }

    /// Whether others take the same room.
    fn fit(self, other: Self) -> bool {
        let reset = match (self.reset, other.reset) {
            (None, None) => true,
            (Some(one), Some(other)) => as_long(one, other),
            _ => false,
        };
        reset && as_long(self.secs, other.secs) && as_long(self.millis, other.millis)
    }
}

/// Whether two numbers have as many digits.
fn as_long(one: u64, other: u64) -> bool {
    one == other || one.max(1).ilog10() == other.max(1).ilog10()
}

impl Written {
    /// Whether the last refusal was of the same key by the same rule; takes note of this one. Those who
    /// take turns cost no more than if nothing was kept.
    fn comes_again(&mut self, decision: &Decision<'_>, line: &Line<'_>) -> bool {
        let places = [
            std::ptr::from_ref(&*decision.policy().name).addr(),
            std::ptr::from_ref(line.rule).addr(),
            Arc::as_ptr(line.plan).addr(),
        ];
        let again = self.last_places == places && self.last == line.key;
        if !again {
            self.last_places = places;
            self.last.clear();
            self.last.push_str(line.key);
        }
        again
    }

    /// Says the same as before, but for the id and the times; if that is what is to be said.
    fn say_again(
        &mut self,
        answers: &Answers,
        decision: &Decision<'_>,
        line: &Line<'_>,
        wait: Span,
        id: &Id,
    ) -> bool {
        let Some(about) = &mut self.about else { return false };
        let Some((limit, reading)) = decision.binding() else { return false };
        let same = about.answers == answers.number
            && Arc::ptr_eq(&about.policy, &decision.policy().name)
            && std::ptr::eq(&*about.rule, line.rule)
            && Arc::ptr_eq(&about.plan, line.plan)
            && line.limits.get(about.limit).is_some_and(|own| std::ptr::eq(own, limit))
            && about.remaining == reading.remaining;
        let times = Times::of(wait, reading);
        if !same || !about.times.fit(times) {
            return false;
        }
        let (spots, before) = (about.spots, std::mem::replace(&mut about.times, times));
        put(&mut self.lines, spots.line_id, id.as_str().as_bytes());
        put(&mut self.body, spots.id, id.as_str().as_bytes());
        if times != before {
            self.tell(times, spots);
        }
        true
    }

    /// Writes other times.
    fn tell(&mut self, times: Times, spots: Spots) {
        let mut digits = itoa::Buffer::new();
        let secs = digits.format(times.secs).as_bytes();
        put(&mut self.lines, spots.line_secs, secs);
        spots.secs.iter().for_each(|spot| put(&mut self.body, *spot, secs));
        put(&mut self.body, spots.millis, digits.format(times.millis).as_bytes());
        if let (Some(reset), Some(spot)) = (times.reset, spots.line_reset) {
            put(&mut self.lines, spot, digits.format(reset).as_bytes());
        }
    }
}

fn put(bytes: &mut [u8], at: usize, text: &[u8]) {
    bytes[at..at + text.len()].copy_from_slice(text);
}

impl About {
    /// What was just written, if all that changes is found in it.
    fn of(
        answers: &Answers,
        decision: &Decision<'_>,
        line: &Line<'_>,
        wait: Span,
        id: &Id,
        written: &Written,
    ) -> Option<Self> {
        let (limit, reading) = decision.binding()?;
        let times = Times::of(wait, reading);
        Some(Self {
            answers: answers.number,
            policy: Arc::clone(&decision.policy().name),
            rule: Arc::clone(decision.named_rule()?),
            plan: Arc::clone(line.plan),
            limit: line.limits.iter().position(|own| std::ptr::eq(own, limit))?,
            remaining: reading.remaining,
            times,
            spots: Spots::find(written, times, id)?,
        })
    }
}

impl Spots {
    /// Looks for what changes. Line breaks are in no value of a line, and quotes that are not escaped in no
    /// text of the body, so nothing that a client says is taken for it.
    fn find(written: &Written, times: Times, id: &Id) -> Option<Self> {
        let (lines, body) = (&*written.lines, &*written.body);
        let (secs, id) = (times.secs.to_string(), id.as_str());
        let line_reset = match (times.reset, after(lines, "\nx-ratelimit-reset: ")) {
            (Some(reset), Some(at)) => Some(is_at(lines, at, &reset.to_string())?),
            _ => None,
        };
        let detail_end = body.windows(ID.len()).position(|window| window == ID.as_bytes())?;
        let detail_secs = detail_end.checked_sub(" s".len() + secs.len())?;
        let member = |name: &str, text: &str| is_at(body, after(body, name)?, text);
        Some(Self {
            line_id: is_at(lines, after(lines, "\nx-correlation-id: ")?, id)?,
            line_secs: is_at(lines, after(lines, "\nretry-after: ")?, &secs)?,
            line_reset,
            id: is_at(body, detail_end + ID.len(), id)?,
            secs: [
                is_at(body, detail_secs, &secs)?,
                member(r#","retry_after":"#, &secs)?,
                member(r#","retryAfter":"#, &secs)?,
            ],
            millis: member(r#","retry_after_ms":"#, &times.millis.to_string())?,
        })
    }
}

/// What stands between the detail and the id.
const ID: &str = r#"","correlationId":""#;

/// Where what follows this begins.
fn after(bytes: &[u8], text: &str) -> Option<usize> {
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes())?;
    Some(at + text.len())
}

/// This place, if this is there.
fn is_at(bytes: &[u8], at: usize, text: &str) -> Option<usize> {
    (bytes.get(at..at + text.len())? == text.as_bytes()).then_some(at)
}
