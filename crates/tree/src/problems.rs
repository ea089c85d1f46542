//! What is wrong with a text: the first problems, and how many more there are.

use std::fmt;

/// How many problems are listed. A longer list would not help its reader.
const MOST_LISTED: usize = 50;

/// Problems in the order in which they were found. Prints each on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems<P> {
    listed: Vec<P>,
    more: usize,
}

impl<P> Problems<P> {
    /// Adds a problem. It is made only if it is listed.
    pub fn add(&mut self, make: impl FnOnce() -> P) {
        if self.listed.len() < MOST_LISTED {
            self.listed.push(make());
        } else {
            self.more += 1;
        }
    }

    /// The listed problems.
    pub fn iter(&self) -> std::slice::Iter<'_, P> {
        self.listed.iter()
    }

    /// How many more were found.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }
}

impl<P> Default for Problems<P> {
    fn default() -> Self {
        Self { listed: Vec::new(), more: 0 }
    }
}

impl<P> Extend<P> for Problems<P> {
    fn extend<I: IntoIterator<Item = P>>(&mut self, problems: I) {
        for problem in problems {
            self.add(|| problem);
        }
    }
}

impl<P> FromIterator<P> for Problems<P> {
    fn from_iter<I: IntoIterator<Item = P>>(problems: I) -> Self {
        let mut all = Self::default();
        all.extend(problems);
        all
    }
}

impl<P> IntoIterator for Problems<P> {
    type Item = P;
    type IntoIter = std::vec::IntoIter<P>;

    fn into_iter(self) -> Self::IntoIter {
        self.listed.into_iter()
    }
}

impl<'p, P> IntoIterator for &'p Problems<P> {
    type Item = &'p P;
    type IntoIter = std::slice::Iter<'p, P>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<P: fmt::Display> fmt::Display for Problems<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.listed.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_beyond_the_most_are_only_counted() {
        let made = std::cell::Cell::new(0);
        let mut problems = Problems::default();
        for number in 0..MOST_LISTED + 3 {
            problems.add(|| {
                made.set(made.get() + 1);
                number
            });
        }
        assert_eq!((problems.iter().count(), problems.more(), made.get()), (MOST_LISTED, 3, MOST_LISTED));
        assert!(problems.to_string().starts_with("0\n1\n2\n"));
        assert!(problems.to_string().ends_with("\n49\nand 3 more"));
    }
}
