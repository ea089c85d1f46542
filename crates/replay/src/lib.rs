//! Replays logs through policies: the real engine decides every line again, on a virtual clock.
//!
//! Lines of a log become attempts ([`log`], [`layout`]), which are put in order and spread over their seconds
//! ([`order`]). An engine with a store in memory and a clock that jumps from attempt to attempt decides them
//! ([`lane`]), and the decisions are counted in bounded memory ([`tally`]).
//!
//! Absent on purpose: files, the command line, sleeping, and the real time.

pub mod choose;
pub mod curve;
pub mod distinct;
pub mod feed;
pub mod lane;
pub mod layout;
pub mod lines;
pub mod log;
pub mod order;
mod recent;
pub mod replay;
pub mod report;
pub mod suggest;
pub mod tally;
pub mod timeline;
pub mod top;
mod waiting;

use std::hash::Hasher;

use rapidhash::fast::RapidHasher;

/// The hash of a value, for counting values without keeping them.
#[inline]
pub(crate) fn hash(value: &[u8]) -> u64 {
    let mut hasher = RapidHasher::default_const();
    hasher.write(value);
    hasher.finish()
}
