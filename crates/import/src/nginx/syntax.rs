//! The syntax of nginx: directives, their arguments and blocks, with positions.

use std::sync::Arc;

use tollgate_tree::{Place, SyntaxError};

/// A directive.
#[derive(Debug)]
pub(crate) struct Directive {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) place: Place,
    /// What is between its braces.
    pub(crate) block: Vec<Directive>,
}

/// The deepest nesting: http, server, location, and locations and conditions in it.
const MOST_DEPTH: usize = 32;

/// Parses a file.
pub(crate) fn read(text: &str, source: &Arc<str>) -> Result<Vec<Directive>, SyntaxError> {
    let mut tokens = Tokens { rest: text, line: 1, column: 1, source };
    // Open blocks: the directive, and those before it on its level.
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut level: Vec<Directive> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut start = None;
    while let Some((token, place)) = tokens.next()? {
        match token {
            Token::Word(word) => {
                start.get_or_insert(place);
                words.push(word);
            }
            Token::End => level.extend(directive(&mut words, &mut start)),
            Token::Open => {
                let Some(directive) = directive(&mut words, &mut start) else {
                    return Err(wrong(place, "a block without a name before its `{`"));
                };
                if directive.name.ends_with("_by_lua_block") {
                    tokens.skip_block(&place)?;
                    level.push(directive);
                } else if open.len() == MOST_DEPTH {
                    return Err(wrong(
                        place,
                        "blocks are nested more than 32 levels deep: no nginx needs that",
                    ));
                } else {
                    open.push((directive, std::mem::take(&mut level)));
                }
            }
            Token::Close => {
                if let Some(start) = start {
                    return Err(wrong(start, "the directive does not end with `;`"));
                }
                let Some((mut directive, mut before)) = open.pop() else {
                    return Err(wrong(place, "this `}` closes no block"));
                };
                directive.block = std::mem::take(&mut level);
                before.push(directive);
                level = before;
            }
        }
    }
    if let Some(start) = start {
        return Err(wrong(start, "the directive does not end with `;`"));
    }
    match open.pop() {
        Some((directive, _)) => {
            Err(wrong(directive.place, &format!("the block of `{}` is never closed", directive.name)))
        }
        None => Ok(level),
    }
}

fn directive(words: &mut Vec<String>, start: &mut Option<Place>) -> Option<Directive> {
    let place = start.take()?;
    let mut words = words.drain(..);
    Some(Directive { name: words.next()?, arguments: words.collect(), place, block: Vec::new() })
}

fn wrong(place: Place, message: &str) -> SyntaxError {
    SyntaxError { place, message: format!("not valid nginx: {message}") }
}

enum Token {
    Word(String),
    /// `;`
    End,
    Open,
    Close,
}

struct Tokens<'t> {
    rest: &'t str,
    line: usize,
    column: usize,
    source: &'t Arc<str>,
}

impl Tokens<'_> {
    fn next(&mut self) -> Result<Option<(Token, Place)>, SyntaxError> {
        loop {
            let Some(first) = self.rest.chars().next() else { return Ok(None) };
            if first.is_whitespace() {
                self.step(first);
            } else if first == '#' {
                let length = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[length..];
            } else {
                break;
            }
        }
        let place = self.place();
        let first = self.rest.chars().next();
        let token = match first {
            Some(';') => Token::End,
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            _ => return Ok(Some((Token::Word(self.word(&place)?), place))),
        };
        first.into_iter().for_each(|first| self.step(first));
        Ok(Some((token, place)))
    }

    /// A word, or a text in quotes. `${name}` belongs to its word.
    fn word(&mut self, place: &Place) -> Result<String, SyntaxError> {
        let mut word = String::new();
        let quote = self.rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        quote.into_iter().for_each(|quote| self.step(quote));
        let mut in_variable = false;
        while let Some(c) = self.rest.chars().next() {
            match (quote, c) {
                (Some(quote), c) if c == quote => {
                    self.step(c);
                    return Ok(word);
                }
                (_, '\\') => {
                    self.step(c);
                    word.push('\\');
                    if let Some(next) = self.rest.chars().next() {
                        word.push(next);
                        self.step(next);
                    }
                    continue;
                }
                (None, '{') if word.ends_with('$') => in_variable = true,
                (None, '}') if in_variable => in_variable = false,
                (None, ';' | '{' | '}') => return Ok(word),
                (None, c) if c.is_whitespace() => return Ok(word),
                _ => {}
            }
            word.push(c);
            self.step(c);
        }
        match quote {
            None => Ok(word),
            Some(_) => Err(wrong(place.clone(), "the quotes are never closed")),
        }
    }

    /// Skips a block in another language, whose braces are balanced.
    fn skip_block(&mut self, place: &Place) -> Result<(), SyntaxError> {
        let mut depth = 1;
        while let Some(c) = self.rest.chars().next() {
            self.step(c);
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(wrong(place.clone(), "the block is never closed"))
    }

    fn step(&mut self, c: char) {
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            (self.line, self.column) = (self.line + 1, 1);
        } else {
            self.column += 1;
        }
    }

    fn place(&self) -> Place {
        Place::At { source: Arc::clone(self.source), line: self.line, column: self.column }
    }
}
