//! Setting entries at run time, and following what other nodes set.

use std::fmt;
use std::sync::Arc;

use tollgate_core::grammar::GrammarError;
use tollgate_core::policy::nearest;
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Author, Listing, Span, Stance, StoreError, Target, Timestamp};

use super::known::name_of;
use super::record;
use crate::lists::LiveLists;

/// The most entries that may be set at run time.
pub const MOST_SET: usize = Namespace::Lists.most_entries();

/// An entry to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The target that the entry matches.
    pub target: Target,
    /// Whether it blocks or allows.
    pub stance: Stance,
    /// The time for which the entry is valid; `None` means for ever.
    pub lasts: Option<Span>,
    /// The reason, in one line.
    pub reason: Box<str>,
    /// Whether a blocked client sees the reason.
    pub show_reason: bool,
    /// The author of the entry.
    pub author: Author,
}

/// Why an entry was not set, or not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListFault {
    /// There are too many entries. The operator's fault; nothing was changed.
    Full,
    /// No rule and no configured list has the field, so no attempt would ever have it. The caller's fault;
    /// nothing was changed.
    UnknownField {
        /// The field.
        field: String,
        /// The nearest known name.
        near: Option<String>,
    },
    /// The values of the field are secret, and entries can be read. The caller's fault; nothing was changed.
    Secret {
        /// The field.
        field: String,
        /// The rule whose keys are secret.
        rule: String,
    },
    /// The store cannot answer.
    Store(StoreError),
}

impl LiveLists {
    /// Parses the target of an entry, by the kinds of its fields.
    pub fn target(&self, text: &str) -> Result<Target, GrammarError> {
        Target::parse(text, &self.known.lock().kinds)
    }

    /// As [`LiveLists::target`], from fields and their values.
    pub fn target_of<'f>(
        &self,
        fields: impl IntoIterator<Item = (&'f str, &'f str)>,
    ) -> Result<Target, GrammarError> {
        Target::of_fields(fields, &self.known.lock().kinds)
    }

    /// Sets entries. Each replaces the entry set for the same target. They take effect now, survive restarts,
    /// and reach every node within a second.
    pub async fn put(&self, wishes: Vec<Wish>) -> Result<Vec<Arc<Listing>>, ListFault> {
        for wish in &wishes {
            self.check_fields(&wish.target)?;
        }
        let now = self.counters.time();
        let listings: Vec<Arc<Listing>> =
            wishes.into_iter().map(|wish| Arc::new(wish.granted(now))).collect();
        self.set(listings.clone()).await?;
        Ok(listings)
    }

    /// Removes the entry set for a target; a configured entry stays. Returns whether one was set.
    pub async fn remove(&self, target: &Target) -> Result<bool, ListFault> {
        let found = self.known.lock().find(target).is_some();
        self.change_lists(&[Edit::remove(target.to_string())]).await?;
        Ok(found)
    }

    /// The entries that `keep` selects, in the order of their targets, after the target `after`; a few more
    /// than `most` if the last ones have the same target. Ended entries are left out.
    pub fn page(
        &self,
        after: Option<&str>,
        most: usize,
        mut keep: impl FnMut(&Listing) -> bool,
    ) -> Vec<Arc<Listing>> {
        let now = self.counters.time();
        self.known.lock().page(after, most, |listing| listing.is_live(now) && keep(listing))
    }

    /// The number of entries that may still be set.
    pub(crate) fn room(&self) -> usize {
        MOST_SET.saturating_sub(self.known.lock().size())
    }

    /// Sets entries as they are.
    pub(crate) async fn set(&self, listings: Vec<Arc<Listing>>) -> Result<(), ListFault> {
        {
            let listed = self.known.lock();
            if listed.size() + listed.new_among(&listings) > MOST_SET {
                return Err(ListFault::Full);
            }
        }
        let edit = |listing: &Arc<Listing>| {
            Edit::put(name_of(listing), record::written(listing)).until(listing.forgotten_at())
        };
        let edits: Vec<Edit> = listings.iter().map(edit).collect();
        self.change_lists(&edits).await
    }

    /// Whether an attempt may ever have these fields, and operators may read them.
    fn check_fields(&self, target: &Target) -> Result<(), ListFault> {
        let Target::Values(values) = target else { return Ok(()) };
        let pinned = self.counters.pin();
        let rules = pinned.policies.rules();
        let known = || rules.iter().flat_map(|rule| rule.by.iter()).map(|field| &*field.name);
        for (field, _) in values {
            let name = &*field.name;
            let secret = rules.iter().find(|rule| rule.secret && rule.by.iter().any(|by| *by.name == *name));
            if let Some(rule) = secret {
                return Err(ListFault::Secret { field: name.to_owned(), rule: rule.name.to_string() });
            }
            if pinned.policies.roster().knows(name).is_none() && !known().any(|known| known == name) {
                return Err(ListFault::UnknownField { field: name.to_owned(), near: nearest(name, known()) });
            }
        }
        Ok(())
    }

    /// Changes the records of the lists.
    async fn change_lists(&self, edits: &[Edit]) -> Result<(), ListFault> {
        match self.records.change(self, edits).await {
            Ok(_) => Ok(()),
            // Other nodes set the last entries.
            Err(error) if error == Namespace::Lists.full() => Err(ListFault::Full),
            Err(error) => Err(ListFault::Store(error)),
        }
    }
}

impl Wish {
    fn granted(self, now: Timestamp) -> Listing {
        Listing {
            target: self.target,
            stance: self.stance,
            since: now,
            until: self.lasts.map(|lasts| now + lasts),
            show_reason: self.show_reason && !self.reason.is_empty(),
            reason: self.reason,
            author: self.author,
            times: 0,
        }
    }
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => {
                write!(
                    f,
                    "{MOST_SET} entries were set at run time, and no more can be: remove some, or put networks in the place of addresses"
                )
            }
            Self::UnknownField { field, near } => {
                let hint = near.as_ref().map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                write!(f, "no rule uses the field `{field}`, so no attempt brings it{hint}")
            }
            Self::Secret { field, rule } => {
                write!(
                    f,
                    "the keys of rule `{rule}` are secret, and entries are not: `{field}` cannot be listed unless the rule says `secret: false`"
                )
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ListFault {}
