//! The grammar of ladders: steps from the lowest, and how long failures are remembered.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use super::{GrammarError, Words, Written};
use crate::limit::{Ladder, Limit, Pause, Step};
use crate::time::Span;

/// Parses the text after the word `ladder`.
pub(super) fn ladder(words: &mut Words<'_>) -> Result<Written, GrammarError> {
    words.next();
    let mut steps: Vec<Step> = Vec::new();
    loop {
        let start = words.skip_space();
        if steps.len() == Ladder::MOST_STEPS {
            return Err(words.wrong_at(start, "a ladder has at most 8 steps"));
        }
        let step = step(words, steps.last())?;
        steps.push(step);
        match words.peek() {
            "then" => words.next(),
            _ => break,
        };
    }
    let longest = steps.last().map_or(Span::ZERO, |step| step.pause.span());
    if longest == Span::ZERO {
        return Err(words.wrong("the last step has no delay: give it one or a lock, as in `+2s`"));
    }
    let forget = forget(words, longest)?;
    words.end(Some(Limit::Ladder(Ladder::new(steps.into(), forget))))
}

fn step(words: &mut Words<'_>, before: Option<&Step>) -> Result<Step, GrammarError> {
    let start = words.skip_space();
    let from = words.number("a step begins with the number of failures, as in `ladder 4 +2s`")?;
    if from == 0 {
        return Err(words.wrong_at(start, "failures are counted from 1 on"));
    }
    if from > Ladder::MOST {
        return Err(words.wrong_at(start, "a ladder remembers at most 1000 failures"));
    }
    if let Some(before) = before.filter(|before| from <= before.from) {
        let problem = format!("each step takes more failures than the one before: more than {}", before.from);
        return Err(words.wrong_at(start, &problem));
    }
    let mut step = Step { from, pause: Pause::None, captcha: false, notify: false };
    let least = before.map_or(Span::ZERO, |before| before.pause.span());
    loop {
        let start = words.skip_space();
        let word = words.peek();
        let again = match word {
            "+" | "lock" => step.pause != Pause::None,
            "captcha" => step.captcha,
            "notify" => step.notify,
            _ => break,
        };
        if again {
            return Err(words.wrong_at(start, "a step has one delay or lock, one `captcha` and one `notify`"));
        }
        words.next();
        match word {
            "+" => step.pause = Pause::Delay(pause(words, least)?),
            "lock" => step.pause = Pause::Lock(pause(words, least)?),
            "captcha" => step.captcha = true,
            _ => step.notify = true,
        }
    }
    after(words, step, least)
}

/// Checks that a step has an effect, and that a known word follows it.
fn after(words: &mut Words<'_>, step: Step, least: Span) -> Result<Step, GrammarError> {
    let known = matches!(words.peek(), "" | "then" | "forget");
    if step.pause == Pause::None && !step.captcha && !step.notify {
        return Err(words.wrong("a step needs an effect: `+2s`, `lock 15m`, `captcha`, `notify`"));
    }
    if !known {
        return Err(words.wrong("after a step comes `then`, `forget` or nothing"));
    }
    if step.pause.span() < least {
        let problem =
            format!("a later step waits at least as long as the one before: {least}, as in `+{least}`");
        return Err(words.wrong(&problem));
    }
    Ok(step)
}

fn pause(words: &mut Words<'_>, least: Span) -> Result<Span, GrammarError> {
    let start = words.skip_space();
    let span = words.duration()?;
    if span < least {
        let problem = format!("a later step waits at least as long as the one before: {least}");
        return Err(words.wrong_at(start, &problem));
    }
    Ok(span)
}

/// How long failures are remembered: at least as long as the longest pause.
fn forget(words: &mut Words<'_>, longest: Span) -> Result<Span, GrammarError> {
    if words.peek() != "forget" {
        return Ok(Ladder::FORGET.max(longest));
    }
    words.next();
    let start = words.skip_space();
    let forget = words.duration()?;
    if forget < longest {
        let problem = format!(
            "failures would be forgotten before the longest delay ends: remember them for at least {longest}"
        );
        return Err(words.wrong_at(start, &problem));
    }
    Ok(forget)
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps().iter().enumerate() {
            f.write_str(if index == 0 { "ladder " } else { " then " })?;
            step.fmt(f)?;
        }
        write!(f, " forget {}", self.forget())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.from)?;
        match self.pause {
            Pause::None => {}
            Pause::Delay(span) => write!(f, " +{span}")?,
            Pause::Lock(span) => write!(f, " lock {span}")?,
        }
        f.write_str(if self.captcha { " captcha" } else { "" })?;
        f.write_str(if self.notify { " notify" } else { "" })
    }
}
