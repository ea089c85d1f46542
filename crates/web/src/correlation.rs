//! The id that ties an answer to the caller's log.

use std::cell::Cell;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Where the id stands.
pub const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// The id by which a caller finds a request again.
#[derive(Clone, Debug, Default)]
pub struct Correlation {
    /// What the caller sent, if it is fit to be sent back.
    pub given: Option<HeaderValue>,
}

impl Correlation {
    /// The longest id that is taken over, in bytes.
    pub const MOST_BYTES: usize = 128;

    /// The id of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let fit = |value: &&HeaderValue| {
            (1..=Self::MOST_BYTES).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
        };
        Self { given: headers.get(CORRELATION_ID).filter(fit).cloned() }
    }

    /// The same with an id for sure: one that is made up now, if the caller sent none. It is the same
    /// wherever it is said from here on.
    #[must_use]
    pub fn settled(self) -> Self {
        Self { given: Some(self.id().into()) }
    }

    /// The id: the caller's, or one that is made up now.
    pub fn id(&self) -> Id {
        Id(self.given.clone().map_or_else(|| Form::Made(made_up()), Form::Given))
    }
}

/// An id: visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Form);

/// Where an id comes from. One that is made up takes no memory of its own: most refusals have one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Given(HeaderValue),
    Made([u8; 16]),
}

impl Id {
    /// As text.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Given(value) => value.to_str().unwrap_or_default(),
            Form::Made(digits) => str::from_utf8(digits).unwrap_or_default(),
        }
    }
}

impl From<Id> for HeaderValue {
    fn from(id: Id) -> Self {
        match id.0 {
            Form::Given(value) => value,
            Form::Made(digits) => Self::from_bytes(&digits).expect("digits fit into a header"),
        }
    }
}

/// An id that this thread makes up once, and that no other is likely to make up, here or elsewhere.
/// Asking the system for luck each time would take longer than writing a refusal.
fn made_up() -> [u8; 16] {
    thread_local! {
        static NEXT: Cell<u64> = Cell::new(getrandom::u64().expect("the system gives random numbers"));
    }
    hexadecimal(scatter(NEXT.replace(NEXT.get().wrapping_add(1))))
}

/// The sixteen digits of a number, all at once: each half of its bytes becomes a byte of its own, and
/// those above nine become letters.
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

/// Turns neighbours into numbers far apart, and never two into one (the finisher of splitmix64).
fn scatter(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn made_up_ids_are_written_as_numbers_are(number: u64) {
            let digits = format!("{number:016x}");
            prop_assert_eq!(&hexadecimal(number)[..], digits.as_bytes());
        }
    }
}
