//! Chooses the policy of an attempt: a named one, or that of the gateway's route.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use tollgate_core::Policies;
use tollgate_gateway::route::{Found, Headers, Shadowed, Table};
use tollgate_gateway::settings::RouteSettings;
use tollgate_web::Aliases;

use crate::layout::Wish;

/// The way in which the policy of an attempt is chosen.
#[derive(Debug)]
pub enum Choosing {
    /// All attempts pass this policy.
    Policy(Arc<str>),
    /// The gateway's routes have policies.
    Routes(Box<RouteChoice>),
}

#[derive(Debug)]
pub struct RouteChoice {
    table: Table,
    routes: Vec<RouteSettings>,
    method: usize,
    host: usize,
    path: usize,
    headers: Vec<(HeaderName, usize)>,
}

/// The policy of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'c> {
    /// This policy, and the route if there is one.
    Policy(&'c str, Option<&'c str>),
    /// A route without a policy: it is not limited.
    Unlimited,
    /// No route.
    Unrouted,
}

/// The values of one attempt, by the layout's slots.
pub(crate) type SlotValues<'v> = &'v [Option<&'v str>];

impl RouteChoice {
    /// Chooses by these routes. Adds the fields that it needs to the wishes.
    pub fn new(routes: &[RouteSettings], wishes: &mut Wishes) -> Result<Self, Shadowed> {
        let table = Table::new(routes)?;
        let by_host = routes.iter().any(|route| !route.hosts.is_empty());
        let by_method = routes.iter().any(|route| !route.methods.is_empty());
        let needed = |needed: bool| needed.then(|| "the gateway's routes".to_owned());
        let path = wishes.add("path", needed(true));
        let host = wishes.add("host", needed(by_host));
        let method = wishes.add("method", needed(by_method));
        let names = routes.iter().flat_map(|route| &route.headers).map(|wanted| wanted.name.clone());
        let mut headers: Vec<(HeaderName, usize)> = Vec::new();
        for name in names {
            if !headers.iter().any(|(known, _)| *known == name) {
                let place = wishes.add(&format!("header.{name}"), needed(true));
                headers.push((name, place));
            }
        }
        Ok(Self { table, routes: routes.to_vec(), method, host, path, headers })
    }

    fn choose(&self, values: SlotValues<'_>) -> Choice<'_> {
        let value = |place: usize| values[place].unwrap_or_default();
        let method = match value(self.method) {
            "" => Method::GET,
            text => Method::from_bytes(text.as_bytes()).unwrap_or(Method::GET),
        };
        let headers = LoggedHeaders { headers: &self.headers, values };
        match self.table.find(value(self.host), value(self.path), &method, &headers) {
            Found::Route(number) => {
                let route = &self.routes[number];
                match &route.policy {
                    Some(policy) => Choice::Policy(policy, Some(&route.name)),
                    None => Choice::Unlimited,
                }
            }
            Found::OtherMethods(_) | Found::Nothing => Choice::Unrouted,
        }
    }

    /// The policies of its routes.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().filter_map(|route| route.policy.as_deref())
    }
}

impl Choosing {
    /// Chooses the policy of an attempt.
    #[inline]
    pub(crate) fn choose(&self, values: SlotValues<'_>) -> Choice<'_> {
        match self {
            Self::Policy(name) => Choice::Policy(name, None),
            Self::Routes(routes) => routes.choose(values),
        }
    }

    /// The names of the policies that attempts may pass.
    pub fn policies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match self {
            Self::Policy(name) => vec![name],
            Self::Routes(routes) => routes.policies().collect(),
        };
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The request headers that a line of the log contains.
struct LoggedHeaders<'r> {
    headers: &'r [(HeaderName, usize)],
    values: SlotValues<'r>,
}

impl Headers for LoggedHeaders<'_> {
    fn has(&self, name: &HeaderName, value: Option<&HeaderValue>) -> bool {
        let place = self.headers.iter().find(|(known, _)| known == name).map(|(_, place)| *place);
        let logged = place.and_then(|place| self.values[place]);
        logged.is_some_and(|logged| value.is_none_or(|value| value == logged))
    }
}

/// The fields that attempts need, each once.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The fields.
    pub list: Vec<Wish>,
}

impl Wishes {
    /// Adds a field. Returns its index in the list.
    pub fn add(&mut self, field: &str, needed_by: Option<String>) -> usize {
        if let Some(place) = self.place(field) {
            let wish = &mut self.list[place];
            wish.needed_by = wish.needed_by.take().or(needed_by);
            return place;
        }
        self.list.push(Wish { field: field.into(), needed_by, source: None });
        self.list.len() - 1
    }

    /// The index of a field in the list.
    pub fn place(&self, field: &str) -> Option<usize> {
        self.list.iter().position(|wish| *wish.field == *field)
    }

    /// Adds the fields of these policies. A field that a key or a count needs is needed, unless `strictness` says that
    /// rules without their fields are skipped.
    pub fn add_policies(
        &mut self,
        policies: &Policies,
        choosing: &Choosing,
        strictness: Strictness,
        aliases: &Aliases,
    ) {
        let routed = matches!(choosing, Choosing::Routes(_));
        let names = choosing.policies();
        let found = names.iter().filter_map(|name| policies.named(name));
        for policy in found {
            let derived = |field: &str| policy.derived().find(|(name, _)| *name == field).map(|(_, of)| of);
            for rule in policy.rules.iter().filter(|rule| rule.enabled) {
                let counted = rule.count.iter().map(|field| &**field);
                for field in rule.by.iter().map(|field| &*field.name).chain(counted) {
                    let by = || format!("rule `{}` of policy `{}`", rule.name, policy.name);
                    // Every route of the gateway has a name, so `route` is always known.
                    let known = routed && field == "route";
                    let needed = strictness == Strictness::AllFields && !known;
                    let field = derived(field).unwrap_or(field);
                    let place = self.add(field, needed.then(by));
                    let source = aliases.source(field).map(|source| source.to_string());
                    self.list[place].source = source.filter(|source| source != field);
                }
            }
            for field in policy.fields().filter(|field| derived(field).is_none()) {
                self.add(field, None);
            }
        }
    }
}

/// Whether every field of a policy must be in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A field that no column holds is an error.
    AllFields,
    /// A rule whose fields the log lacks is skipped, as by the server.
    SkipRules,
}
