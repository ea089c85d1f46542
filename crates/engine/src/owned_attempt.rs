//! An attempt that outlives its caller's borrow: it waits for its turn, or for a store.

use smallvec::SmallVec;
use tollgate_core::Attempt;

/// An attempt that owns its text until it is decided.
#[derive(Debug)]
pub(crate) struct OwnedAttempt {
    /// The policy, then the name and the value of each field, without separators.
    text: Box<str>,
    /// The end of each part of `text`.
    ends: SmallVec<[u32; 9]>,
    id: Option<Box<str>>,
    pub(crate) cost: u64,
    /// The id by which the caller knows it, if it sent one. Doors bound its length.
    pub(crate) correlation: Option<Box<str>>,
}

pub(crate) type Fields<'k> = SmallVec<[(&'k str, &'k str); 6]>;

impl OwnedAttempt {
    /// Copies an attempt whose charges were computed, and which is short because of that.
    pub(crate) fn new(attempt: &Attempt<'_>) -> Self {
        let pairs = attempt.fields.iter().flat_map(|(name, value)| [*name, *value]);
        let parts: SmallVec<[&str; 9]> = std::iter::once(attempt.policy).chain(pairs).collect();
        let mut end = 0;
        let ends = parts.iter().map(|part| {
            end += part.len();
            u32::try_from(end).expect("fields that make keys are short")
        });
        let ends = ends.collect();
        let (text, id) = (parts.concat().into(), attempt.id.map(Into::into));
        Self { text, ends, id, cost: attempt.cost, correlation: None }
    }

    /// The same attempt, with the caller's id.
    pub(crate) fn known_by(self, correlation: Option<&str>) -> Self {
        Self { correlation: correlation.map(Into::into), ..self }
    }

    /// The policy it passes.
    pub(crate) fn policy(&self) -> &str {
        self.part(0)
    }

    /// The fields, for [`OwnedAttempt::attempt`].
    pub(crate) fn fields(&self) -> Fields<'_> {
        let pairs = self.ends.len() / 2;
        (0..pairs).map(|pair| (self.part(2 * pair + 1), self.part(2 * pair + 2))).collect()
    }

    /// The attempt itself.
    pub(crate) fn attempt<'k>(&'k self, fields: &'k [(&'k str, &'k str)]) -> Attempt<'k> {
        Attempt { policy: self.part(0), fields, cost: self.cost, id: self.id.as_deref() }
    }

    fn part(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[index] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owned_attempt_equals_the_attempt_it_was_made_of() {
        let fields = [("chat", "-100"), ("kind", ""), ("ü", "ß")];
        let attempt = Attempt { policy: "telegram", fields: &fields, cost: 3, id: Some("m1") };
        let kept = OwnedAttempt::new(&attempt);
        let again = kept.fields();
        let again = kept.attempt(&again);
        assert_eq!((again.policy, again.cost, again.id), ("telegram", 3, Some("m1")));
        assert_eq!(again.fields, fields);
        let bare = OwnedAttempt::new(&Attempt { policy: "all", fields: &[], cost: 1, id: None });
        assert_eq!(bare.attempt(&bare.fields()).policy, "all");
        assert!(bare.fields().is_empty());
    }
}
