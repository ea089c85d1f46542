//! Path patterns as a tree of segments.

use smallvec::SmallVec;

use super::Candidate;
use crate::settings::PathPattern;
use crate::settings::Segment;

/// The patterns of one host.
#[derive(Debug, Default)]
pub(super) struct Tree {
    root: Node,
}

#[derive(Debug, Default)]
struct Node {
    /// Sorted by text.
    literals: Vec<(Box<str>, Node)>,
    parameter: Option<Box<Node>>,
    /// The routes of patterns that end here, in the order in which they are tried.
    here: Vec<Candidate>,
    /// The routes of patterns with `/*` here.
    open: Vec<Candidate>,
}

/// The `/*` routes along the path, each with its number of segments.
type Visited<'t> = SmallVec<[(usize, &'t [Candidate]); 8]>;

impl Tree {
    /// Adds a route. Fails with an earlier route that hides it completely.
    pub(super) fn add(&mut self, pattern: &PathPattern, candidate: &Candidate) -> Result<(), usize> {
        let node = pattern.segments.iter().fold(&mut self.root, Node::child);
        let candidates = if pattern.open { &mut node.open } else { &mut node.here };
        if let Some(earlier) = candidates.iter().find(|earlier| earlier.hides(candidate)) {
            return Err(earlier.route);
        }
        // After routes of the same rank, which were written first.
        let place = candidates.partition_point(|earlier| earlier.rank() <= candidate.rank());
        candidates.insert(place, candidate.clone());
        Ok(())
    }

    /// The first route for this path that `accept` accepts.
    pub(super) fn find<'t>(
        &'t self,
        path: &str,
        mut accept: impl FnMut(&Candidate) -> bool,
    ) -> Option<&'t Candidate> {
        let mut passed = Visited::new();
        let rest = path.strip_prefix('/').unwrap_or(path);
        if let Some(candidate) = self.root.find(Some(rest), 0, &mut passed, &mut accept) {
            return Some(candidate);
        }
        // Routes were visited literals first. A stable sort keeps that order.
        passed.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        passed.iter().flat_map(|(_, candidates)| candidates.iter()).find(|candidate| accept(candidate))
    }
}

impl Node {
    fn child(&mut self, segment: &Segment) -> &mut Self {
        match segment {
            Segment::Parameter(_) => self.parameter.get_or_insert_default(),
            Segment::Literal(text) => {
                let place = self.literals.binary_search_by(|(known, _)| known.cmp(text));
                let place = place.unwrap_or_else(|place| {
                    self.literals.insert(place, (text.clone(), Self::default()));
                    place
                });
                &mut self.literals[place].1
            }
        }
    }

    /// Searches for a pattern that ends where the path does; `rest` is the rest of the path.
    fn find<'t>(
        &'t self,
        rest: Option<&str>,
        depth: usize,
        passed: &mut Visited<'t>,
        accept: &mut impl FnMut(&Candidate) -> bool,
    ) -> Option<&'t Candidate> {
        if !self.open.is_empty() {
            passed.push((depth, &self.open));
        }
        let Some(rest) = rest else { return self.here.iter().find(|candidate| accept(candidate)) };
        let (segment, rest) = match rest.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        let literal = self.literals.binary_search_by(|(text, _)| (**text).cmp(segment)).ok();
        let literal = literal.and_then(|place| self.literals[place].1.find(rest, depth + 1, passed, accept));
        literal.or_else(|| {
            let parameter = self.parameter.as_ref().filter(|_| !segment.is_empty())?;
            parameter.find(rest, depth + 1, passed, accept)
        })
    }
}
