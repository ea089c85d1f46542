//! The ledger: records that may be many and change often, so that whoever reads them follows their
//! changes. The entries of the blocklist and the allowlist that are set at run time are kept in it.

use alloc::string::String;
use alloc::vec::Vec;

use crate::time::Timestamp;

/// The start of the names that the ledger's entries have among other records, where they lie together.
pub const PREFIX: &str = "ban/";

/// How many of the latest changes are kept in mind: who missed more reads everything.
pub const MOST_CHANGES: usize = 10_000;

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The name of the entry.
    pub name: String,
    /// What is to be written under it.
    pub to: Entry,
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// This is written, whatever was there.
    Written(Vec<u8>),
    /// It is removed, if it is there.
    Removed,
    /// It is removed, if this is still written there: whoever wrote something else meanwhile goes first.
    RemovedIf(Vec<u8>),
}

/// What somebody who follows the ledger did not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The store's time, where it tells.
    pub now: Option<Timestamp>,
    /// The version that this makes known.
    pub version: u64,
    /// How many entries there are then, where that is known.
    pub size: Option<usize>,
    /// Whether these are all entries there are, or only those that have changed.
    pub scope: Scope,
    /// Entries with what is written under them, and nothing where they are removed.
    pub entries: Vec<(String, Option<Vec<u8>>)>,
}

/// How much news tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything: what is not among them is not there.
    All,
    /// What has changed.
    Changes,
}
