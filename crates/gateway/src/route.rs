//! Finds the route of a request: the most specific one that matches.
//!
//! An exact host wins over one with `*`, a longer `*` host over a shorter, and both over none. Then an exact
//! path wins over one with parameters, and that over one that ends in `*`, of which the longer wins. Then
//! more headers win over fewer, and named methods over all. Then the order of the settings decides. If a
//! route matches by host and path but not by method or headers, the next one is tried.

use http::{HeaderName, HeaderValue, Method};
use smallvec::SmallVec;

use crate::settings::{HeaderMatch, HostPattern, PathPattern, RouteSettings, Segment};

/// All routes, indexed for searching.
#[derive(Debug, Default)]
pub struct Table {
    exact: Vec<(Box<str>, Tree)>,
    /// The longest suffix comes first.
    below: Vec<(Box<str>, Tree)>,
    any: Tree,
}

/// One of the routes that share a host and path pattern.
#[derive(Clone, Debug)]
struct Candidate {
    route: usize,
    methods: Vec<Method>,
    headers: Vec<HeaderMatch>,
}

/// The path patterns of one host, as a tree of segments.
#[derive(Debug, Default)]
struct Tree {
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

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The route, by its index in the settings.
    Route(usize),
    /// None, but these methods would have matched one.
    OtherMethods(Vec<Method>),
    /// None.
    Nothing,
}

/// The headers of a request.
pub trait Headers {
    /// Whether there is a line of this name, with this value if one is given.
    fn has(&self, name: &HeaderName, value: Option<&HeaderValue>) -> bool;
}

/// Two routes match the same requests, so the second could never match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadowed {
    /// The first one.
    pub by: String,
    /// The second one.
    pub route: String,
}

impl Table {
    /// Builds the table of these routes.
    pub fn new(routes: &[RouteSettings]) -> Result<Self, Shadowed> {
        let mut table = Self::default();
        for (number, route) in routes.iter().enumerate() {
            let candidate =
                Candidate { route: number, methods: route.methods.clone(), headers: route.headers.clone() };
            let all = [PathPattern::ALL];
            let paths = if route.paths.is_empty() { &all[..] } else { &route.paths };
            for path in paths {
                if route.hosts.is_empty() {
                    table.any.add(path, &candidate)
                } else {
                    route.hosts.iter().try_for_each(|host| table.tree(host).add(path, &candidate))
                }
                .map_err(|by| Shadowed { by: routes[by].name.to_string(), route: route.name.to_string() })?;
            }
        }
        table.exact.sort_by(|(one, _), (two, _)| one.cmp(two));
        table.below.sort_by_key(|(end, _)| std::cmp::Reverse(end.len()));
        Ok(table)
    }

    fn tree(&mut self, host: &HostPattern) -> &mut Tree {
        let (trees, name) = match host {
            HostPattern::Exact(name) => (&mut self.exact, name),
            HostPattern::Below(end) => (&mut self.below, end),
        };
        let place = trees.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            trees.push((name.clone(), Tree::default()));
            trees.len() - 1
        });
        &mut trees[place].1
    }

    /// Finds the route of a request. The host must be in lower case without a port, and the path normalised.
    pub fn find(&self, host: &str, path: &str, method: &Method, headers: &impl Headers) -> Found {
        let mut others: Vec<Method> = Vec::new();
        let mut accept = |candidate: &Candidate| {
            if !candidate.headers.iter().all(|wanted| headers.has(&wanted.name, wanted.value.as_ref())) {
                return false;
            }
            let fits = candidate.methods.is_empty() || candidate.methods.contains(method);
            if !fits {
                others.extend(
                    candidate.methods.iter().filter(|one| !others.contains(one)).cloned().collect::<Vec<_>>(),
                );
            }
            fits
        };
        let exact = self.exact.binary_search_by(|(name, _)| (**name).cmp(host)).ok();
        let mut below = self.below.iter().filter(|(end, _)| host.len() > end.len() && host.ends_with(&**end));
        let found = exact
            .and_then(|place| self.exact[place].1.find(path, &mut accept))
            .or_else(|| below.find_map(|(_, tree)| tree.find(path, &mut accept)))
            .or_else(|| self.any.find(path, &mut accept));
        match found {
            Some(candidate) => Found::Route(candidate.route),
            None if others.is_empty() => Found::Nothing,
            None => Found::OtherMethods(others),
        }
    }
}

impl Candidate {
    /// The order among equals: smaller first.
    fn rank(&self) -> (usize, bool) {
        (usize::MAX - self.headers.len(), self.methods.is_empty())
    }

    /// Whether this route is tried first and matches every request that the later one matches.
    fn hides(&self, later: &Self) -> bool {
        let headers = self.headers.iter().all(|wanted| later.headers.contains(wanted));
        let methods = || later.methods.iter().all(|method| self.methods.contains(method));
        let covers = headers && (self.methods.is_empty() || !later.methods.is_empty() && methods());
        covers && self.route != later.route && self.rank() <= later.rank()
    }
}

impl Tree {
    /// Adds a route. Fails with an earlier route that hides it completely.
    fn add(&mut self, pattern: &PathPattern, candidate: &Candidate) -> Result<(), usize> {
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
    fn find<'t>(&'t self, path: &str, mut accept: impl FnMut(&Candidate) -> bool) -> Option<&'t Candidate> {
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

impl std::fmt::Display for Shadowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "route `{}` can never be taken: `{}` fits the same requests", self.route, self.by)
    }
}

impl std::error::Error for Shadowed {}
