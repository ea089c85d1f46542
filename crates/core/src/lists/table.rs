//! One layer of the lists: entries that are built once and then only read.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use hashbrown::HashMap;

use super::ranges::{NONE, Ranges};
use super::target::{Target, write_joined};
use super::{Change, Listing};
use crate::charge::KeyText;
use crate::key::same;
use crate::net::Net;
use crate::rule::Field;
use crate::time::Timestamp;

/// Entries, at most one for each target.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The entries about networks, sorted by the network.
    nets: Vec<Slot>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    /// The entries about values, grouped by their fields.
    shapes: Vec<Shape>,
    values: Vec<Slot>,
}

/// An entry of a table.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) listing: Arc<Listing>,
    /// Whether it marks a removed entry.
    pub(super) removed: bool,
    length: u8,
    around: u32,
}

/// A position on the way from the smallest network around an address to the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor(u32);

/// All entries about values of the same fields.
#[derive(Clone, Debug)]
struct Shape {
    fields: Box<[Field]>,
    /// The indices of entries by their values, joined as in keys.
    by_text: HashMap<Box<str>, u32>,
}

impl Slot {
    /// A slot for an existing entry.
    pub(super) fn of(listing: Arc<Listing>) -> Self {
        let length = if let Target::Net(net) = &listing.target { net.length() } else { 0 };
        Self { listing, removed: false, length, around: NONE }
    }

    /// The slot for a change.
    pub(super) fn after(change: Change) -> Self {
        match change {
            Change::Put(listing) => Self::of(listing),
            Change::Remove(listing) => Self { removed: true, ..Self::of(listing) },
        }
    }

    /// The prefix length of its network.
    pub(super) fn length(&self) -> u8 {
        self.length
    }

    /// The next larger network around it.
    pub(super) fn around(&self) -> Cursor {
        Cursor(self.around)
    }

    /// Whether it is an entry that has not expired. The clock is read only if necessary.
    pub(super) fn is_live(&self, now: &impl Fn() -> Timestamp) -> bool {
        !self.removed && self.listing.until.is_none_or(|until| now() < until)
    }

    fn net(&self) -> Option<Net> {
        if let Target::Net(net) = &self.listing.target { Some(*net) } else { None }
    }
}

impl Table {
    /// A table of these entries. Of several for one target the last one counts.
    pub(super) fn new(slots: Vec<Slot>) -> Self {
        let mut table = Self::default();
        let (nets, values): (Vec<Slot>, Vec<Slot>) =
            slots.into_iter().partition(|slot| matches!(slot.listing.target, Target::Net(_)));
        for slot in values {
            table.put_values(slot);
        }
        table.put_nets(nets);
        table
    }

    /// As [`Table::new`], without the marks of removed entries.
    pub(super) fn merged(slots: Vec<Slot>) -> Self {
        let table = Self::new(slots);
        if table.slots().all(|slot| !slot.removed) {
            return table;
        }
        Self::new(table.slots().filter(|slot| !slot.removed).cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nets.is_empty() && self.values.is_empty()
    }

    pub(super) fn has_nets(&self) -> bool {
        !self.nets.is_empty()
    }

    /// All slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.nets.iter().chain(&self.values)
    }

    /// The names of the fields in entries about values.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Arc<str>> {
        self.shapes.iter().flat_map(|shape| shape.fields.iter()).map(|field| &field.name)
    }

    fn put_nets(&mut self, nets: Vec<Slot>) {
        let mut keyed: Vec<(Net, Slot)> =
            nets.into_iter().filter_map(|slot| Some((slot.net()?, slot))).collect();
        // A stable sort, which is fast for two sorted lists in a row.
        keyed.sort_by_key(|(net, _)| *net);
        keyed.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                core::mem::swap(later, earlier);
            }
            same
        });
        let mut around = alloc::vec![NONE; keyed.len()];
        let number = |index: usize| u32::try_from(index).expect("there are fewer entries than that");
        let numbered = || keyed.iter().enumerate().map(|(index, (net, _))| (net, number(index)));
        let mut inside = |inner: u32, outer: u32| around[inner as usize] = outer;
        let v4 = numbered().filter_map(|(net, number)| match net.first() {
            IpAddr::V4(first) => Some((first.to_bits(), net.length(), number)),
            IpAddr::V6(_) => None,
        });
        self.v4 = Ranges::new(v4, &mut inside);
        let v6 = numbered().filter_map(|(net, number)| match net.first() {
            IpAddr::V6(first) => Some((first.to_bits(), net.length(), number)),
            IpAddr::V4(_) => None,
        });
        self.v6 = Ranges::new(v6, &mut inside);
        let slots = keyed.into_iter().zip(around);
        self.nets = slots.map(|((_, slot), around)| Slot { around, ..slot }).collect();
    }

    fn put_values(&mut self, slot: Slot) {
        let Target::Values(values) = &slot.listing.target else { return };
        let fields = || values.iter().map(|(field, _)| field);
        let known = self.shapes.iter().position(|shape| shape.fields.iter().eq(fields()));
        let shape = known.unwrap_or_else(|| {
            self.shapes.push(Shape { fields: fields().cloned().collect(), by_text: HashMap::new() });
            self.shapes.len() - 1
        });
        let text = slot.listing.target.joined().into_boxed_str();
        let number = u32::try_from(self.values.len()).expect("there are fewer entries than that");
        match self.shapes[shape].by_text.entry(text) {
            hashbrown::hash_map::Entry::Occupied(known) => self.values[*known.get() as usize] = slot,
            hashbrown::hash_map::Entry::Vacant(free) => {
                free.insert(number);
                self.values.push(slot);
            }
        }
    }

    /// The smallest network around an address.
    #[inline]
    pub(super) fn find(&self, address: IpAddr) -> Cursor {
        Cursor(match address {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        })
    }

    #[inline]
    pub(super) fn slot(&self, cursor: Cursor) -> Option<&Slot> {
        self.nets.get(cursor.0 as usize)
    }

    /// Finds the entries about the values of an attempt. An invalid value matches none.
    pub(super) fn at_values<'t>(&'t self, fields: &[(&str, &str)], mut found: impl FnMut(&'t Slot)) {
        let value = |name: &str| fields.iter().find(|(own, _)| same(own, name)).map(|(_, value)| *value);
        for shape in &self.shapes {
            if let Some(slot) = shape.find(value).and_then(|number| self.values.get(number as usize)) {
                found(slot);
            }
        }
    }

    /// The entry about exactly these values.
    pub(super) fn at_target(&self, target: &Target) -> Option<&Slot> {
        let Target::Values(values) = target else { return None };
        let mut shapes = self.shapes.iter();
        let shape = shapes.find(|shape| shape.fields.iter().eq(values.iter().map(|(field, _)| field)))?;
        let number = shape.by_text.get(target.joined().as_str())?;
        self.values.get(*number as usize)
    }
}

impl Shape {
    /// The index of the entry for these values, if there is one.
    fn find<'v>(&self, value: impl Fn(&str) -> Option<&'v str>) -> Option<u32> {
        if let [field] = &*self.fields {
            let value = value(&field.name)?;
            if field.kind.is_plain(value) {
                return self.by_text.get(value).copied();
            }
        }
        let mut text = KeyText::new();
        write_joined(&self.fields, value, &mut text)?;
        self.by_text.get(core::str::from_utf8(&text).ok()?).copied()
    }
}
