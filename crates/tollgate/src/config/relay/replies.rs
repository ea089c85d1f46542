//! The operator's rules for what next hops say.

use tollgate_core::Span;
use tollgate_relay::replies::{ReplyPattern, ReplyRule, ReplyRules, ReplyStage, Rest, Verdict};

use super::super::problem::{Findings, shown};
use super::super::raw::relay as raw;
use super::super::tree::Path;
use super::time;

/// How many rules there may be, and how long a pattern may be: every refusal is compared with all of them.
const MOST_RULES: usize = 100;
const MOST_PATTERN: usize = 500;
/// A shorter sleep would ask a server again that has just refused.
const LEAST_SLEEP: Span = Span::from_secs(1);

/// Converts and checks the rules.
pub(super) fn mean(
    written: Option<&[raw::ReplyRule]>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> ReplyRules {
    let written = written.unwrap_or_default();
    if written.len() > MOST_RULES {
        findings.value(path, format!("there are {} rules: at most {MOST_RULES} are allowed", written.len()));
        return ReplyRules::default();
    }
    let rules =
        written.iter().enumerate().filter_map(|(index, rule)| one(rule, &path.index(index), findings));
    ReplyRules::new(rules.collect())
}

fn one(written: &raw::ReplyRule, path: &Path, findings: &mut Findings<'_>) -> Option<ReplyRule> {
    let pattern = ReplyPattern::new(&written.pattern).filter(|_| written.pattern.len() <= MOST_PATTERN);
    if pattern.is_none() {
        let message = format!(
            "`{}` fits every reply or is too long: write words of the reply, as in `550*daily limit`",
            shown(&written.pattern)
        );
        findings.value(&path.key("match"), message);
    }
    let sleep = time(written.time.as_deref(), &path.key("for"), findings);
    if sleep.is_some_and(|sleep| sleep < LEAST_SLEEP) {
        findings.value(&path.key("for"), format!("the sleep is too short: write at least `{LEAST_SLEEP}`"));
    }
    if written.time.is_some() && written.then != raw::ReplyThen::Sleep {
        findings
            .value(&path.key("for"), "`for` is the time of `then: sleep`: remove it, or write `then: sleep`");
    }
    let stages = written.at.iter().flatten().map(|at| stage(*at)).collect();
    let verdict = match written.then {
        raw::ReplyThen::Sleep => Verdict::Rest(Rest::Sleep(sleep)),
        raw::ReplyThen::Slow => Verdict::Rest(Rest::Slow),
        raw::ReplyThen::Next => Verdict::Next,
        raw::ReplyThen::SlowDomain => Verdict::SlowDomain,
        raw::ReplyThen::Retry => Verdict::Retry,
        raw::ReplyThen::Bounce => Verdict::Bounce,
    };
    Some(ReplyRule { pattern: pattern?, stages, verdict })
}

fn stage(at: raw::ReplyAt) -> ReplyStage {
    match at {
        raw::ReplyAt::Connect => ReplyStage::Connect,
        raw::ReplyAt::Hello => ReplyStage::Hello,
        raw::ReplyAt::Login => ReplyStage::Login,
        raw::ReplyAt::Mail => ReplyStage::Mail,
        raw::ReplyAt::Recipient => ReplyStage::Recipient,
        raw::ReplyAt::Data => ReplyStage::Data,
        raw::ReplyAt::Text => ReplyStage::Text,
    }
}
