//! Finds the route of a request: the most specific one that matches.
//!
//! An exact host wins over one with `*`, a longer `*` host over a shorter, and both over none. Then an exact
//! path wins over one with parameters, and that over one that ends in `*`, of which the longer wins. Then
//! more headers win over fewer, and named methods over all. Then the order of the settings decides. If a
//! route matches by host and path but not by method or headers, the next one is tried.

mod tree;

use http::{HeaderName, HeaderValue, Method};

use crate::settings::{HeaderMatch, HostPattern, PathPattern, RouteSettings};
use tree::Tree;

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

impl std::fmt::Display for Shadowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "route `{}` can never be taken: `{}` fits the same requests", self.route, self.by)
    }
}

impl std::error::Error for Shadowed {}
