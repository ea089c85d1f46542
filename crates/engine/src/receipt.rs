//! Receipts as text: what was taken, sealed so that nobody can make one up.

use std::hash::Hasher;

use data_encoding::BASE64URL_NOPAD;
use siphasher::sip128::{Hasher128, SipHasher24};
use smallvec::SmallVec;
use tollgate_core::{Receipt, Ticket, Timestamp};

/// Seals receipts and opens them again.
#[derive(Clone)]
pub struct Seal {
    keys: (u64, u64),
}

/// A text that is no receipt of ours. The caller's fault; nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// The longest receipt there can be, in bytes of text.
const MOST_BYTES: usize = 64 * 1024;

impl Seal {
    /// A seal with this secret.
    pub fn new(secret: [u8; 16]) -> Self {
        let word = |at: usize| u64::from_le_bytes(secret[at..at + 8].try_into().expect("eight bytes"));
        Self { keys: (word(0), word(8)) }
    }

    /// The receipt as text.
    pub fn seal(&self, receipt: &Receipt) -> String {
        let taken = receipt.taken.iter().map(|(rule, key)| (rule.as_str(), key.as_str()));
        self.seal_parts(receipt.ticket, receipt.at, receipt.cost, taken)
    }

    /// As [`Seal::seal`], from the parts of a receipt that nobody needs to hold.
    pub(crate) fn seal_parts<'t>(
        &self,
        ticket: Ticket,
        at: Timestamp,
        cost: u64,
        taken: impl Iterator<Item = (&'t str, &'t str)>,
    ) -> String {
        let mut bytes: SmallVec<[u8; 256]> = SmallVec::new();
        bytes.push(1);
        for number in [ticket.0, at.as_micros(), cost] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for text in taken.flat_map(|(rule, key)| [rule, key]) {
            bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        let tag = self.tag(&bytes);
        bytes.extend_from_slice(&tag);
        BASE64URL_NOPAD.encode(&bytes)
    }

    /// The receipt that a text stands for, if it was sealed with this secret.
    pub fn open(&self, text: &str) -> Result<Receipt, Forged> {
        if text.len() > MOST_BYTES {
            return Err(Forged);
        }
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| Forged)?;
        let (body, tag) = bytes.split_last_chunk::<16>().ok_or(Forged)?;
        // Every byte is looked at, so that the time taken tells nothing.
        let differs = self.tag(body).iter().zip(tag).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs != 0 {
            return Err(Forged);
        }
        read(body).ok_or(Forged)
    }

    /// A short name for a key that must not be shown.
    pub fn veil(&self, key: &str) -> String {
        let tag = self.tag(key.as_bytes());
        format!("#{}", data_encoding::HEXLOWER.encode(&tag[..8]))
    }

    fn tag(&self, bytes: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_keys(self.keys.0, self.keys.1);
        hasher.write(bytes);
        hasher.finish128().as_u128().to_le_bytes()
    }
}

fn read(mut body: &[u8]) -> Option<Receipt> {
    let (version, rest) = body.split_first()?;
    body = rest;
    let mut word = || {
        let (word, rest) = body.split_first_chunk::<8>()?;
        body = rest;
        Some(u64::from_le_bytes(*word))
    };
    let (ticket, at, cost) = (Ticket(word()?), Timestamp::from_micros(word()?), word()?);
    let mut texts = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<2>() {
        let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        texts.push(String::from_utf8(text.to_vec()).ok()?);
        body = rest;
    }
    let taken = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    (*version == 1 && body.is_empty()).then_some(Receipt { ticket, at, cost, taken })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sealed_receipt_opens_unchanged_and_a_changed_one_never(
            ticket: u64, at in 0..1_u64 << 52, cost in 0..1_u64 << 52,
            taken in prop::collection::vec((".{0,20}", ".{0,40}"), 0..5), at_byte: prop::sample::Index, bit in 0_u32..8,
        ) {
            let seal = Seal::new([7; 16]);
            let receipt = Receipt { ticket: Ticket(ticket), at: Timestamp::from_micros(at), cost, taken };
            let text = seal.seal(&receipt);
            prop_assert_eq!(seal.open(&text), Ok(receipt));
            let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
            let index = at_byte.index(bytes.len());
            bytes[index] ^= 1_u8 << bit;
            prop_assert_eq!(seal.open(&BASE64URL_NOPAD.encode(&bytes)), Err(Forged));
            prop_assert_eq!(Seal::new([8; 16]).open(&text), Err(Forged));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            prop_assert_eq!(Seal::new([7; 16]).open(&text), Err(Forged));
        }
    }
}
