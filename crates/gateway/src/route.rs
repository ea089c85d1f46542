//! Which route a request takes: the most specific one that fits.
//!
//! A host that is written out comes before one with `*`, of which the longer comes first, and that
//! before none. Then a path that is written out comes before one with parameters, and that before one
//! that ends in `*`, of which the longer comes first. Then more headers come before fewer, and named
//! methods before all. Then the one that was written first. A route that fits by host and path but not
//! by method or headers leaves the request to the next.

mod tree;

use http::{HeaderName, HeaderValue, Method};

use crate::settings::{HeaderMatch, HostPattern, PathPattern, RouteSettings};
use tree::Tree;

/// All routes, made to be searched.
#[derive(Debug, Default)]
pub struct Table {
    exact: Vec<(Box<str>, Tree)>,
    /// The longest end comes first.
    below: Vec<(Box<str>, Tree)>,
    any: Tree,
}

/// One way to a route, of those that end at the same host and path.
#[derive(Clone, Debug)]
struct Way {
    route: usize,
    methods: Vec<Method>,
    headers: Vec<HeaderMatch>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This route, by its place among the settings.
    Route(usize),
    /// None, though these methods would have led to one.
    OtherMethods(Vec<Method>),
    /// None.
    Nothing,
}

/// What a request's head says.
pub trait Headers {
    /// Whether there is a line of this name, with this value if one is given.
    fn has(&self, name: &HeaderName, value: Option<&HeaderValue>) -> bool;
}

/// Two routes that fit the same requests, so that the second would never be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadowed {
    /// The first one.
    pub by: String,
    /// The second one.
    pub route: String,
}

impl Table {
    /// A table of these routes.
    pub fn new(routes: &[RouteSettings]) -> Result<Self, Shadowed> {
        let mut table = Self::default();
        for (number, route) in routes.iter().enumerate() {
            let way = Way { route: number, methods: route.methods.clone(), headers: route.headers.clone() };
            let all = [PathPattern::ALL];
            let paths = if route.paths.is_empty() { &all[..] } else { &route.paths };
            for path in paths {
                if route.hosts.is_empty() {
                    table.any.add(path, &way)
                } else {
                    route.hosts.iter().try_for_each(|host| table.tree(host).add(path, &way))
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

    /// The route of a request: a host in lower case without port, and a normalised path.
    pub fn find(&self, host: &str, path: &str, method: &Method, headers: &impl Headers) -> Found {
        let mut others: Vec<Method> = Vec::new();
        let mut accept = |way: &Way| {
            if !way.headers.iter().all(|wanted| headers.has(&wanted.name, wanted.value.as_ref())) {
                return false;
            }
            let fits = way.methods.is_empty() || way.methods.contains(method);
            if !fits {
                others.extend(
                    way.methods.iter().filter(|one| !others.contains(one)).cloned().collect::<Vec<_>>(),
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
            Some(way) => Found::Route(way.route),
            None if others.is_empty() => Found::Nothing,
            None => Found::OtherMethods(others),
        }
    }
}

impl Way {
    /// Which of two comes first.
    fn rank(&self) -> (usize, bool) {
        (usize::MAX - self.headers.len(), self.methods.is_empty())
    }

    /// Whether every request that fits a way that was written later fits this one, and this one is
    /// asked first.
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
