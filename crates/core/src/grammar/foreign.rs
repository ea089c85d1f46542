//! Limits as other programs write them (`10r/s burst=20`, `100rpm`, `minute: 100`), rewritten in this
//! grammar.
//!
//! A rewrite is offered only if every character of the text was understood, and it never changes a number:
//! a text that can be read in two ways (`100/M`, `1.000/s`) gets no rewrite.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::print::Every;
use super::{GrammarError, Words, read};
use crate::MAX_EXACT;
use crate::time::Span;

/// Adds the rewrite to an error, if there is one.
pub(super) fn explain(error: GrammarError) -> GrammarError {
    if error.problem == super::MONTH {
        return error;
    }
    let Some(rewrites) = rewrite(&error.text) else { return error };
    let problem = match rewrites.as_slice() {
        [one] if error.problem == super::WHOLE => format!("{}: write `{one}`", error.problem),
        [one] => format!("write `{one}`"),
        several => {
            let quoted: Vec<String> = several.iter().map(|limit| format!("`{limit}`")).collect();
            format!(
                "these are {} limits: write each as an entry of its own, {}",
                several.len(),
                quoted.join(" and ")
            )
        }
    };
    GrammarError { at: first_foreign(&error), problem, ..error }
}

/// Where the text leaves the grammar: behind its first number, if not later.
fn first_foreign(error: &GrammarError) -> usize {
    let mut words = Words::of(&error.text);
    if words.peek().starts_with(|c: char| c.is_ascii_digit()) {
        words.next();
        if !matches!(words.peek(), "/" | "at") {
            return error.at.min(words.skip_space());
        }
    }
    error.at
}

/// The limits that a text means, in this grammar; one for each of its parts.
fn rewrite(text: &str) -> Option<Vec<String>> {
    // Longer texts are no limit in any program, and an outsider may send them.
    if text.len() > 200 {
        return None;
    }
    let parts = parts(text);
    let one = |part: &str| match read(part) {
        Ok(Some(_)) => Some(part.trim().to_string()),
        Ok(None) => None,
        Err(_) => Reader { tokens: tokens(part)?, at: 0, text: part }.limit(),
    };
    parts.into_iter().map(one).collect()
}

/// A text, cut where one limit ends and the next begins.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, sign) in text.char_indices() {
        let ends = match sign {
            ';' | '&' => true,
            // A burst belongs to the rate before it.
            ',' => !is_thousands(text, at) && !text[at + 1..].trim_start().starts_with("burst"),
            _ => false,
        };
        if ends {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().flat_map(|part| part.split(" and ")).collect()
}

/// Whether the comma at `at` is followed by three digits and no more, as in `1,000`.
fn is_thousands(text: &str, at: usize) -> bool {
    let digits = text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
    digits == 3 && text[..at].ends_with(|c: char| c.is_ascii_digit())
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(Fraction),
    /// In lower case, unless it is the one letter whose case matters.
    Word(String),
    Sign(char),
}

/// A number that may have decimals, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fraction {
    over: u64,
    under: u64,
}

impl Fraction {
    fn new(over: u64, under: u64) -> Self {
        let (mut a, mut b) = (over, under);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self { over: over / a, under: under / a }
    }

    /// This many times as much.
    fn times(self, factor: u64) -> Option<Self> {
        Some(Self::new(self.over.checked_mul(factor)?, self.under)).filter(|much| much.over <= MAX_EXACT)
    }

    /// A number above zero, if it is whole. In this grammar 0 is no limit, which a foreign 0 may not mean.
    fn whole(self) -> Option<u64> {
        (self.under == 1 && self.over > 0).then_some(self.over)
    }
}

/// The words, numbers and signs of a text; `None` if something else is in it.
fn tokens(text: &str) -> Option<Vec<Token>> {
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

/// A word and the thousands or millions before it: `kr` is a thousand requests.
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

/// A number with its length: `1000`, `1_000`, `1,000` or `0.5`. `1.000` is a thousand to some and one to
/// others, so it is none.
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

/// How long a rate counts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Period {
    Fixed(Span),
    Month,
}

struct Reader<'t> {
    tokens: Vec<Token>,
    at: usize,
    text: &'t str,
}

impl Reader<'_> {
    /// The whole text as one limit of this grammar.
    fn limit(mut self) -> Option<String> {
        if self.takes(&["rate"]) {
            self.takes_sign(&['=', ':']);
        }
        let text = if let Some(Token::Number(_)) = self.peek() { self.counted()? } else { self.labelled()? };
        // What is offered is read as strictly as what is written, and says that there is a limit.
        let means = read(&text).ok()?;
        means.map(|_| text)
    }

    /// `100rpm`, `10 requests per second`, `5 concurrent`.
    fn counted(&mut self) -> Option<String> {
        let number = self.number()?;
        if let Some(text) = self.concurrent(number) {
            return Some(text);
        }
        if let Some(Token::Word(word)) = self.peek()
            && let Some(period) = abbreviated(word)
        {
            self.at += 1;
            return self.rate(number, period);
        }
        self.takes(NOUNS);
        if !self.takes_sign(&['/']) && !self.takes(&["per", "every", "each", "a", "an", "in"]) {
            return None;
        }
        let period = self.period()?;
        self.rate(number, period)
    }

    /// `minute: 100`, `requests_per_second=10`, `concurrency: 5`.
    fn labelled(&mut self) -> Option<String> {
        let concurrent = self.takes(&["concurrency"]);
        let period = if concurrent {
            None
        } else {
            self.takes(&["limit"]);
            self.takes(NOUNS);
            self.takes(&["per"]);
            Some(self.period()?)
        };
        self.takes_sign(&['=', ':']);
        let number = self.number()?;
        match period {
            Some(period) => self.rate(number, period),
            None => self.ends().then(|| Some(format!("{} at once", number.whole()?)))?,
        }
    }

    fn concurrent(&mut self, number: Fraction) -> Option<String> {
        let start = self.at;
        self.takes(&["in"]);
        let says = self.takes(&["concurrent", "concurrently", "parallel", "simultaneous", "simultaneously"]);
        self.takes(NOUNS);
        if says && self.ends() {
            return Some(format!("{} at once", number.whole()?));
        }
        self.at = start;
        None
    }

    /// `hour`, `1 hour`, `5 minutes`, `1h30m`.
    fn period(&mut self) -> Option<Period> {
        let mut micros = 0_u64;
        let mut units = 0;
        loop {
            let counted = matches!(self.peek(), Some(Token::Number(_)));
            if units > 0 && !counted {
                break;
            }
            let count = if counted { self.plain_number()?.whole()? } else { 1 };
            let Some(Token::Word(word)) = self.peek() else { return None };
            if units == 0 && count == 1 && matches!(&**word, "month" | "months" | "mo" | "mon") {
                self.at += 1;
                return Some(Period::Month);
            }
            micros = micros.checked_add(count.checked_mul(unit(word)?)?)?;
            self.at += 1;
            units += 1;
            if !counted {
                break;
            }
        }
        Some(Period::Fixed(Span::from_micros(micros)))
    }

    /// The rate, with the burst or the kind that follows it.
    fn rate(&mut self, number: Fraction, period: Period) -> Option<String> {
        let every = match period {
            Period::Month => {
                let max = number.whole()?;
                if self.ends() {
                    return Some(format!("{max}/month calendar"));
                }
                return Some(format!("{max}/month {}", self.own_words()?));
            }
            // Half a request a second is one in two.
            Period::Fixed(span) => Span::from_micros(span.as_micros().checked_mul(number.under)?),
        };
        let rate = format!("{}/{}", Fraction { under: 1, ..number }.whole()?, Every(every));
        if self.ends() {
            return Some(rate);
        }
        if matches!(self.peek(), Some(Token::Word(word)) if matches!(&**word, "sliding" | "calendar")) {
            return Some(format!("{rate} {}", self.own_words()?));
        }
        let burst = self.burst()?;
        self.ends().then(|| format!("{rate} burst {burst}"))
    }

    /// `burst=20 nodelay`, `with a burst of 20`.
    fn burst(&mut self) -> Option<u64> {
        self.takes_sign(&[',', '+']);
        self.takes(&["with"]);
        self.takes(&["a"]);
        if !self.takes(&["burst"]) {
            return None;
        }
        self.takes(&["size", "of"]);
        self.takes_sign(&['=', ':']);
        let burst = self.number()?.whole()?;
        self.takes(&["nodelay"]);
        Some(burst)
    }

    /// The rest of the text as it was written, from a word that this grammar knows on.
    fn own_words(&self) -> Option<&str> {
        let at = ["sliding", "calendar"].iter().filter_map(|word| self.text.find(word)).min()?;
        Some(self.text[at..].trim_end())
    }

    /// A number, with its thousands or millions.
    fn number(&mut self) -> Option<Fraction> {
        let number = self.plain_number()?;
        if self.takes(&["k", "thousand"]) {
            number.times(1_000)
        } else if self.takes(&["M", "million"]) {
            number.times(1_000_000)
        } else {
            Some(number)
        }
    }

    fn plain_number(&mut self) -> Option<Fraction> {
        let Some(Token::Number(number)) = self.peek().cloned() else { return None };
        self.at += 1;
        Some(number)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn ends(&self) -> bool {
        self.at == self.tokens.len()
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let is = matches!(self.peek(), Some(Token::Word(word)) if words.contains(&&**word));
        self.at += usize::from(is);
        is
    }

    fn takes_sign(&mut self, signs: &[char]) -> bool {
        let is = matches!(self.peek(), Some(Token::Sign(sign)) if signs.contains(sign));
        self.at += usize::from(is);
        is
    }
}

/// What other programs say they count. Another word might change the number, as `MB` or `dozen` does.
#[rustfmt::skip]
const NOUNS: &[&str] = &[
    "r", "req", "reqs", "request", "requests", "call", "calls", "hit", "hits", "query", "queries", "attempt",
    "attempts", "message", "messages", "msg", "msgs", "mail", "mails", "email", "emails", "event", "events",
    "op", "ops", "operation", "operations", "transaction", "transactions", "login", "logins", "connection",
    "connections", "conn", "conns", "job", "jobs", "time", "times", "x",
];

/// `rps`, `qpm`, `tph`: something per second, minute, hour or day.
fn abbreviated(word: &str) -> Option<Period> {
    let secs = match word.strip_prefix(['r', 'q', 't', 'c'])? {
        "ps" => 1,
        "pm" => 60,
        "ph" => 3_600,
        "pd" => 86_400,
        _ => return None,
    };
    Some(Period::Fixed(Span::from_secs(secs)))
}

/// The microseconds of a unit. `M` may be a minute or a month, so it is none.
fn unit(word: &str) -> Option<u64> {
    Some(match word {
        "us" => 1,
        "ms" | "msec" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        "w" | "wk" | "week" | "weeks" => 604_800_000_000,
        _ => return None,
    })
}
