//! Rewrites limits in other programs' notations (`10r/s burst=20`, `100rpm`, `minute: 100`) in this grammar.
//!
//! A rewrite is offered only if every character of the text was understood, and it never changes a number. An
//! ambiguous text (`100/M`, `1.000/s`) gets no rewrite. nginx's own notation (`10r/s`, `nodelay`) is
//! rewritten as nginx counts: it spaces requests evenly, and admits one more than its burst. The importer of foreign
//! files uses the same rewrites.

mod tokens;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::print::Every;
use super::{GrammarError, Words, read};
use crate::time::Span;
use tokens::{Fraction, Token, is_thousands, tokens};

/// Adds the rewrite to an error, if there is one.
pub(super) fn explain(error: GrammarError) -> GrammarError {
    if error.problem == super::MONTH {
        return error;
    }
    if error.text.trim_start().starts_with("burst") {
        return GrammarError { problem: LONE_BURST.to_string(), ..error };
    }
    let Some(rewrites) = rewrite(&error.text) else { return error };
    let problem = match rewrites.as_slice() {
        [one] if error.problem == super::WHOLE => format!("{}: write {one}", error.problem),
        [one] => format!("write {one}"),
        several => {
            let quoted: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!(
                "these are {} limits: write each as an entry of its own, {}",
                several.len(),
                quoted.join(" and ")
            )
        }
    };
    GrammarError { at: first_foreign(&error), problem, ..error }
}

/// The error for a burst without its rate.
const LONE_BURST: &str = "a burst follows its rate in the same limit, as in `10/s burst 50`";

/// A limit in this grammar, and a setting that must accompany it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The limit.
    pub limit: String,
    /// How long requests over the rate wait, if the other program queues them.
    pub wait: Option<Span>,
}

impl From<String> for Rewrite {
    fn from(limit: String) -> Self {
        Self { limit, wait: None }
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.limit)?;
        match self.wait {
            Some(wait) => write!(f, " and, in its rule, `on_exceed: wait {wait}`"),
            None => Ok(()),
        }
    }
}

/// Where the text leaves the grammar: after its first number, or later.
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

/// Rewrites a text in another program's notation in this grammar: one limit for each of its parts. `None` if a part
/// is not understood, is ambiguous, or limits nothing.
pub fn rewrite(text: &str) -> Option<Vec<Rewrite>> {
    // A longer text is not a limit in any program, and an untrusted client may send it.
    if text.len() > 200 {
        return None;
    }
    let parts = parts(text);
    let one = |part: &str| match read(part) {
        Ok(Some(_)) => Some(part.trim().to_string().into()),
        Ok(None) => None,
        Err(_) => Reader { tokens: tokens(part)?, at: 0, text: part, nginx: false }.limit(),
    };
    parts.into_iter().map(one).collect()
}

/// Splits a text where one limit ends and the next begins.
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

/// The period of a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ForeignPeriod {
    Fixed(Span),
    Month,
}

struct Reader<'t> {
    tokens: Vec<Token>,
    at: usize,
    text: &'t str,
    /// Whether the rate is in nginx's notation.
    nginx: bool,
}

impl Reader<'_> {
    /// The whole text as one limit of this grammar.
    fn limit(mut self) -> Option<Rewrite> {
        if self.takes(&["rate"]) {
            self.takes_sign(&['=', ':']);
        }
        let rewrite =
            if let Some(Token::Number(_)) = self.peek() { self.counted()? } else { self.labelled()? };
        // The rewrite must parse like any other limit, and must limit something.
        let means = read(&rewrite.limit).ok()?;
        means.map(|_| rewrite)
    }

    /// `100rpm`, `10 requests per second`, `5 concurrent`.
    fn counted(&mut self) -> Option<Rewrite> {
        let number = self.number()?;
        if let Some(text) = self.concurrent(number) {
            return Some(text.into());
        }
        if let Some(Token::Word(word)) = self.peek()
            && let Some(period) = abbreviated(word)
        {
            self.at += 1;
            return self.rate(number, period);
        }
        let nginx = self.takes(&["r"]);
        if !nginx {
            self.takes(NOUNS);
        }
        if !self.takes_sign(&['/']) && !self.takes(&["per", "every", "each", "a", "an", "in"]) {
            return None;
        }
        self.nginx = nginx && matches!(self.peek(), Some(Token::Word(unit)) if matches!(&**unit, "s" | "m"));
        let period = self.period()?;
        self.rate(number, period)
    }

    /// `minute: 100`, `requests_per_second=10`, `concurrency: 5`.
    fn labelled(&mut self) -> Option<Rewrite> {
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
            None => self.ends().then(|| Some(format!("{} at once", number.whole()?).into()))?,
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
    fn period(&mut self) -> Option<ForeignPeriod> {
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
                return Some(ForeignPeriod::Month);
            }
            micros = micros.checked_add(count.checked_mul(unit(word)?)?)?;
            self.at += 1;
            units += 1;
            if !counted {
                break;
            }
        }
        Some(ForeignPeriod::Fixed(Span::from_micros(micros)))
    }

    /// The rate, with the burst or the kind after it.
    fn rate(&mut self, number: Fraction, period: ForeignPeriod) -> Option<Rewrite> {
        let every = match period {
            ForeignPeriod::Month => {
                let max = number.whole()?;
                if self.ends() {
                    return Some(format!("{max}/month calendar").into());
                }
                return Some(format!("{max}/month {}", self.own_words()?).into());
            }
            // Half a request a second is one in two seconds.
            ForeignPeriod::Fixed(span) => Span::from_micros(span.as_micros().checked_mul(number.under)?),
        };
        let count = Fraction { under: 1, ..number }.whole()?;
        let rate = format!("{count}/{}", Every(every));
        if self.ends() {
            return Some(if self.nginx { format!("{rate} burst 1") } else { rate }.into());
        }
        if matches!(self.peek(), Some(Token::Word(word)) if matches!(&**word, "sliding" | "calendar")) {
            return Some(format!("{rate} {}", self.own_words()?).into());
        }
        let burst = self.burst()?;
        let nodelay = self.takes(&["nodelay"]);
        let prompt = if self.takes(&["delay"]) { Some(self.counted_after_sign()?) } else { None };
        if !self.ends() || nodelay && prompt.is_some() {
            return None;
        }
        // nginx passes `delay` requests above the first at once, and queues the others.
        let prompt = if nodelay { burst } else { prompt.unwrap_or(0).min(burst) };
        if nodelay || self.nginx && prompt == burst {
            return Some(format!("{rate} burst {}", burst.checked_add(1)?).into());
        }
        if self.nginx {
            // The last request in nginx's queue waits until those before it have gone.
            let wait = every.as_micros().checked_mul(burst - prompt)?.checked_div(count)?;
            let limit = format!("{rate} burst {}", prompt + 1);
            return Some(Rewrite { limit, wait: Some(Span::from_micros(wait)) });
        }
        (prompt == 0).then(|| format!("{rate} burst {burst}").into())
    }

    /// `burst=20`, `with a burst of 20`.
    fn burst(&mut self) -> Option<u64> {
        self.takes_sign(&[',', '+']);
        self.takes(&["with"]);
        self.takes(&["a"]);
        if !self.takes(&["burst"]) {
            return None;
        }
        self.takes(&["size", "of"]);
        self.takes_sign(&['=', ':']);
        self.number()?.whole()
    }

    /// `=8`.
    fn counted_after_sign(&mut self) -> Option<u64> {
        self.takes_sign(&['=']);
        self.plain_number()?.whole()
    }

    /// The rest of the text unchanged, from a word of this grammar on.
    fn own_words(&self) -> Option<&str> {
        let at = ["sliding", "calendar"].iter().filter_map(|word| self.text.find(word)).min()?;
        Some(self.text[at..].trim_end())
    }

    /// A number, with a factor of a thousand or a million.
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

/// The nouns of other programs. Another word might change the number, as `MB` or `dozen` does.
#[rustfmt::skip]
const NOUNS: &[&str] = &[
    "r", "req", "reqs", "request", "requests", "call", "calls", "hit", "hits", "query", "queries", "attempt",
    "attempts", "message", "messages", "msg", "msgs", "mail", "mails", "email", "emails", "event", "events",
    "op", "ops", "operation", "operations", "transaction", "transactions", "login", "logins", "connection",
    "connections", "conn", "conns", "job", "jobs", "time", "times", "x",
];

/// `rps`, `qpm`, `tph`: something per second, minute, hour or day.
fn abbreviated(word: &str) -> Option<ForeignPeriod> {
    let secs = match word.strip_prefix(['r', 'q', 't', 'c'])? {
        "ps" => 1,
        "pm" => 60,
        "ph" => 3_600,
        "pd" => 86_400,
        _ => return None,
    };
    Some(ForeignPeriod::Fixed(Span::from_secs(secs)))
}

/// The microseconds of a unit. `M` is ambiguous (minute or month), so it is none.
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
