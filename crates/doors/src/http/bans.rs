//! The blocklist and the allowlist: lists, sets and removes entries.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::grammar::{self, GrammarError};
use tollgate_core::{Author, Listing, Stance, Target, Timestamp};
use tollgate_engine::{Engine, ListFault, Wish};
use tollgate_web::words::Moment;

use super::App;
use super::audit;
use super::auth::Role;
use super::body::{self, AtMost, Fields, Object, Text};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::page::Page;
use super::path;
use super::problem::{PROBLEM_JSON, Problem, ProblemBody};
use super::shown::json;

const ALL: &str = "/api/v1/bans";
const ONE: &str = "/api/v1/bans/{*target}";

/// The most entries of one request, and of one page.
const MOST: usize = 1_000;
/// The most entries of one request that are logged one by one.
const MOST_LOGGED: usize = 10;
/// The longest text that an error message repeats.
const MOST_SHOWN_BYTES: usize = 200;

/// One entry, or several in `bans`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BanRequest")]
struct BanBody<'b> {
    #[serde(borrow, default)]
    target: Option<Text<'b>>,
    #[serde(borrow, default)]
    fields: Option<Fields<'b>>,
    #[serde(default)]
    kind: Option<Kind>,
    #[serde(borrow, default, rename = "for")]
    lasts: Option<Text<'b>>,
    #[serde(borrow, default)]
    reason: Option<Text<'b>>,
    #[serde(default)]
    public: Option<bool>,
    #[serde(default)]
    force: Option<bool>,
    /// Up to 1000 entries, all set or none; no other member is allowed with them.
    #[serde(borrow, default)]
    bans: Option<AtMost<MOST, Object<OneBan<'b>>>>,
}

/// One entry.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BanWish")]
struct OneBan<'b> {
    /// An address, a network, or fields and their values, as in `203.0.113.0/24`, `user=bob` or
    /// `user=bob,ip=203.0.113.7`.
    #[serde(borrow, default)]
    target: Option<Text<'b>>,
    /// The same as an object of fields and their values, instead of `target`.
    #[serde(borrow, default)]
    fields: Option<Fields<'b>>,
    /// `block` by default.
    #[serde(default)]
    kind: Option<Kind>,
    /// How long it lasts, as in `1h`; for ever by default.
    #[serde(borrow, default, rename = "for")]
    lasts: Option<Text<'b>>,
    /// Why, in one line of at most 512 bytes.
    #[serde(borrow, default)]
    reason: Option<Text<'b>>,
    /// Whether the blocked client sees the reason; false by default.
    #[serde(default)]
    public: Option<bool>,
    /// Must be true to block every address, `0.0.0.0/0` or `::/0`; false by default.
    #[serde(default)]
    force: Option<bool>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Kind {
    Block,
    Allow,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Bans")]
struct BansShown {
    /// Entries in the order of their targets.
    bans: Vec<BanShown>,
    /// The value of `after` for the next page; null on the last one.
    next: Option<String>,
}

/// One entry of the lists.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Ban")]
pub(crate) struct BanShown {
    /// Its target, as text.
    target: String,
    /// `block` or `allow`.
    kind: &'static str,
    /// The reason; may be empty.
    reason: String,
    /// Whether the blocked client sees the reason.
    public: bool,
    /// The name of the access key that set it, `rule NAME`, or `configuration`.
    author: String,
    /// When it was set (RFC 3339); null if it is configured.
    #[schemars(with = "Option<String>")]
    since: Option<Moment>,
    /// When it ends (RFC 3339); null if never.
    #[schemars(with = "Option<String>")]
    until: Option<Moment>,
    /// How often in a row a rule has blocked the target, if its bans grow; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
struct Unlisted {
    /// Whether the API had set an entry for the target.
    removed: bool,
    /// Whether the configuration has an entry for the target, which is in force now.
    configured: bool,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let list = Operation::new(ALL, "List the blocklist and the allowlist")
        .query(&[
            ("limit", "how many; 100 by default, at most 1000"),
            ("after", "the last target of the page before: `next` in its answer"),
            ("kind", "only `block` or only `allow`"),
            ("author", "only what this access key set, or `rule NAME`, or `configuration`"),
            ("address", "only networks around this address"),
            ("contains", "only targets and reasons with this text"),
        ])
        .answers::<BansShown>();
    let set = Operation::new(ALL, "Add entries to the blocklist or the allowlist")
        .takes::<BanBody<'_>>()
        .answers::<BansShown>()
        .also::<ProblemBody<'_>>(409, PROBLEM_JSON);
    let remove =
        Operation::new("/api/v1/bans/{target}", "Remove an entry from the lists").answers::<Unlisted>();
    vec![
        Endpoint::new(Method::GET, ALL, Some(Role::Read), show).does(list),
        Endpoint::new(Method::POST, ALL, Some(Role::Admin), set_all).does(set),
        Endpoint::new(Method::DELETE, ONE, Some(Role::Admin), remove_one).does(remove),
    ]
}

async fn show(app: Arc<App>, ask: Ask) -> Answered {
    let filter = BanFilter::of(&ask)?;
    let Page { limit, after } = Page::of(&ask)?;
    let found = app.engine.lists.page(after.as_deref(), limit, |listing| filter.wants(listing));
    // Only another search shows whether more entries follow.
    let behind = found.last().map(|listing| listing.target.to_string());
    let more = found.len() >= limit
        && !app.engine.lists.page(behind.as_deref(), 1, |listing| filter.wants(listing)).is_empty();
    Ok(json(&BansShown {
        bans: found.iter().map(|listing| BanShown::of(listing)).collect(),
        next: behind.filter(|_| more),
    }))
}

async fn set_all(app: Arc<App>, ask: Ask) -> Answered {
    let body: BanBody<'_> = body::read(&ask.body)?;
    let wishes = body.wishes(&app.engine, ask.caller())?;
    let before: Vec<_> = wishes.iter().map(|wish| app.engine.lists.set_for(&wish.target)).collect();
    let set = app.engine.lists.put(wishes).await?;
    tell(&ask, &before, &set);
    Ok(json(&BansShown { bans: set.iter().map(|listing| BanShown::of(listing)).collect(), next: None }))
}

async fn remove_one(app: Arc<App>, ask: Ask) -> Answered {
    let written = ask.uri.path().splitn(5, '/').nth(4).unwrap_or_default();
    let target = app.engine.lists.target(&path::decode(written)?);
    let target = target.map_err(|error| Problem::bad_request(wrong(&error)))?;
    let before = app.engine.lists.set_for(&target);
    let removed = app.engine.lists.remove(&target).await?;
    if removed {
        let (what, before) = (&target.to_string(), before.as_deref().map(described));
        audit::Change { action: "ban.remove", what, before, after: None }.record(&ask);
    }
    let configured = app.engine.pin().policies.roster().listings().iter().any(|one| one.target == target);
    Ok(json(&Unlisted { removed, configured }))
}

/// Which entries to show.
struct BanFilter {
    stance: Option<Stance>,
    author: Option<String>,
    address: Option<IpAddr>,
    contains: Option<String>,
}

impl BanFilter {
    fn of(ask: &Ask) -> Result<Self, Problem> {
        let stance = match ask.query("kind") {
            None => None,
            Some("block") => Some(Stance::Block),
            Some("allow") => Some(Stance::Allow),
            Some(_) => return Err(Problem::bad_request("`kind` is `block` or `allow`")),
        };
        let address = decoded(ask, "address")?.map(|address| {
            address.parse().map_err(|_| Problem::bad_request("`address` is an IPv4 or IPv6 address"))
        });
        let (author, contains) = (decoded(ask, "author")?, decoded(ask, "contains")?);
        Ok(Self { stance, author, address: address.transpose()?, contains })
    }

    fn wants(&self, listing: &Listing) -> bool {
        let around = |address: &IpAddr| match &listing.target {
            Target::Net(net) => net.contains(*address),
            Target::Values(_) => false,
        };
        let holds =
            |text: &String| listing.reason.contains(text) || listing.target.to_string().contains(text);
        self.stance.is_none_or(|stance| stance == listing.stance)
            && self.author.as_ref().is_none_or(|author| *author == listing.author.to_string())
            && self.address.as_ref().is_none_or(around)
            && self.contains.as_ref().is_none_or(holds)
    }
}

impl BanBody<'_> {
    /// The wanted entries, checked.
    fn wishes(self, engine: &Engine, author: &str) -> Result<Vec<Wish>, Problem> {
        let Self { target, fields, kind, lasts, reason, public, force, bans } = self;
        let alone = OneBan { target, fields, kind, lasts, reason, public, force };
        let Some(bans) = bans else {
            return Ok(vec![alone.wish(engine, author).map_err(Problem::bad_request)?]);
        };
        if !alone.is_empty() {
            return Err(Problem::bad_request("no other member is allowed with `bans`"));
        }
        let wishes = bans.0.into_iter().enumerate().map(|(index, ban)| {
            let wish = ban.0.wish(engine, author);
            wish.map_err(|problem| Problem::bad_request(format!("bans[{index}]: {problem}; nothing was set")))
        });
        wishes.collect()
    }
}

impl OneBan<'_> {
    fn is_empty(&self) -> bool {
        let Self { target, fields, kind, lasts, reason, public, force } = self;
        target.is_none()
            && fields.is_none()
            && kind.is_none()
            && lasts.is_none()
            && reason.is_none()
            && public.is_none()
            && force.is_none()
    }

    fn wish(&self, engine: &Engine, author: &str) -> Result<Wish, String> {
        let target = match (&self.target, &self.fields) {
            (Some(target), None) => engine.lists.target(target.as_str()),
            (None, Some(fields)) => {
                engine.lists.target_of(fields.0.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            }
            (Some(_), Some(_)) => return Err("keep one of `target` and `fields`".to_owned()),
            (None, None) => return Err("`target` is missing".to_owned()),
        };
        let reason = self.reason.as_ref().map_or("", Text::as_str);
        Listing::check_reason(reason)?;
        let show_reason = self.public.unwrap_or(false);
        if show_reason && reason.is_empty() {
            return Err("`public` needs a `reason`".to_owned());
        }
        if show_reason && matches!(self.kind, Some(Kind::Allow)) {
            return Err("an allow entry blocks no client, so its reason cannot be public".to_owned());
        }
        let lasts = self.lasts.as_ref().map(|text| grammar::parse_span(text.as_str()));
        let target = target.map_err(|error| wrong(&error))?;
        let stance = match self.kind {
            None | Some(Kind::Block) => Stance::Block,
            Some(Kind::Allow) => Stance::Allow,
        };
        if stance == Stance::Block && target.is_every_address() && self.force != Some(true) {
            return Err(format!(
                "`{target}` would block every address: add `\"force\":true` if you mean that"
            ));
        }
        Ok(Wish {
            target,
            stance,
            lasts: lasts.transpose().map_err(|error| format!("`for`: {}", wrong(&error)))?,
            reason: reason.into(),
            show_reason,
            author: Author::Key(author.into()),
        })
    }
}

/// Logs the entries that were set, with those for the same targets before: each of them, or only the first of very many.
fn tell(ask: &Ask, before: &[Option<Arc<Listing>>], set: &[Arc<Listing>]) {
    let (logged, more) = if set.len() > MOST_LOGGED { (1, set.len() - 1) } else { (set.len(), 0) };
    for (index, listing) in set[..logged].iter().enumerate() {
        let same = |old: &&Arc<Listing>| old.target == listing.target;
        let old = before.get(index).and_then(Option::as_ref).filter(same);
        let more = if more > 0 { format!(", and {more} more entries") } else { String::new() };
        audit::Change {
            action: "ban.set",
            what: &listing.target.to_string(),
            before: old.map(|old| described(old)),
            after: Some(described(listing) + &more),
        }
        .record(ask);
    }
}

/// An entry in short, for the log.
fn described(listing: &Listing) -> String {
    let kind = listing.stance.name();
    match listing.until {
        Some(until) => format!("{kind} until {}", Moment(until)),
        None => kind.to_owned(),
    }
}

impl BanShown {
    pub(crate) fn of(listing: &Listing) -> Self {
        Self {
            target: listing.target.to_string(),
            kind: listing.stance.name(),
            reason: listing.reason.to_string(),
            public: listing.show_reason,
            author: listing.author.to_string(),
            since: (listing.since > Timestamp::ZERO).then_some(Moment(listing.since)),
            until: listing.until.map(Moment),
            times: (listing.times > 0).then_some(listing.times),
        }
    }
}

/// The value of a query parameter, decoded.
fn decoded(ask: &Ask, name: &str) -> Result<Option<String>, Problem> {
    ask.query(name).map(|value| path::decode_query(&value.replace('+', " "))).transpose()
}

/// The error for a text. A long text is not repeated, since the remedy after it would be cut off.
fn wrong(error: &GrammarError) -> String {
    if error.text.len() > MOST_SHOWN_BYTES { error.problem.clone() } else { error.to_string() }
}

impl From<ListFault> for Problem {
    fn from(fault: ListFault) -> Self {
        match fault {
            ListFault::Full => Self::list_full(fault.to_string()),
            ListFault::UnknownField { .. } | ListFault::Secret { .. } => Self::bad_request(fault.to_string()),
            ListFault::Store(error) => error.into(),
        }
    }
}
