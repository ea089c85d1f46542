//! The versioned map: a reader that follows its changes knows its entries, and conditions, expiries and the
//! bound hold.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_core::versioned_map::{
    Changes, Edit, Expect, MOST_CHANGES, Namespace, Scope, Value, VersionedMap, moved,
};
use tollgate_core::{StoreError, Timestamp};

const fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// A reader that applies every answer.
#[derive(Default)]
struct Reader {
    version: Option<u64>,
    known: BTreeMap<String, Vec<u8>>,
}

impl Reader {
    fn apply(&mut self, changes: Changes) {
        if changes.scope == Scope::All {
            self.known.clear();
        }
        for (name, value) in changes.entries {
            match value {
                Some(value) => drop(self.known.insert(name, value)),
                None => drop(self.known.remove(&name)),
            }
        }
        assert_eq!(self.known.len(), changes.size);
        self.version = Some(changes.version);
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    let bytes = prop::collection::vec(0_u8..2, 0..2);
    let expect = prop_oneof![Just(Expect::Any), Just(Expect::Absent), bytes.clone().prop_map(Expect::Is)];
    let value = (bytes, prop::option::of(0_u64..40));
    let value = value.prop_map(|(bytes, until)| Value { bytes, until: until.map(at) });
    ("[a-e]", expect, prop::option::of(value)).prop_map(|(name, expect, to)| Edit { name, expect, to })
}

proptest! {
    #[test]
    fn a_reader_knows_what_a_plain_map_would_hold(
        steps in prop::collection::vec((prop::collection::vec(edit(), 0..4), 0_u64..3, any::<bool>()), 1..40),
    ) {
        let mut map = VersionedMap::new(Namespace::Lists);
        let mut model: BTreeMap<String, Value> = BTreeMap::new();
        let (mut reader, mut now) = (Reader::default(), 0);
        for (edits, passed, reads) in steps {
            now += passed;
            model.retain(|_, value| value.until.is_none_or(|until| until > at(now)));
            let held = map.change(&edits, at(now)).unwrap();
            for (edit, held) in edits.into_iter().zip(held) {
                let there = model.get(&edit.name).map(|value| &value.bytes);
                let expected = match &edit.expect {
                    Expect::Any => true,
                    Expect::Absent => there.is_none(),
                    Expect::Is(bytes) => there == Some(bytes),
                };
                prop_assert_eq!(held, expected);
                match edit.to {
                    _ if !expected => {}
                    Some(value) => drop(model.insert(edit.name, value)),
                    None => drop(model.remove(&edit.name)),
                }
            }
            // An expiry that has passed when it is written takes effect at the next call.
            if reads {
                model.retain(|_, value| value.until.is_none_or(|until| until > at(now)));
                let before = reader.version;
                let changes = map.changes(before, at(now));
                prop_assert_eq!(changes.scope == Scope::All, before.is_none());
                reader.apply(changes);
                let expected: BTreeMap<_, _> =
                    model.iter().map(|(name, value)| (name.clone(), value.bytes.clone())).collect();
                prop_assert_eq!(&reader.known, &expected);
            }
        }
    }
}

#[test]
fn it_remembers_as_many_changes_as_it_says() {
    let mut map = VersionedMap::new(Namespace::Lists);
    let edits: Vec<Edit> = (0..=MOST_CHANGES).map(|_| Edit::put("a", "x")).collect();
    map.change(&edits, at(0)).unwrap();
    assert_eq!(map.version(), MOST_CHANGES as u64 + 1);
    assert_eq!(map.changes(Some(0), at(0)).scope, Scope::All);
    assert_eq!(map.changes(Some(1), at(0)).scope, Scope::Changes);
    assert_eq!(map.changes(Some(map.version() + 1), at(0)).scope, Scope::All, "another map's version");
}

#[test]
fn nothing_is_a_change_that_leaves_everything_as_it_is() {
    let mut map = VersionedMap::new(Namespace::Config);
    map.restore("saved", Value { bytes: b"x".to_vec(), until: Some(at(5)) });
    assert_eq!(map.change(&[Edit::remove("none")], at(0)), Ok(vec![true]));
    assert_eq!(map.version(), 0);
    assert_eq!(map.changes(None, at(4)).entries.len(), 1);
    assert_eq!(map.changes(Some(0), at(5)).entries, [("saved".to_owned(), None)]);
    assert_eq!(map.version(), 1);
}

#[test]
fn the_bound_holds_to_the_entry() {
    for space in Namespace::ALL {
        let most = space.most_entries();
        let mut map = VersionedMap::new(space);
        for number in 1..most {
            map.restore(&number.to_string(), Value { bytes: Vec::new(), until: None });
        }
        let two = [Edit::put("a", ""), Edit::put("b", "")];
        let refused = map.change(&two, at(0)).unwrap_err();
        assert!(matches!(&refused, StoreError::OutOfMemory { reason } if reason.contains(space.name())));
        assert_eq!(refused, space.full());
        assert_eq!(map.version(), 0, "none of them was made");
        assert_eq!(map.change(&[Edit::put("a", ""), Edit::put("1", "")], at(0)), Ok(vec![true, true]));
        assert!(map.change(&two[1..], at(0)).is_err());
        assert_eq!(map.change(&[Edit::remove("a"), Edit::put("1", "")], at(0)), Ok(vec![true, true]));
    }
}

#[test]
fn records_of_the_first_layout_find_their_namespace_and_their_end() {
    let of = |name: &str, bytes: &str| {
        let (space, name, value) = moved(name, bytes.as_bytes());
        assert_eq!(value.bytes, bytes.as_bytes());
        (space, name, value.until.map(Timestamp::as_micros))
    };
    let plain = |space, name: &str, until| (space, name.to_owned(), until);
    assert_eq!(of("override/ip/pause/", "7\n1/s"), plain(Namespace::Config, "override/ip/pause/", None));
    assert_eq!(of("pause/1", "7\npolicy\na"), plain(Namespace::Pauses, "1", Some(7)));
    assert_eq!(of("ban/lock/g/r/x", "7\nsealed"), plain(Namespace::Locks, "g/r/x", Some(7)));
    assert_eq!(of("ban/user=bob", "block\nsince 1"), plain(Namespace::Lists, "user=bob", None));
    assert_eq!(of("ban/a", "block\nsince 1\nuntil 7"), plain(Namespace::Lists, "a", Some(7)));
    let grown = of("ban/a", "block\nsince 1\nuntil 7\nrule login\ntimes 2");
    assert_eq!(grown, plain(Namespace::Lists, "a", Some(67)), "it is remembered ten times as long");
    assert_eq!(of("ban/a", "gibberish"), plain(Namespace::Lists, "a", None));
}

#[test]
fn an_entry_that_was_set_while_the_clock_was_wrong_lasts_as_long_as_it_was_meant_to() {
    const YEAR: u64 = 365 * 86_400_000_000;
    const HOUR: u64 = 3_600_000_000;
    let start = 1_800_000_000_000_000;
    let mut map = VersionedMap::new(Namespace::Lists);
    let lasting = |name: &str, until: u64| Edit::put(name, "x").until(Some(at(until)));
    // Two years from the right time on.
    map.change(&[lasting("long", start + 2 * YEAR)], at(start)).unwrap();
    let wrong = start + YEAR;
    map.change(&[lasting("hour", wrong + HOUR)], at(wrong)).unwrap();
    let names = |changes: Changes| changes.entries.into_iter().filter(|(_, bytes)| bytes.is_some());
    let mut known = |now: u64| names(map.changes(None, at(now))).map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(known(start + 1), ["hour", "long"], "nothing is forgotten");
    assert_eq!(known(start + HOUR), ["hour", "long"]);
    assert_eq!(known(start + HOUR + 1), ["long"], "not until the year has passed");
    assert_eq!(known(start + 2 * YEAR - 1), ["long"]);
    assert_eq!(known(start + 2 * YEAR), [""; 0]);
}
