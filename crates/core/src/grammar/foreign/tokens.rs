//! The tokens of a limit in another program's notation: words, numbers and signs.

use alloc::string::String;
use alloc::vec::Vec;

use super::{NOUNS, abbreviated};
use crate::MAX_EXACT;

/// Whether exactly three digits follow the comma at `at`, as in `1,000`.
pub(super) fn is_thousands(text: &str, at: usize) -> bool {
    let digits = text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
    digits == 3 && text[..at].ends_with(|c: char| c.is_ascii_digit())
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(Fraction),
    /// In lower case, except for `M`, whose case matters.
    Word(String),
    Sign(char),
}

/// A number that may have decimals, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fraction {
    pub(super) over: u64,
    pub(super) under: u64,
}

impl Fraction {
    fn new(over: u64, under: u64) -> Self {
        let (mut a, mut b) = (over, under);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self { over: over / a, under: under / a }
    }

    /// The number times a factor.
    pub(super) fn times(self, factor: u64) -> Option<Self> {
        Some(Self::new(self.over.checked_mul(factor)?, self.under)).filter(|much| much.over <= MAX_EXACT)
    }

    /// The number, if it is whole and above zero. In this grammar 0 means no limit, which a foreign 0 may not
    /// mean.
    pub(super) fn whole(self) -> Option<u64> {
        (self.under == 1 && self.over > 0).then_some(self.over)
    }
}

/// The tokens of a text; `None` if it has another character, or a number that is ambiguous or too large.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_digit() {
            let (number, length) = number(rest)?;
            tokens.push(Token::Number(number));
            length
        } else if first.is_ascii_alphabetic() {
            let length = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (thousands, word) = thousands(&rest[..length]);
            tokens.extend([thousands, word].into_iter().filter(|word| !word.is_empty()).map(cased));
            length
        } else if first.is_whitespace() || first == '_' {
            first.len_utf8()
        } else if "/=:+,".contains(first) {
            tokens.push(Token::Sign(first));
            1
        } else {
            return None;
        };
        rest = &rest[length..];
    }
    Some(tokens)
}

/// A word and its prefix for thousands or millions: `kr` is a thousand requests.
fn thousands(word: &str) -> (&str, &str) {
    let known = |rest: &str| NOUNS.contains(&&*rest.to_ascii_lowercase()) || abbreviated(rest).is_some();
    match word.strip_prefix(['k', 'K', 'M']) {
        Some(rest) if rest.is_empty() || known(rest) => word.split_at(1),
        _ => ("", word),
    }
}

fn cased(word: &str) -> Token {
    Token::Word(if word == "M" { word.into() } else { word.to_ascii_lowercase() })
}

/// A number and its length: `1000`, `1_000`, `1,000` or `0.5`. `None` if it is ambiguous (`1.000`, `007`), has no
/// digit or more than nine digits after the point, or is too large.
fn number(text: &str) -> Option<(Fraction, usize)> {
    let mut digits = String::new();
    let (mut length, mut decimals) = (0, None);
    for (at, sign) in text.char_indices() {
        match sign {
            '0'..='9' => {
                digits.push(sign);
                decimals = decimals.map(|count| count + 1);
            }
            '_' if decimals.is_none() => {}
            ',' if decimals.is_none()
                && is_thousands(text, at)
                && text[..at].find(',').unwrap_or(at) <= 3 => {}
            '.' if decimals.is_none() => decimals = Some(0),
            _ => break,
        }
        length = at + 1;
    }
    let over: u64 = digits.parse().ok().filter(|number| *number <= MAX_EXACT)?;
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && decimals.is_none();
    match decimals {
        Some(0 | 3 | 10..) => None,
        _ if leading_zero => None,
        decimals => Some((Fraction::new(over, 10_u64.pow(decimals.unwrap_or(0))), length)),
    }
}
