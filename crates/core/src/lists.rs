//! The blocklist and the allowlist, which are checked before anything is counted.
//!
//! An entry is about a network or about values of fields. Of the networks around an address the smallest
//! counts: it blocks the address, or protects it from a larger one that blocks. A target that one entry
//! allows is blocked by none. Limits still apply to everyone.
//!
//! The lists are immutable values: [`Lists::with`] makes new ones that share everything that has not changed.
//! So a change is cheap however long they are, and readers never wait.

mod bloom_filter;
mod ranges;
mod roster;
mod table;
mod target;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::ops::ControlFlow;

use smallvec::SmallVec;

pub use roster::Roster;
pub use target::Target;

use crate::key::{Kinds, same};
use crate::net::address_of;
use crate::time::{Span, Timestamp};
use table::{Cursor, Slot, Table};

/// One entry of the lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its target.
    pub target: Target,
    /// Whether it blocks or allows.
    pub stance: Stance,
    /// When it was made; the epoch if it is configured.
    pub since: Timestamp,
    /// When it expires; `None` means never.
    pub until: Option<Timestamp>,
    /// The reason, in one line; may be empty.
    pub reason: Box<str>,
    /// Whether the blocked client sees the reason.
    pub show_reason: bool,
    /// Its author.
    pub author: Author,
    /// How often in a row a rule has blocked the target, if bans grow; otherwise 0.
    pub times: u32,
}

/// The effect of an entry on its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// The target is blocked.
    Block,
    /// The target is never blocked, whatever else is listed.
    Allow,
}

/// The author of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// The configuration.
    Configuration,
    /// A caller with the access key of this name.
    Key(Box<str>),
    /// The rule of this name, by itself.
    Rule(Box<str>),
}

/// A change of an entry that was set at run time.
#[derive(Clone, Debug)]
pub enum Change {
    /// The entry is set; it replaces one for the same target.
    Put(Arc<Listing>),
    /// The entry is removed.
    Remove(Arc<Listing>),
}

/// All entries, indexed for fast lookup.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Recent changes, including removals; all other entries set at run time; configured entries. Earlier
    /// layers take precedence.
    layers: [Arc<Table>; 3],
    /// The fields that hold addresses.
    addresses: Arc<[Arc<str>]>,
}

const RECENT: usize = 0;
const BULK: usize = 1;
const CONFIGURED: usize = 2;
/// How many recent changes are kept before they are merged.
const MOST_RECENT: usize = 512;

impl Listing {
    /// The longest reason, in bytes.
    pub const MOST_REASON_BYTES: usize = 512;

    /// Checks a reason.
    pub fn check_reason(reason: &str) -> Result<(), String> {
        if reason.len() > Self::MOST_REASON_BYTES {
            let (bytes, most) = (reason.len(), Self::MOST_REASON_BYTES);
            return Err(format!("the reason is {bytes} bytes long; at most {most} are allowed"));
        }
        if reason.contains(char::is_control) {
            return Err("the reason is one line of text".to_owned());
        }
        Ok(())
    }

    /// Whether it has not expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// From when on the entry can be deleted; `None` if it never expires. A growing ban is remembered for ten
    /// times as long as it lasted.
    pub fn forgotten_at(&self) -> Option<Timestamp> {
        let until = self.until?;
        let memory = if self.times == 0 { 0 } else { until.since(self.since).as_micros().saturating_mul(10) };
        Some(until + Span::from_micros(memory))
    }
}

impl Change {
    /// The entry that is put or removed.
    pub fn listing(&self) -> &Arc<Listing> {
        match self {
            Self::Put(listing) | Self::Remove(listing) => listing,
        }
    }
}

impl Lists {
    /// Lists of configured entries and of those set at run time, each with at most one entry for a target.
    /// Entries set at run time take precedence.
    pub fn new(
        configured: impl IntoIterator<Item = Arc<Listing>>,
        set: impl IntoIterator<Item = Arc<Listing>>,
        kinds: &Kinds,
    ) -> Self {
        let table =
            |listings: Vec<Arc<Listing>>| Arc::new(Table::new(listings.into_iter().map(Slot::of).collect()));
        let set = table(set.into_iter().collect());
        let layers = [Arc::default(), set, table(configured.into_iter().collect())];
        Self { layers, addresses: kinds.addresses().collect() }
    }

    /// Whether the lists are empty.
    pub fn is_empty(&self) -> bool {
        self.layers.iter().all(|layer| layer.is_empty())
    }

    /// The fields that any entry needs.
    pub fn fields(&self) -> Vec<Arc<str>> {
        let nets = self.layers.iter().any(|layer| layer.has_nets());
        let mut fields: Vec<Arc<str>> = if nets { self.addresses.to_vec() } else { Vec::new() };
        fields.extend(self.layers.iter().flat_map(|layer| layer.fields()).cloned());
        fields.sort();
        fields.dedup();
        fields
    }

    /// These lists, with changes to the entries set at run time.
    #[must_use]
    pub fn with(&self, changes: impl IntoIterator<Item = Change>) -> Self {
        let recent = self.layers[RECENT].slots().cloned();
        let slots: Vec<Slot> = recent.chain(changes.into_iter().map(Slot::after)).collect();
        let mut lists = self.clone();
        if slots.len() <= MOST_RECENT {
            lists.layers[RECENT] = Arc::new(Table::new(slots));
        } else {
            let all = self.layers[BULK].slots().cloned().chain(slots);
            lists.layers[RECENT] = Arc::default();
            lists.layers[BULK] = Arc::new(Table::merged(all.collect()));
        }
        lists
    }

    /// The entry that blocks an attempt with these fields, if there is one; of several, the one that lasts
    /// longest. The clock is read only if an entry matches.
    pub fn block(&self, fields: &[(&str, &str)], now: impl Fn() -> Timestamp) -> Option<&Arc<Listing>> {
        let mut blocked = None;
        for (_, value) in fields.iter().filter(|(name, _)| self.is_address(name)) {
            let Some(address) = address_of(value) else { continue };
            let (mut found, mut allowed) = (None, false);
            // When an entry has expired, the next larger network applies.
            self.around_address(address, &now, |listing| match listing.stance {
                Stance::Allow => {
                    allowed = found.is_none();
                    ControlFlow::Break(())
                }
                Stance::Block => {
                    found = longest(found, listing);
                    ControlFlow::Continue(())
                }
            });
            if allowed {
                return None;
            }
            blocked = found.map_or(blocked, |found| longest(blocked, found));
        }
        for listing in self.by_values(fields, &now) {
            if listing.stance == Stance::Allow {
                return None;
            }
            blocked = longest(blocked, listing);
            // A configured entry applies again once the one set at run time has expired.
            let under = self.layers[CONFIGURED].at_target(&listing.target);
            if let Some(under) = under.filter(|under| under.is_live(&now))
                && under.listing.stance == Stance::Block
            {
                blocked = longest(blocked, &under.listing);
            }
        }
        blocked
    }

    /// Whether a target is on the allowlist.
    pub fn allows(&self, target: &Target, now: impl Fn() -> Timestamp) -> bool {
        let found = match target {
            Target::Net(net) => self.at_address(net.first(), &now),
            Target::Values(values) => {
                let fields: Vec<(&str, &str)> =
                    values.iter().map(|(field, value)| (&*field.name, &**value)).collect();
                let addresses = fields.iter().filter(|(name, _)| self.is_address(name));
                let mut found = addresses
                    .filter_map(|(_, value)| self.at_address(address_of(value)?, &now))
                    .chain(self.by_values(&fields, &now));
                found.find(|listing| listing.stance == Stance::Allow)
            }
        };
        found.is_some_and(|listing| listing.stance == Stance::Allow)
    }

    fn is_address(&self, name: &str) -> bool {
        self.addresses.iter().any(|known| same(known, name))
    }

    /// The entry of the smallest network around an address that has not expired.
    fn at_address(&self, address: IpAddr, now: &impl Fn() -> Timestamp) -> Option<&Arc<Listing>> {
        let mut first = None;
        self.around_address(address, now, |listing| {
            first = Some(listing);
            ControlFlow::Break(())
        });
        first
    }

    /// Calls `see` with the entries of all networks around an address that have not expired, the smallest
    /// first, until it returns `Break`.
    fn around_address<'l>(
        &'l self,
        address: IpAddr,
        now: &impl Fn() -> Timestamp,
        mut see: impl FnMut(&'l Arc<Listing>) -> ControlFlow<()>,
    ) {
        let mut cursors: [Cursor; 3] = [0, 1, 2].map(|layer| self.layers[layer].find(address));
        let mut changed = None;
        loop {
            let next = (0..cursors.len())
                .filter_map(|layer| Some((layer, self.layers[layer].slot(cursors[layer])?)))
                .reduce(|best, other| if other.1.length() > best.1.length() { other } else { best });
            let Some((layer, slot)) = next else { return };
            cursors[layer] = slot.around();
            match layer {
                // A recent change replaces the older entry.
                RECENT => changed = Some(slot.length()),
                BULK if changed == Some(slot.length()) => continue,
                _ => {}
            }
            if slot.is_live(now) && see(&slot.listing).is_break() {
                return;
            }
        }
    }

    /// The entries about the values of an attempt that have not expired.
    fn by_values<'l>(
        &'l self,
        fields: &[(&str, &str)],
        now: &impl Fn() -> Timestamp,
    ) -> SmallVec<[&'l Arc<Listing>; 4]> {
        let mut found = SmallVec::new();
        for (layer, table) in self.layers.iter().enumerate() {
            table.at_values(fields, |slot| {
                let mut before = self.layers[..layer].iter();
                let other = before.find_map(|table| table.at_target(&slot.listing.target));
                // A recent change replaces the older entry. A configured entry applies again once the one set
                // at run time has expired.
                let hidden = other.is_some_and(|other| layer == BULK || other.is_live(now));
                if slot.is_live(now) && !hidden {
                    found.push(&slot.listing);
                }
            });
        }
        found
    }
}

/// The entry that expires later; of two with the same end, the first.
fn longest<'l>(first: Option<&'l Arc<Listing>>, other: &'l Arc<Listing>) -> Option<&'l Arc<Listing>> {
    let ends = |listing: &Listing| (listing.until.is_none(), listing.until);
    Some(first.filter(|first| ends(first) >= ends(other)).unwrap_or(other))
}

impl Stance {
    /// Its name in the configuration and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Allow => "allow",
        }
    }
}

/// Prints a name for people: that of the key or of the rule.
impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("configuration"),
            Self::Key(name) => f.write_str(name),
            Self::Rule(name) => write!(f, "rule {name}"),
        }
    }
}
