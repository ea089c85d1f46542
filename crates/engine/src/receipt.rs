//! Receipts as text: what an attempt took, encrypted and authenticated, so that no client can read a key in
//! one or forge one.
//!
//! A sealed text is base64 of a version, a kind, the sealer's salt, a number, and then, under AES-256-GCM,
//! the ticket, the time, and the rules, keys and costs. The key is derived from the store's secret and the
//! salt (HKDF-SHA-256). A sealer draws its salt at random and numbers what it seals, and the number is the
//! nonce, so no two texts share key and nonce.
//!
//! Tickets of guards, records of locks and pauses, passwords of accounts, and decisions are sealed alike. The kind
//! distinguishes them, and it is authenticated with the rest: none of them passes for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use data_encoding::BASE64URL_NOPAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use tollgate_core::{Decision, Origin, Receipt, ReceiptLine, Ticket, Timestamp};

use crate::binary::{number, text};

/// Seals receipts and opens them again.
pub struct Seal {
    secret: [u8; 32],
    salt: [u8; SALT],
    key: LessSafeKey,
    /// The number of the next text.
    next: AtomicU64,
    pseudonym_key: hmac::Key,
}

/// The two seals of an engine: that of the store, which all nodes that share the store know, and one of this
/// process, for charges that were taken from its own counters.
pub(crate) struct Seals {
    shared: ArcSwapOption<Seal>,
    local: Seal,
}

/// The counters that a receipt's charges were taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Store,
    Local,
}

impl Home {
    /// The counters that a decision took its charges from.
    pub(crate) fn of(decision: &Decision<'_>) -> Self {
        if matches!(decision.origin, Origin::Local(_)) { Self::Local } else { Self::Store }
    }
}

/// A receipt being written, as bytes at the end of the text that it will be a part of.
pub(crate) struct Draft<'s> {
    seal: &'s Seal,
    text: &'s mut Vec<u8>,
    start: usize,
}

/// Tollgate did not issue this text. The caller's fault; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// The purpose of a sealed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To refund an attempt.
    Receipt = 1,
    /// To finish an attempt at a guard.
    Ticket = 2,
    /// To record which key is locked.
    Lock = 3,
    /// To record which key is paused.
    Pause = 4,
    /// To store the password for the server of an account.
    Password = 5,
    /// To show a decision later.
    Decision = 6,
    /// To recognise an operator who signed in.
    Session = 7,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let records = [Self::Lock, Self::Pause, Self::Password];
        let all = [Self::Receipt, Self::Ticket, Self::Decision, Self::Session];
        all.into_iter().chain(records).find(|kind| byte == *kind as u8)
    }
}

/// The format of sealed texts. Texts of an earlier format begin with a byte below 16.
const VERSION: u8 = 16;
const SALT: usize = 16;
/// Version, kind, salt and number.
const HEAD: usize = 2 + SALT + 8;
/// The longest receipt, in bytes of text.
const MOST_BYTES: usize = 64 * 1024;

impl Seals {
    /// Creates a seal for this process; that of the store is not known yet.
    pub(crate) fn new() -> Self {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system gives random numbers");
        Self { shared: ArcSwapOption::empty(), local: Seal::new(secret) }
    }

    /// Sets the secret of the store's seal.
    pub(crate) fn share(&self, secret: [u8; 32]) {
        self.shared.store(Some(Arc::new(Seal::new(secret))));
    }

    /// Calls `seal` with the seal of one home, if it is known.
    pub(crate) fn with<T>(&self, home: Home, seal: impl FnOnce(&Seal) -> T) -> Option<T> {
        match home {
            Home::Local => Some(seal(&self.local)),
            Home::Store => self.shared.load().as_deref().map(seal),
        }
    }

    /// Opens a text. Returns its contents, and where the charges were taken.
    pub(crate) fn open(&self, text: &str) -> Result<(Kind, Receipt, Home), Forged> {
        let opened = |home| {
            let opened = self.with(home, |seal| seal.open(text).ok()).flatten();
            opened.map(|(kind, receipt)| (kind, receipt, home))
        };
        opened(Home::Store).or_else(|| opened(Home::Local)).ok_or(Forged)
    }

    /// A pseudonym for a secret key: the same on all nodes, as soon as the store's seal is known.
    pub(crate) fn pseudonym(&self, key: &str) -> String {
        self.with(Home::Store, |seal| seal.pseudonym(key)).unwrap_or_else(|| self.local.pseudonym(key))
    }
}

impl Seal {
    /// A seal with this secret.
    pub fn new(secret: [u8; 32]) -> Self {
        let mut salt = [0; SALT];
        getrandom::fill(&mut salt).expect("the system gives random numbers");
        let key = derive_key(&secret, &salt);
        let pseudonym_key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        Self { secret, salt, key, next: AtomicU64::new(0), pseudonym_key }
    }

    /// Seals a receipt into a text.
    pub fn seal(&self, kind: Kind, receipt: &Receipt) -> String {
        let mut text = Vec::new();
        let mut draft = self.draft(kind, receipt.ticket, receipt.at, &mut text);
        for ReceiptLine { rule, key, cost } in &receipt.taken {
            draft.add(rule, key, *cost);
        }
        draft.seal();
        String::from_utf8(text).expect("base64 is text")
    }

    /// Seals bytes into a text.
    pub(crate) fn seal_bytes(&self, kind: Kind, body: &[u8]) -> String {
        let mut text = Vec::with_capacity(BASE64URL_NOPAD.encode_len(HEAD + body.len() + 16) * 2);
        let draft = self.begin(kind, &mut text);
        draft.text.extend_from_slice(body);
        draft.seal();
        String::from_utf8(text).expect("base64 is text")
    }

    /// Begins a receipt at the end of a text, to be written part by part.
    pub(crate) fn draft<'s>(
        &'s self,
        kind: Kind,
        ticket: Ticket,
        at: Timestamp,
        text: &'s mut Vec<u8>,
    ) -> Draft<'s> {
        let draft = self.begin(kind, text);
        for number in [ticket.0, at.as_micros()] {
            draft.text.extend_from_slice(&number.to_le_bytes());
        }
        draft
    }

    /// Writes the head of a sealed text.
    fn begin<'s>(&'s self, kind: Kind, text: &'s mut Vec<u8>) -> Draft<'s> {
        let start = text.len();
        text.extend_from_slice(&[VERSION, kind as u8]);
        text.extend_from_slice(&self.salt);
        text.extend_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        Draft { seal: self, text, start }
    }

    /// Opens the text of a receipt, if it was sealed with this secret.
    pub fn open(&self, text: &str) -> Result<(Kind, Receipt), Forged> {
        let (kind, body) = self.open_bytes(text)?;
        read(&body).map(|receipt| (kind, receipt)).ok_or(Forged)
    }

    /// Opens a text, if it was sealed with this secret.
    pub(crate) fn open_bytes(&self, text: &str) -> Result<(Kind, Vec<u8>), Forged> {
        if text.len() > MOST_BYTES {
            return Err(Forged);
        }
        let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| Forged)?;
        let (head, sealed) = bytes.split_first_chunk_mut::<HEAD>().ok_or(Forged)?;
        let [VERSION, kind, rest @ ..] = head else { return Err(Forged) };
        let (kind, salt) = (Kind::of(*kind).ok_or(Forged)?, rest.first_chunk::<SALT>().ok_or(Forged)?);
        let derived = (*salt != self.salt).then(|| derive_key(&self.secret, salt));
        let key = derived.as_ref().unwrap_or(&self.key);
        let body = key.open_in_place(nonce(head), Aad::from(&*head), sealed).map_err(|_| Forged)?;
        Ok((kind, body.to_vec()))
    }

    /// A pseudonym for a secret key; [`is_pseudonym`] knows its form.
    pub fn pseudonym(&self, key: &str) -> String {
        let mut context = hmac::Context::with_key(&self.pseudonym_key);
        [b"tollgate veil\0", key.as_bytes()].iter().for_each(|part| context.update(part));
        format!("#{}", data_encoding::HEXLOWER.encode(&context.sign().as_ref()[..8]))
    }
}

/// Whether a text has the form of a pseudonym: `#` and 16 hexadecimal digits.
pub(crate) fn is_pseudonym(text: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix('#').is_some_and(|digits| digits.len() == 16 && digits.as_bytes().iter().all(is_digit))
}

/// The encryption key of the sealer with this salt.
fn derive_key(secret: &[u8; 32], salt: &[u8; SALT]) -> LessSafeKey {
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let key = derived.expand(&[b"tollgate token"], &AES_256_GCM).expect("one key is not too much to derive");
    LessSafeKey::new(UnboundKey::from(key))
}

/// The nonce of the text with this head: its number.
fn nonce(head: &[u8; HEAD]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&head[HEAD - 8..]);
    Nonce::assume_unique_for_key(nonce)
}

impl Draft<'_> {
    /// Adds a taken charge.
    pub(crate) fn add(&mut self, rule: &str, key: &str, cost: u64) {
        for text in [rule, key] {
            let length = u16::try_from(text.len()).expect("rules and keys are shorter than 64 KiB");
            self.text.extend_from_slice(&length.to_le_bytes());
            self.text.extend_from_slice(text.as_bytes());
        }
        self.text.extend_from_slice(&cost.to_le_bytes());
    }

    /// Replaces the bytes by the sealed text.
    pub(crate) fn seal(self) {
        let Self { seal, text, start } = self;
        let (head, body) =
            text[start..].split_first_chunk_mut::<HEAD>().expect("a draft begins with its head");
        let tag = seal.key.seal_in_place_separate_tag(nonce(head), Aad::from(&*head), body);
        text.extend_from_slice(tag.expect("a receipt is short enough to be sealed").as_ref());
        let end = text.len();
        let length = BASE64URL_NOPAD.encode_len(end - start);
        text.resize(end + length, 0);
        let (bytes, encoded) = text.split_at_mut(end);
        BASE64URL_NOPAD.encode_mut(&bytes[start..], encoded);
        text.copy_within(end.., start);
        text.truncate(start + length);
    }
}

fn read(mut body: &[u8]) -> Option<Receipt> {
    let (ticket, at) = (Ticket(number(&mut body)?), Timestamp::from_micros(number(&mut body)?));
    let mut taken = Vec::new();
    while !body.is_empty() {
        let (rule, key) = (text(&mut body)?, text(&mut body)?);
        taken.push(ReceiptLine { rule, key, cost: number(&mut body)? });
    }
    Some(Receipt { ticket, at, taken })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::Rule;
    use tollgate_core::key::MOST_FIELD_BYTES;

    use super::*;

    #[test]
    fn a_text_of_an_earlier_format_or_another_kind_of_text_is_refused() {
        let seal = Seal::new([7; 32]);
        let receipt = Receipt { ticket: Ticket(1), at: Timestamp::from_micros(1), taken: Vec::new() };
        let text = seal.seal(Kind::Receipt, &receipt);
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
        assert_eq!(bytes[0], VERSION);
        // Earlier formats began with their kind, and a later one will begin with a greater version.
        for version in (0..=u8::MAX).filter(|version| *version != VERSION) {
            let other: Vec<u8> = [version].into_iter().chain(bytes[1..].iter().copied()).collect();
            assert_eq!(seal.open(&BASE64URL_NOPAD.encode(&other)), Err(Forged), "version {version}");
        }
        // A receipt as the first format had it: kind, ticket, time, and a tag of 16 bytes.
        let old: Vec<u8> = [1].into_iter().chain([0; 8]).chain([9; 8]).chain([5; 16]).collect();
        assert_eq!(seal.open(&BASE64URL_NOPAD.encode(&old)), Err(Forged));
    }

    #[test]
    fn the_longest_keys_that_rules_make_are_sealed() {
        let key = "k".repeat(Rule::MOST_FIELDS * 2 * (MOST_FIELD_BYTES + 1));
        let line = ReceiptLine { rule: "r".into(), key, cost: 1 };
        let receipt = Receipt { ticket: Ticket(1), at: Timestamp::from_micros(1), taken: vec![line] };
        let seal = Seal::new([7; 32]);
        assert_eq!(seal.open(&seal.seal(Kind::Receipt, &receipt)), Ok((Kind::Receipt, receipt)));
    }

    proptest! {
        #[test]
        fn a_sealed_receipt_opens_unchanged_and_a_changed_one_never(
            ticket: u64, at in 0..1_u64 << 52,
            taken in prop::collection::vec((".{0,20}", ".{0,40}", 0..1_u64 << 52), 0..5), at_byte: prop::sample::Index, bit in 0_u32..8,
        ) {
            let seal = Seal::new([7; 32]);
            let line = |(rule, key, cost)| ReceiptLine { rule, key, cost };
            let taken = taken.into_iter().map(line).collect();
            let receipt = Receipt { ticket: Ticket(ticket), at: Timestamp::from_micros(at), taken };
            for kind in [
                Kind::Receipt,
                Kind::Ticket,
                Kind::Lock,
                Kind::Pause,
                Kind::Password,
                Kind::Decision,
                Kind::Session,
            ] {
                let text = seal.seal(kind, &receipt);
                prop_assert_eq!(seal.open(&text), Ok((kind, receipt.clone())));
                prop_assert_eq!(Seal::new([7; 32]).open(&text), Ok((kind, receipt.clone())), "another node");
                prop_assert_ne!(seal.seal(kind, &receipt), text, "no two texts share a number");
            }
            let text = seal.seal(Kind::Ticket, &receipt);
            let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
            let index = at_byte.index(bytes.len());
            bytes[index] ^= 1_u8 << bit;
            prop_assert_eq!(seal.open(&BASE64URL_NOPAD.encode(&bytes)), Err(Forged));
            prop_assert_eq!(Seal::new([8; 32]).open(&text), Err(Forged));
        }

        #[test]
        fn a_receipt_does_not_reveal_its_key(key in "[a-z]{8,40}", ticket: u64) {
            let receipt = Receipt {
                ticket: Ticket(ticket),
                at: Timestamp::from_micros(1),
                taken: vec![ReceiptLine { rule: "api_key".into(), key: key.clone(), cost: 1 }],
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
