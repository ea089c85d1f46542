//! An attempt: what a door asks a policy to decide.

use crate::mistake::Mistake;

/// An attempt.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The name of the policy.
    pub policy: &'a str,
    /// Its fields and their values.
    pub fields: &'a [(&'a str, &'a str)],
    /// How much it takes; 0 takes nothing and only reads.
    pub cost: u64,
    /// The id of its holds.
    pub id: Option<&'a str>,
}

impl Attempt<'_> {
    /// The longest id, in bytes.
    pub const MOST_ID_BYTES: usize = 256;

    /// Checks an id.
    pub fn check_id(id: &str) -> Result<(), Mistake> {
        match id.len() {
            0 => Err(Mistake::IdEmpty),
            1..=Self::MOST_ID_BYTES => Ok(()),
            bytes => Err(Mistake::IdTooLong { bytes }),
        }
    }
}
