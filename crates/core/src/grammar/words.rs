//! Splits the text of a limit into words; parses numbers, periods and durations.

use alloc::borrow::ToOwned;

use super::{GrammarError, Length, WHOLE};
use crate::MAX_EXACT;
use crate::time::Span;

/// The words of a text: runs of letters, runs of digits, signs.
pub(crate) struct Words<'t> {
    pub(super) text: &'t str,
    pub(super) at: usize,
}

impl<'t> Words<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn skip_space(&mut self) -> usize {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    fn run(&self, from: usize, belongs: impl Fn(char) -> bool) -> &'t str {
        let rest = &self.text[from..];
        &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())]
    }

    pub(crate) fn peek(&mut self) -> &'t str {
        let from = self.skip_space();
        match self.text[from..].chars().next() {
            None => "",
            Some(c) if c.is_ascii_digit() => self.run(from, |c| c.is_ascii_digit() || c == '_'),
            Some(c) if c.is_alphabetic() => self.run(from, |c| c.is_alphanumeric() || c == '_' || c == '-'),
            Some(c) => &self.text[from..from + c.len_utf8()],
        }
    }

    pub(crate) fn next(&mut self) -> &'t str {
        let word = self.peek();
        self.at += word.len();
        word
    }

    pub(crate) fn number(&mut self, otherwise: &str) -> Result<u64, GrammarError> {
        let start = self.skip_space();
        let word = self.peek();
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.wrong(otherwise));
        }
        let mut number = 0_u64;
        for digit in word.bytes().filter(|byte| *byte != b'_') {
            number = number * 10 + u64::from(digit - b'0');
            if number > MAX_EXACT {
                return Err(
                    self.wrong_at(start, "the largest number that is exact everywhere is 9007199254740991")
                );
            }
        }
        self.next();
        if self.text[self.at..].starts_with('.') {
            return Err(self.wrong(WHOLE));
        }
        Ok(number)
    }

    pub(super) fn period(&mut self) -> Result<Length, GrammarError> {
        let start = self.skip_space();
        let word = self.peek();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return self.duration().map(Length::Fixed);
        }
        let secs = match word {
            "s" | "sec" | "second" => 1,
            "min" | "minute" => 60,
            "h" | "hour" => 3_600,
            "d" | "day" => 86_400,
            "w" | "week" => 604_800,
            "month" => {
                self.next();
                return Ok(Length::Month);
            }
            _ => {
                return Err(self.wrong_at(
                    start,
                    "a period is `s`, `min`, `hour`, `day`, `week`, `month` or a duration such as `15m`",
                ));
            }
        };
        self.next();
        Ok(Length::Fixed(Span::from_secs(secs)))
    }

    pub(crate) fn duration(&mut self) -> Result<Span, GrammarError> {
        let start = self.skip_space();
        let mut micros = 0_u64;
        loop {
            let number = self.number("a duration is a number and a unit, as in `30s`, `15m` or `1h30m`")?;
            let unit = self.run(self.at, |c| c.is_alphabetic());
            let size = match unit {
                "us" => 1,
                "ms" => 1_000,
                "s" => 1_000_000,
                "m" | "min" => 60_000_000,
                "h" => 3_600_000_000,
                "d" => 86_400_000_000,
                "w" => 604_800_000_000,
                _ => return Err(self.wrong("the units of a duration are `us ms s m h d w`")),
            };
            self.at += unit.len();
            micros = micros.saturating_add(number.saturating_mul(size));
            if !self.text[self.at..].starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
        }
        if micros == 0 || Span::from_micros(micros) > Span::MAX {
            return Err(self.wrong_at(start, "a duration is more than nothing and at most ten years"));
        }
        Ok(Span::from_micros(micros))
    }

    pub(super) fn zone(&mut self) -> Result<&'t str, GrammarError> {
        let from = self.skip_space();
        let name = self.run(from, |c| c.is_ascii_alphanumeric() || "/_-+".contains(c));
        if name.is_empty() {
            return Err(self.wrong("`in` is followed by a time zone, as in `in Europe/Berlin`"));
        }
        self.at += name.len();
        Ok(name)
    }

    pub(crate) fn expect(&mut self, word: &str, example: &str) -> Result<(), GrammarError> {
        if self.peek() == word {
            self.next();
            return Ok(());
        }
        Err(self.wrong(&alloc::format!("expected `{word}`, as in `{example}`")))
    }

    pub(crate) fn end<T>(&mut self, value: T) -> Result<T, GrammarError> {
        match self.peek() {
            "" => Ok(value),
            word => {
                let problem = alloc::format!("`{word}` is one word too many");
                Err(self.wrong(&problem))
            }
        }
    }

    pub(super) fn wrong(&self, problem: &str) -> GrammarError {
        self.wrong_at(self.at, problem)
    }

    pub(crate) fn wrong_at(&self, at: usize, problem: &str) -> GrammarError {
        GrammarError { text: self.text.to_owned(), at, problem: problem.to_owned() }
    }
}
