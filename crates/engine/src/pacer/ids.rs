//! Ids of lanes and of single keys: keyed hashes, so that no text has to be kept and no client can choose
//! colliding keys.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;
use tollgate_core::{Charges, Decision, OnExceed, Policy, Span, When};

use super::pace::Pace;

/// A policy and every key that its attempts are charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneId(u128);

/// One rule at one key, or a policy as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitKeyId(u128);

/// Computes ids.
pub(super) struct Ids {
    keys: (u64, u64),
}

/// A wait key that an attempt has to pass, and the longest wait that the rule there allows.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) wait_key: WaitKeyId,
    pub(super) rule: Arc<str>,
    pub(super) most: Span,
}

/// Every wait key that an attempt has to pass.
pub(super) struct WaitPath {
    pub(super) lane: LaneId,
    /// The policy as a whole, then every key.
    pub(super) stops: SmallVec<[Stop; 4]>,
}

/// The obstacle of an attempt: of all exceeded keys, the one with the longest wait.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    pub(super) wait_key: WaitKeyId,
    /// The time after which it passes if nothing is freed earlier.
    pub(super) when: When,
    /// The least time that it has to wait: zero if only holds block it, because they may be released at any
    /// moment.
    pub(super) surely: Span,
    pub(super) pace: Option<Pace>,
    pub(super) cost: u64,
    /// The longest total wait, and the rule that sets it.
    pub(super) patience: (Span, Arc<str>),
}

pub(super) type ById<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<Plain>>;

/// A hasher for values that are hashes already.
#[derive(Default)]
pub(super) struct Plain(u64);

impl WaitKeyId {
    /// The wait key of lanes that nothing is known to block.
    pub(super) const FRESH: Self = Self(0);
}

impl Blocked {
    /// The wait, as far as it is known.
    pub(super) fn wait(&self) -> Span {
        if let When::After(span) = self.when { span } else { self.surely }
    }

    /// The time until the next decision is worthwhile; at most `most` if other nodes may release holds.
    pub(super) fn rest(&self, most: Span) -> Span {
        match self.when {
            When::After(span) if span == self.surely => span,
            When::After(span) => span.min(most.max(self.surely)),
            _ => most.max(self.surely),
        }
    }
}

impl Ids {
    pub(super) fn new() -> Self {
        let random = || getrandom::u64().expect("the system gives random numbers");
        Self { keys: (random(), random()) }
    }

    /// The wait key of a rule at a key.
    pub(super) fn wait_key(&self, rule: &str, key: &str) -> WaitKeyId {
        let mut hasher = self.hasher(1);
        hasher.write_usize(rule.len());
        hasher.write(rule.as_bytes());
        hasher.write(key.as_bytes());
        WaitKeyId(hasher.finish128().as_u128())
    }

    /// The wait key of a whole policy.
    pub(super) fn policy_wait_key(&self, policy: &str) -> WaitKeyId {
        let mut hasher = self.hasher(2);
        hasher.write(policy.as_bytes());
        WaitKeyId(hasher.finish128().as_u128())
    }

    /// The wait keys that an attempt with these charges has to pass. Charges that are only observed are left
    /// out.
    pub(super) fn wait_path(&self, policy: &Policy, charges: &Charges<'_>) -> WaitPath {
        let mut stops: SmallVec<[Stop; 4]> = SmallVec::new();
        let mut hasher = self.hasher(3);
        let whole = self.policy_wait_key(&policy.name);
        hasher.write_u128(whole.0);
        stops.push(Stop { wait_key: whole, rule: Arc::clone(&policy.name), most: Span::ZERO });
        for charge in charges.iter().filter(|charge| charge.enforced) {
            let rule = policy.rule(charge.plan.rule()).expect("charges come from the policy's rules");
            let most = if let OnExceed::Wait(most) = rule.on_exceed { most } else { Span::ZERO };
            let wait_key = self.wait_key(charge.plan.rule(), charges.key(charge));
            hasher.write_u128(wait_key.0);
            stops.push(Stop { wait_key, rule: Arc::clone(&rule.name), most });
            // A paused policy may be waited for as long as the most patient of its rules allows.
            if stops[0].most < most {
                (stops[0].rule, stops[0].most) = (Arc::clone(&rule.name), most);
            }
        }
        WaitPath { lane: LaneId(hasher.finish128().as_u128()), stops }
    }

    /// The obstacle of an attempt that has to wait.
    pub(super) fn blocked(&self, decision: &Decision<'_>) -> Option<Blocked> {
        let mut longest: Option<(When, Span, WaitKeyId, Option<Pace>)> = None;
        let mut patience: Option<(Span, &Arc<str>)> = None;
        for line in decision.lines() {
            let (OnExceed::Wait(most), Some((limit, reading))) = (line.rule.on_exceed, line.binding()) else {
                continue;
            };
            if reading.when == When::Now {
                continue;
            }
            let surely = line.surely();
            let left = Span::from_micros(most.as_micros().saturating_sub(surely.as_micros()));
            if patience.is_none_or(|(least, _)| left < least) {
                patience = Some((left, &line.rule.name));
            }
            if longest.is_none_or(|(longest, ..)| reading.when > longest) {
                longest =
                    Some((reading.when, surely, self.wait_key(line.plan.rule(), line.key), Pace::of(limit)));
            }
        }
        let ((when, surely, wait_key, pace), (patience, rule)) = longest.zip(patience)?;
        let (cost, patience) = (decision.charges.cost, (patience, Arc::clone(rule)));
        Some(Blocked { wait_key, when, surely, pace, cost, patience })
    }

    fn hasher(&self, kind: u8) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write_u8(kind);
        hasher
    }
}

/// A lane id with this number, for tests.
#[cfg(test)]
pub(super) fn lane_of(number: u128) -> LaneId {
    LaneId(number)
}

impl Hash for LaneId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 as u64);
    }
}

impl Hash for WaitKeyId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 as u64);
    }
}

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = name;
    }
}
