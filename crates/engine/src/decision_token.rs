//! Decisions as sealed texts. A token contains what a decision read, so that an operator can see it later
//! without anything being stored. Clients cannot read a token, nor make one.

use std::borrow::Cow;
use std::sync::Arc;

use tollgate_core::{Decision, Origin, Reading, Reason, Rule, Span, Timestamp, Verdict, When};

use crate::binary::{Writer, byte, list, number, text};
use crate::observer::Observer;
use crate::receipt::{Forged, Home, Kind};

/// The decoded contents of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedDecision {
    /// When it was made, by the store's clock.
    pub at: Timestamp,
    /// The policy that decided.
    pub policy: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The way in which the decision was reached.
    pub origin: Origin,
    /// The id by which the caller knows the attempt.
    pub correlation: String,
    /// The cost of the attempt.
    pub cost: u64,
    /// When to retry, as the caller was told.
    pub retry: When,
    /// The rule that was named.
    pub rule: Option<String>,
    /// The target of the blocklist entry that blocked the attempt.
    pub blocked: Option<String>,
    /// Every rule that applied, as far as they fit.
    pub lines: Vec<DecodedLine>,
    /// Whether all rules fit.
    pub complete: bool,
}

/// One rule's part in a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedLine {
    /// The rule.
    pub rule: String,
    /// The key itself: show it with [`Observer::shown_key_of`].
    pub key: String,
    /// Whether its keys are secret.
    pub secret: bool,
    /// Whether it only observes.
    pub observed: bool,
    /// Each limit as text, with its reading.
    pub limits: Vec<(String, Reading)>,
}

/// The additional contents of denials over HTTP, besides their reasons.
///
/// # Defaults
///
/// No token, and retries within a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialSettings {
    /// The form in which they contain their decisions.
    pub form: DenialForm,
    /// The longest wait after which a client program should retry by itself.
    pub retry_within: Span,
}

/// The form in which a denial contains its decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DenialForm {
    /// No token.
    #[default]
    Plain,
    /// The token.
    Token,
    /// A link with the token between these texts.
    Link {
        /// The start of the link.
        before: String,
        /// The rest of it.
        after: String,
    },
}

/// The format inside of a token.
const FORMAT: u8 = 1;
/// The longest contents of a token, in bytes. As text it is a third longer.
const MOST_BYTES: usize = 2_048;
/// The most bytes of a blocklist entry's target in a token.
const MOST_TARGET: usize = 256;
/// The longest token, in bytes of text.
pub const MOST_TOKEN: usize = 3_072;

const REASONS: [Reason; 8] = [
    Reason::Timeout,
    Reason::Unreachable,
    Reason::Open,
    Reason::Full,
    Reason::Forbidden,
    Reason::Damaged,
    Reason::Busy,
    Reason::Uncounted,
];

impl Default for DenialSettings {
    fn default() -> Self {
        Self { form: DenialForm::default(), retry_within: Span::from_secs(60) }
    }
}

impl Observer {
    /// The token of a decision.
    pub fn decision_token(&self, decision: &Decision<'_>) -> String {
        let body = write(decision);
        let sealed = self.seals.with(Home::Store, |seal| seal.seal_bytes(Kind::Decision, &body));
        // Until the store's secret is known, only this node can open the token.
        sealed
            .or_else(|| self.seals.with(Home::Local, |seal| seal.seal_bytes(Kind::Decision, &body)))
            .unwrap_or_default()
    }

    /// Sets what denials say from now on.
    pub fn set_denials(&self, settings: DenialSettings) {
        self.denials.store(Arc::new(settings));
    }

    /// The longest wait after which a client program should retry by itself.
    pub fn retry_within(&self) -> Span {
        self.denials.load().retry_within
    }

    /// The member of a denial that contains its decision: its name, and the token or the link.
    pub fn denial_token(&self, decision: &Decision<'_>) -> Option<(&'static str, String)> {
        match &self.denials.load().form {
            DenialForm::Plain => None,
            DenialForm::Token => Some(("decision", self.decision_token(decision))),
            DenialForm::Link { before, after } => {
                Some(("decision_url", format!("{before}{}{after}", self.decision_token(decision))))
            }
        }
    }

    /// The key of a line as operators may see it, given its rule if that still exists.
    pub fn shown_key_of<'k>(&self, line: &'k DecodedLine, rule: Option<&Rule>) -> Cow<'k, str> {
        if line.secret || rule.is_some_and(|rule| rule.secret) {
            Cow::Owned(self.seals.pseudonym(&line.key))
        } else {
            Cow::Borrowed(&line.key)
        }
    }

    /// Decodes a token. Fails if no node of this store has issued it.
    pub fn open_decision(&self, token: &str) -> Result<DecodedDecision, Forged> {
        if token.len() > MOST_TOKEN {
            return Err(Forged);
        }
        let opened = |home| self.seals.with(home, |seal| seal.open_bytes(token).ok()).flatten();
        match opened(Home::Store).or_else(|| opened(Home::Local)) {
            Some((Kind::Decision, body)) => read(&body).ok_or(Forged),
            _ => Err(Forged),
        }
    }
}

fn write(decision: &Decision<'_>) -> Vec<u8> {
    let mut record = Writer::new(&[FORMAT], MOST_BYTES);
    let ticket = decision.charges.ticket.id();
    let correlation = decision.correlation.map_or_else(|| String::from_utf8_lossy(&ticket), Cow::Borrowed);
    record.number(decision.outcome.now.as_micros());
    record.text(&decision.policy().name);
    write_verdict(&mut record, decision.verdict);
    write_origin(&mut record, decision.origin);
    record.text(&correlation);
    record.number(decision.charges.cost);
    write_when(&mut record, decision.wait().map_or(decision.retry, When::After));
    let named = decision.named_rule().map(|rule| &*rule.name);
    record.text(named.unwrap_or_default());
    let blocked = decision.blocked().map(|listing| listing.target.to_string());
    record.text(blocked.as_deref().map_or("", |target| &target[..target.floor_char_boundary(MOST_TARGET)]));
    // The rule that denied comes first, in case not all of them fit.
    let is_named = |name: &str| Some(name) == named;
    let lines = decision.lines().filter(|line| is_named(&line.rule.name));
    let lines = lines.chain(decision.lines().filter(|line| !is_named(&line.rule.name)));
    let complete = record.list(lines, |record, line| {
        record.text(&line.rule.name);
        record.text(line.key);
        record.byte(u8::from(line.rule.secret));
        record.byte(u8::from(line.rule.observes()));
        record.all(line.plan.written().zip(line.readings), |record, ((_, limit), reading)| {
            record.text(limit);
            record.number(reading.capacity);
            record.number(reading.remaining);
            record.number(reading.reset.map_or(0, Timestamp::as_micros));
            write_when(record, reading.when);
        });
    });
    record.byte(u8::from(complete));
    record.bytes
}

fn read(body: &[u8]) -> Option<DecodedDecision> {
    let body = &mut &*body;
    if byte(body)? != FORMAT {
        return None;
    }
    let at = Timestamp::from_micros(number(body)?);
    let (policy, verdict, origin) = (text(body)?, read_verdict(body)?, read_origin(body)?);
    let (correlation, cost, retry) = (text(body)?, number(body)?, read_when(body)?);
    let filled = |text: String| Some(text).filter(|text| !text.is_empty());
    let (rule, blocked) = (filled(text(body)?), filled(text(body)?));
    let lines = list(body, |body| {
        let (rule, key) = (text(body)?, text(body)?);
        let (secret, observed) = (byte(body)? == 1, byte(body)? == 1);
        let limits = list(body, |body| {
            let (limit, capacity, remaining) = (text(body)?, number(body)?, number(body)?);
            let reset = Some(number(body)?).filter(|micros| *micros > 0).map(Timestamp::from_micros);
            Some((limit, Reading { capacity, remaining, reset, when: read_when(body)? }))
        })?;
        Some(DecodedLine { rule, key, secret, observed, limits })
    })?;
    let complete = byte(body)? == 1;
    Some(DecodedDecision {
        at,
        policy,
        verdict,
        origin,
        correlation,
        cost,
        retry,
        rule,
        blocked,
        lines,
        complete,
    })
}

fn write_verdict(record: &mut Writer, verdict: Verdict) {
    let (kind, number) = match verdict {
        Verdict::Allow => (0, 0),
        Verdict::Wait(span) => (1, span.as_micros()),
        Verdict::Defer(at) => (2, at.as_micros()),
        Verdict::Deny => (3, 0),
    };
    record.byte(kind);
    record.number(number);
}

fn read_verdict(body: &mut &[u8]) -> Option<Verdict> {
    let (kind, number) = (byte(body)?, number(body)?);
    Some(match kind {
        0 => Verdict::Allow,
        1 => Verdict::Wait(Span::from_micros(number)),
        2 => Verdict::Defer(Timestamp::from_micros(number)),
        3 => Verdict::Deny,
        _ => return None,
    })
}

fn write_origin(record: &mut Writer, origin: Origin) {
    let (kind, reason) = match origin {
        Origin::Store => (0, None),
        Origin::Local(reason) => (1, Some(reason)),
        Origin::Outage(reason) => (2, Some(reason)),
        Origin::Fixed => (3, None),
        Origin::Blocked => (4, None),
    };
    let number = REASONS.iter().position(|one| Some(*one) == reason).unwrap_or(0);
    record.byte(kind);
    record.byte(u8::try_from(number).unwrap_or(0));
}

fn read_origin(body: &mut &[u8]) -> Option<Origin> {
    let (kind, reason) = (byte(body)?, *REASONS.get(usize::from(byte(body)?))?);
    Some(match kind {
        0 => Origin::Store,
        1 => Origin::Local(reason),
        2 => Origin::Outage(reason),
        3 => Origin::Fixed,
        4 => Origin::Blocked,
        _ => return None,
    })
}

fn write_when(record: &mut Writer, when: When) {
    let (kind, number) = match when {
        When::Now => (0, 0),
        When::After(span) => (1, span.as_micros()),
        When::OnRelease => (2, 0),
        When::Never => (3, 0),
    };
    record.byte(kind);
    record.number(number);
}

fn read_when(body: &mut &[u8]) -> Option<When> {
    let (kind, number) = (byte(body)?, number(body)?);
    Some(match kind {
        0 => When::Now,
        1 => When::After(Span::from_micros(number)),
        2 => When::OnRelease,
        3 => When::Never,
        _ => return None,
    })
}
