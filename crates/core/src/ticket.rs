//! Tickets: the names of takes.

use core::fmt;
use core::str::FromStr;

/// The unique name of one take, so that it can be refunded exactly once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The correlation id of a refusal, if the caller sent none: sixteen digits, unique to the ticket and
    /// unlike those of the next one.
    pub fn id(self) -> [u8; 16] {
        hexadecimal(scatter(self.0))
    }
}

/// The sixteen hexadecimal digits of a number, computed together: each half-byte becomes a byte, and values
/// above nine become letters.
fn hexadecimal(number: u64) -> [u8; 16] {
    const NIBBLES: u128 = u128::from_ne_bytes([0x0f; 16]);
    const ONES: u128 = u128::from_ne_bytes([1; 16]);
    let mut spread = u128::from(number);
    spread = (spread | (spread << 32)) & 0x0000_0000_ffff_ffff_0000_0000_ffff_ffff;
    spread = (spread | (spread << 16)) & 0x0000_ffff_0000_ffff_0000_ffff_0000_ffff;
    spread = (spread | (spread << 8)) & 0x00ff_00ff_00ff_00ff_00ff_00ff_00ff_00ff;
    spread = (spread | (spread << 4)) & NIBBLES;
    let letters = ((spread + 6 * ONES) >> 4) & ONES;
    (spread + ONES * u128::from(b'0') + letters * u128::from(b'a' - b'9' - 1)).to_be_bytes()
}

/// Maps neighbours to numbers far apart, without collisions (the finisher of splitmix64).
fn scatter(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Ticket {
    type Err = core::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_are_written_as_numbers_are(number: u64) {
            let digits = format!("{number:016x}");
            prop_assert_eq!(&hexadecimal(number)[..], digits.as_bytes());
        }
    }
}
