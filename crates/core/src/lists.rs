//! The blocklist and the allowlist: who is barred before anything is counted, and who never is.
//!
//! An entry is about a network or about values of fields. Of the networks around an address the
//! smallest counts: it bars the address, or keeps it from being barred by a larger one. Whoever is
//! allowed by one entry is barred by none. Limits hold for everybody.
//!
//! The lists are values: [`Lists::with`] makes others of them, which share all but what has just
//! changed. So a change costs little however long they are, and whoever reads them waits for nobody.

mod ranges;
mod roster;
mod sieve;
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
    /// Whom it is about.
    pub target: Target,
    /// Whether they are barred.
    pub stance: Stance,
    /// When it was made; the epoch if it was configured.
    pub since: Timestamp,
    /// When it ends; `None` if never.
    pub until: Option<Timestamp>,
    /// Why, in a line; perhaps nothing.
    pub reason: Box<str>,
    /// Whether the reason is told to whom it bars.
    pub told: bool,
    /// Who made it.
    pub author: Author,
    /// How often in a row a rule has barred them, where bans grow with repetition; else 0.
    pub times: u32,
}

/// What an entry does for whom it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// They are barred.
    Block,
    /// They are not, whatever else is listed.
    Allow,
}

/// Who made an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// The configuration.
    Configuration,
    /// Whoever holds the access key of this name.
    Key(Box<str>),
    /// The rule of this name, by itself.
    Rule(Box<str>),
}

/// A change of what was listed at run time.
#[derive(Clone, Debug)]
pub enum Change {
    /// It is listed now, in the place of what was listed for the same target.
    Put(Arc<Listing>),
    /// It is listed no more.
    Remove(Arc<Listing>),
}

/// All entries, in a form in which they are found quickly.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// What changed of late, with what was removed; everything else that was set at run time; what is
    /// configured. What stands further in front goes first.
    layers: [Arc<Table>; 3],
    /// The fields that hold addresses.
    addresses: Arc<[Arc<str>]>,
}

const RECENT: usize = 0;
const BULK: usize = 1;
const CONFIGURED: usize = 2;
/// How many changes are kept apart before they are merged.
const MOST_RECENT: usize = 512;

impl Listing {
    /// The longest reason, in bytes.
    pub const MOST_REASON_BYTES: usize = 512;

    /// What is wrong with a reason, if anything is.
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

    /// Whether it has not ended.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// From when on nothing needs to be known of it; `None` if it never ends. A ban that grows is
    /// remembered for ten times as long as it lasted.
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
    /// Lists of what is configured and of what was set at run time, each with one entry at most for a
    /// target. What was set at run time goes first.
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

    /// The names of all fields that some entry looks at.
    pub fn fields(&self) -> Vec<Arc<str>> {
        let nets = self.layers.iter().any(|layer| layer.has_nets());
        let mut fields: Vec<Arc<str>> = if nets { self.addresses.to_vec() } else { Vec::new() };
        fields.extend(self.layers.iter().flat_map(|layer| layer.fields()).cloned());
        fields.sort();
        fields.dedup();
        fields
    }

    /// These lists with what was set at run time changed.
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

    /// The entry that bars an attempt with these fields, if one does: of several the one that does longest.
    /// The time is asked for only if somebody is listed.
    pub fn bar(&self, fields: &[(&str, &str)], now: impl Fn() -> Timestamp) -> Option<&Arc<Listing>> {
        let mut barred = None;
        for (_, value) in fields.iter().filter(|(name, _)| self.is_address(name)) {
            let Some(address) = address_of(value) else { continue };
            let (mut found, mut allowed) = (None, false);
            // What is around an entry holds when that has ended.
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
            barred = found.map_or(barred, |found| longest(barred, found));
        }
        for listing in self.by_values(fields, &now) {
            if listing.stance == Stance::Allow {
                return None;
            }
            barred = longest(barred, listing);
            // What is configured shows again once what was set has ended.
            let under = self.layers[CONFIGURED].at_target(&listing.target);
            if let Some(under) = under.filter(|under| under.is_live(&now))
                && under.listing.stance == Stance::Block
            {
                barred = longest(barred, &under.listing);
            }
        }
        barred
    }

    /// What is listed for whom a target stands for, if they are allowed by it.
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

    /// The entry of the smallest network around an address, among those that have not ended.
    fn at_address(&self, address: IpAddr, now: &impl Fn() -> Timestamp) -> Option<&Arc<Listing>> {
        let mut first = None;
        self.around_address(address, now, |listing| {
            first = Some(listing);
            ControlFlow::Break(())
        });
        first
    }

    /// Calls `see` with the entries of all networks around an address that have not ended, the smallest
    /// first, until it has seen enough.
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
                // What changed of late stands for what was there before.
                RECENT => changed = Some(slot.length()),
                BULK if changed == Some(slot.length()) => continue,
                _ => {}
            }
            if slot.is_live(now) && see(&slot.listing).is_break() {
                return;
            }
        }
    }

    /// The entries about the values of an attempt that have not ended.
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
                // What changed of late stands for what was set before. What is configured shows again
                // once what was set has ended.
                let hidden = other.is_some_and(|other| layer == BULK || other.is_live(now));
                if slot.is_live(now) && !hidden {
                    found.push(&slot.listing);
                }
            });
        }
        found
    }
}

/// Of two entries the one that ends later; of those that end together, the first.
fn longest<'l>(first: Option<&'l Arc<Listing>>, other: &'l Arc<Listing>) -> Option<&'l Arc<Listing>> {
    let ends = |listing: &Listing| (listing.until.is_none(), listing.until);
    Some(first.filter(|first| ends(first) >= ends(other)).unwrap_or(other))
}

impl Stance {
    /// Its name, as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Allow => "allow",
        }
    }
}

/// Prints a name for people: a key's own, or that of the rule.
impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("configuration"),
            Self::Key(name) => f.write_str(name),
            Self::Rule(name) => write!(f, "rule {name}"),
        }
    }
}
