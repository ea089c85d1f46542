//! Receipts as text: what was taken, sealed so that nobody can make one up, and closed where a key
//! in it is secret, so that nobody can read it.
//!
//! The text is the ticket, the time and the cost, then the rules and keys, then a tag of SipHash over
//! all of it. In a closed receipt the rules and keys lie under a stream made of SipHash over ticket,
//! time and a running number. No two receipts share ticket and time, so no two share a stream.
//!
//! Tickets of guards and records of locks and pauses are sealed alike, and the first byte tells them apart: none of
//! them passes for another.

use std::hash::Hasher;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use data_encoding::BASE64URL_NOPAD;
use siphasher::sip128::{Hasher128, SipHasher24};
use tollgate_core::{Decision, Origin, Receipt, Ticket, Timestamp};

/// Seals receipts and opens them again.
#[derive(Clone)]
pub struct Seal {
    tag_keys: (u64, u64),
    stream_keys: (u64, u64),
}

/// The two seals of an engine: that of the store, which all who share it know, and one of this
/// process for what was taken from its own counters.
pub(crate) struct Seals {
    shared: ArcSwapOption<Seal>,
    local: Seal,
}

/// Where what a receipt stands for was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Store,
    Local,
}

impl Home {
    /// Where a decision took what it took.
    pub(crate) fn of(decision: &Decision<'_>) -> Self {
        if matches!(decision.origin, Origin::Local(_)) { Self::Local } else { Self::Store }
    }
}

/// A receipt as far as it is written: at the end of the text that it will be a part of, as bytes.
pub(crate) struct Draft<'s> {
    seal: &'s Seal,
    text: &'s mut Vec<u8>,
    start: usize,
}

/// A text that is no receipt of ours. The caller's fault; nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// What a sealed text is good for. With whether it can be read by whoever holds it, it is the first byte
/// of the text: odd if it can, and the next even number if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To give back an attempt.
    Receipt = 1,
    /// To finish an attempt at a guard.
    Ticket = 3,
    /// To know who is locked.
    Lock = 5,
    /// To know what stands still.
    Pause = 7,
}

impl Kind {
    fn of(form: u8) -> Option<Self> {
        [Self::Receipt, Self::Ticket, Self::Lock, Self::Pause]
            .into_iter()
            .find(|kind| form == *kind as u8 || form == *kind as u8 + 1)
    }
}

/// Whether a form says that nobody can read what comes after it.
fn is_closed(form: u8) -> bool {
    form.is_multiple_of(2)
}

/// The longest receipt there can be, in bytes of text.
const MOST_BYTES: usize = 64 * 1024;
/// Form, ticket, time and cost.
const HEAD: usize = 1 + 3 * 8;

impl Seals {
    /// A seal for this process; that of the store is not known yet.
    pub(crate) fn new() -> Self {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system gives random numbers");
        Self { shared: ArcSwapOption::empty(), local: Seal::new(secret) }
    }

    /// From now on the store's seal has this secret.
    pub(crate) fn share(&self, secret: [u8; 32]) {
        self.shared.store(Some(Arc::new(Seal::new(secret))));
    }

    /// Seals for one home, if its seal is known.
    pub(crate) fn with<T>(&self, home: Home, seal: impl FnOnce(&Seal) -> T) -> Option<T> {
        match home {
            Home::Local => Some(seal(&self.local)),
            Home::Store => self.shared.load().as_deref().map(seal),
        }
    }

    /// What a text stands for, and where it was taken.
    pub(crate) fn open(&self, text: &str) -> Result<(Kind, Receipt, Home), Forged> {
        let opened = |home| {
            let opened = self.with(home, |seal| seal.open(text).ok()).flatten();
            opened.map(|(kind, receipt)| (kind, receipt, home))
        };
        opened(Home::Store).or_else(|| opened(Home::Local)).ok_or(Forged)
    }

    /// A short name for a key that must not be shown: on all nodes the same, as soon as the store's
    /// seal is known.
    pub(crate) fn veil(&self, key: &str) -> String {
        self.with(Home::Store, |seal| seal.veil(key)).unwrap_or_else(|| self.local.veil(key))
    }
}

impl Seal {
    /// A seal with this secret.
    pub fn new(secret: [u8; 32]) -> Self {
        let word = |at: usize| u64::from_le_bytes(secret[at..at + 8].try_into().expect("eight bytes"));
        Self { tag_keys: (word(0), word(8)), stream_keys: (word(16), word(24)) }
    }

    /// The receipt as text that nobody can read.
    pub fn seal(&self, kind: Kind, receipt: &Receipt) -> String {
        let mut text = Vec::new();
        let mut draft = self.draft(kind, receipt.ticket, receipt.at, receipt.cost, &mut text);
        for (rule, key) in &receipt.taken {
            draft.add(rule, key);
        }
        draft.close();
        draft.seal();
        String::from_utf8(text).expect("what is encoded is text")
    }

    /// Begins a receipt whose parts nobody needs to hold, to be appended to a text. It is open unless
    /// it is closed.
    pub(crate) fn draft<'s>(
        &'s self,
        kind: Kind,
        ticket: Ticket,
        at: Timestamp,
        cost: u64,
        text: &'s mut Vec<u8>,
    ) -> Draft<'s> {
        let start = text.len();
        text.push(kind as u8);
        for number in [ticket.0, at.as_micros(), cost] {
            text.extend_from_slice(&number.to_le_bytes());
        }
        Draft { seal: self, text, start }
    }

    /// What a text stands for, if it was sealed with this secret.
    pub fn open(&self, text: &str) -> Result<(Kind, Receipt), Forged> {
        if text.len() > MOST_BYTES {
            return Err(Forged);
        }
        let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| Forged)?;
        let (body, tag) = bytes.split_last_chunk_mut::<16>().ok_or(Forged)?;
        // Every byte is looked at, so that the time taken tells nothing.
        let differs = self.tag(body).iter().zip(&*tag).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs != 0 {
            return Err(Forged);
        }
        if body.first().is_some_and(|form| is_closed(*form)) {
            self.mask(body);
        }
        read(body).ok_or(Forged)
    }

    /// Lays the stream over everything behind the head, or takes it off again.
    fn mask(&self, bytes: &mut [u8]) {
        let Some((head, hidden)) = bytes.split_at_mut_checked(HEAD) else { return };
        for (number, block) in hidden.chunks_mut(16).enumerate() {
            let mut hasher = SipHasher24::new_with_keys(self.stream_keys.0, self.stream_keys.1);
            hasher.write(&head[..HEAD]);
            hasher.write_u64(number as u64);
            let stream = hasher.finish128().as_u128().to_le_bytes();
            block.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
        }
    }

    /// A short name for a key that must not be shown.
    pub fn veil(&self, key: &str) -> String {
        // No receipt begins with a zero, so a veil tells nothing about the tag of one.
        let tag = self.tag(&[&[0], key.as_bytes()].concat());
        format!("#{}", data_encoding::HEXLOWER.encode(&tag[..8]))
    }

    fn tag(&self, bytes: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_keys(self.tag_keys.0, self.tag_keys.1);
        hasher.write(bytes);
        hasher.finish128().as_u128().to_le_bytes()
    }
}

impl Draft<'_> {
    /// Adds a charge that was taken.
    pub(crate) fn add(&mut self, rule: &str, key: &str) {
        for text in [rule, key] {
            self.text.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
            self.text.extend_from_slice(text.as_bytes());
        }
    }

    /// Hides the rules and keys, once the receipt is sealed.
    pub(crate) fn close(&mut self) {
        let form = &mut self.text[self.start];
        *form += u8::from(!is_closed(*form));
    }

    /// Puts the sealed text in the place of the bytes.
    pub(crate) fn seal(self) {
        let Self { seal, text, start } = self;
        if is_closed(text[start]) {
            seal.mask(&mut text[start..]);
        }
        let tag = seal.tag(&text[start..]);
        text.extend_from_slice(&tag);
        let end = text.len();
        let length = BASE64URL_NOPAD.encode_len(end - start);
        text.resize(end + length, 0);
        let (bytes, encoded) = text.split_at_mut(end);
        BASE64URL_NOPAD.encode_mut(&bytes[start..], encoded);
        text.copy_within(end.., start);
        text.truncate(start + length);
    }
}

fn read(mut body: &[u8]) -> Option<(Kind, Receipt)> {
    let (form, rest) = body.split_first()?;
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
    let kind = Kind::of(*form)?;
    body.is_empty().then_some((kind, Receipt { ticket, at, cost, taken }))
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
            let seal = Seal::new([7; 32]);
            let receipt = Receipt { ticket: Ticket(ticket), at: Timestamp::from_micros(at), cost, taken };
            for kind in [Kind::Receipt, Kind::Ticket, Kind::Lock, Kind::Pause] {
                prop_assert_eq!(seal.open(&seal.seal(kind, &receipt)), Ok((kind, receipt.clone())));
            }
            let text = seal.seal(Kind::Ticket, &receipt);
            let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
            let index = at_byte.index(bytes.len());
            bytes[index] ^= 1_u8 << bit;
            prop_assert_eq!(seal.open(&BASE64URL_NOPAD.encode(&bytes)), Err(Forged));
            prop_assert_eq!(Seal::new([8; 32]).open(&text), Err(Forged));
        }

        #[test]
        fn nobody_reads_a_key_in_a_receipt(key in "[a-z]{8,40}", ticket: u64) {
            let receipt = Receipt {
                ticket: Ticket(ticket),
                at: Timestamp::from_micros(1),
                cost: 1,
                taken: vec![("api_key".into(), key.clone())],
            };
            let bytes = BASE64URL_NOPAD.decode(Seal::new([7; 32]).seal(Kind::Receipt, &receipt).as_bytes()).unwrap();
            prop_assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            prop_assert_eq!(Seal::new([7; 32]).open(&text), Err(Forged));
        }
    }
}
