//! What a door asks of a policy.

use crate::mistake::Mistake;

/// What a door asks.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Which policy it passes.
    pub policy: &'a str,
    /// What is known of it.
    pub fields: &'a [(&'a str, &'a str)],
    /// How much it takes; 0 only looks.
    pub cost: u64,
    /// Under which id it holds what is limited at once.
    pub id: Option<&'a str>,
}

impl Attempt<'_> {
    /// The longest id, in bytes.
    pub const MOST_ID_BYTES: usize = 256;

    /// What is wrong with an id, if anything is.
    pub fn check_id(id: &str) -> Result<(), Mistake> {
        match id.len() {
            0 => Err(Mistake::IdEmpty),
            1..=Self::MOST_ID_BYTES => Ok(()),
            bytes => Err(Mistake::IdTooLong { bytes }),
        }
    }
}
