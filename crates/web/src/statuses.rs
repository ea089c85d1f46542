//! Sets of HTTP statuses, for `count_when`.
//!
//! Written as one, as several, or as all except some:
//!
//! ```text
//! statuses = [ "not" ] ( status | "[" status { "," status } "]" )
//! status   = 100 … 599 | "1xx" | "2xx" | "3xx" | "4xx" | "5xx"
//! ```

use std::fmt;
use std::str::FromStr;

use tollgate_core::grammar::GrammarError;
use tollgate_core::{OutcomeClass, OutcomeClasses};

/// A non-empty set of statuses from 100 to 599.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Statuses(OutcomeClasses);

/// One written entry: a status, or a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusEntry {
    One(u16),
    Hundred(u16),
}

const FIRST: u16 = 100;
const LAST: u16 = 599;

/// The valid forms, for error messages.
const FORMS: &str = "a status is `100` to `599`, or all of a kind, as in `4xx`";

impl Statuses {
    /// The class of a response with this status: all that the engine sees of it.
    pub fn class_of(status: u16) -> OutcomeClass {
        if (FIRST..=LAST).contains(&status) { OutcomeClass(status) } else { OutcomeClass::UNKNOWN }
    }

    /// The classes of responses with these statuses.
    pub fn classes(&self) -> OutcomeClasses {
        self.0
    }

    /// Whether the set contains a status. It contains every number that is not a status, so that no client
    /// evades a limit by one.
    pub fn contains(&self, status: u16) -> bool {
        self.0.contains(Self::class_of(status))
    }

    /// Parses one entry of a list: a status, or a class.
    pub fn entry(text: &str) -> Result<Self, GrammarError> {
        let mut rest = Rest { text, at: 0 };
        let entry = rest.entry()?;
        rest.end(entry.into())
    }

    /// The union of both.
    #[must_use]
    pub fn or(self, those: Self) -> Self {
        all().filter(|status| self.contains(*status) || those.contains(*status)).collect()
    }

    /// The complement, if it is not empty.
    #[must_use]
    pub fn others(&self) -> Option<Self> {
        let others: Self = all().filter(|status| !self.contains(*status)).collect();
        (others != Self::default()).then_some(others)
    }

    /// Its entries as written, classes before single statuses of other classes: `4xx`, `503`.
    pub fn written(&self) -> impl Iterator<Item = impl fmt::Display> {
        self.entries().into_iter()
    }

    /// Whether it is written as `not` the complement, because that is shorter.
    pub fn is_written_by_others(&self) -> bool {
        self.others().is_some_and(|others| others.entries().len() < self.entries().len())
    }

    fn entries(&self) -> Vec<StatusEntry> {
        let mut entries = Vec::new();
        for hundred in FIRST / 100..=LAST / 100 {
            let all = hundred * 100..=hundred * 100 + 99;
            if all.clone().all(|status| self.contains(status)) {
                entries.push(StatusEntry::Hundred(hundred));
            } else {
                entries.extend(all.filter(|status| self.contains(*status)).map(StatusEntry::One));
            }
        }
        entries
    }
}

fn all() -> impl Iterator<Item = u16> {
    FIRST..=LAST
}

impl FromIterator<u16> for Statuses {
    fn from_iter<I: IntoIterator<Item = u16>>(statuses: I) -> Self {
        Self(statuses.into_iter().map(Self::class_of).collect())
    }
}

/// The statuses whose classes these are.
impl From<OutcomeClasses> for Statuses {
    fn from(classes: OutcomeClasses) -> Self {
        Self(classes)
    }
}

impl From<StatusEntry> for Statuses {
    fn from(entry: StatusEntry) -> Self {
        match entry {
            StatusEntry::One(status) => [status].into_iter().collect(),
            StatusEntry::Hundred(hundred) => (hundred * 100..=hundred * 100 + 99).collect(),
        }
    }
}

/// The rest of a text.
struct Rest<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Rest<'t> {
    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The next word without consuming it: letters and digits, or one sign, or nothing at the end.
    fn peek(&mut self) -> &'t str {
        self.skip_space();
        let rest = &self.text[self.at..];
        let letters = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        match letters {
            0 => &rest[..rest.chars().next().map_or(0, char::len_utf8)],
            letters => &rest[..letters],
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == word;
        if is {
            self.at += word.len();
        }
        is
    }

    fn entry(&mut self) -> Result<StatusEntry, GrammarError> {
        let word = self.peek();
        let entry = entry_of(word).ok_or_else(|| self.wrong(&mistaken(word)))?;
        self.at += word.len();
        Ok(entry)
    }

    fn list(&mut self) -> Result<Statuses, GrammarError> {
        if !self.take("[") {
            let entry = self.entry()?;
            if self.peek() == "," {
                return Err(self.wrong("several statuses go into brackets, as in `[401, 403]`"));
            }
            return Ok(entry.into());
        }
        let mut found = Statuses::default();
        if self.peek() == "]" {
            return Err(self.wrong("an empty list counts nothing: leave the rule out instead"));
        }
        loop {
            found = found.or(self.entry()?.into());
            if self.take("]") {
                return Ok(found);
            }
            if !self.take(",") {
                return Err(self.wrong("after a status comes `,` or `]`"));
            }
        }
    }

    fn end(&mut self, statuses: Statuses) -> Result<Statuses, GrammarError> {
        match self.peek() {
            "" => Ok(statuses),
            word => Err(self.wrong(&format!("`{word}` is one word too many"))),
        }
    }

    fn wrong(&self, problem: &str) -> GrammarError {
        GrammarError { text: self.text.to_owned(), at: self.at, problem: problem.to_owned() }
    }
}

fn entry_of(word: &str) -> Option<StatusEntry> {
    let number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    match word.strip_suffix("xx") {
        Some(hundred) if hundred.len() == 1 => number(hundred)
            .filter(|hundred| (FIRST / 100..=LAST / 100).contains(hundred))
            .map(StatusEntry::Hundred),
        Some(_) => None,
        None if word.len() == 3 => {
            number(word).filter(|status| (FIRST..=LAST).contains(status)).map(StatusEntry::One)
        }
        None => None,
    }
}

/// The error for a word that is not a status.
fn mistaken(word: &str) -> String {
    match word {
        "" => format!("a status is missing: {FORMS}"),
        "not" => "`not` goes before all of them, as in `not [404, 5xx]`".to_owned(),
        word => {
            let word: String = word.chars().take(16).collect();
            let spelled = word.to_ascii_lowercase();
            match entry_of(&spelled) {
                Some(_) => format!("`{word}` is written `{spelled}`"),
                None => format!("`{word}` is not a status: {FORMS}"),
            }
        }
    }
}

impl FromStr for Statuses {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut rest = Rest { text, at: 0 };
        let others = rest.take("not");
        rest.skip_space();
        let start = rest.at;
        let found = rest.list()?;
        let found = rest.end(found)?;
        if !others {
            return Ok(found);
        }
        rest.at = start;
        found.others().ok_or_else(|| rest.wrong("these are all there are, and no answer would be counted"))
    }
}

/// Prints in the form that it is parsed from, by the complement if that is shorter.
impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = *self;
        if let Some(others) = self.others().filter(|_| self.is_written_by_others()) {
            f.write_str("not ")?;
            shown = others;
        }
        let entries = shown.entries();
        if let [entry] = &*entries {
            return entry.fmt(f);
        }
        for (index, entry) in entries.iter().enumerate() {
            write!(f, "{}{entry}", if index == 0 { "[" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for StatusEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(status) => status.fmt(f),
            Self::Hundred(hundred) => write!(f, "{hundred}xx"),
        }
    }
}

impl fmt::Debug for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Statuses({self})")
    }
}
