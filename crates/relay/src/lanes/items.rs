//! An ordered map that is small while it has one entry: most lanes have one message.

use std::collections::BTreeMap;

/// One pointer.
#[derive(Debug)]
pub(super) struct Items<K, V>(Option<Box<ItemNode<K, V>>>);

#[derive(Debug)]
enum ItemNode<K, V> {
    One(K, V),
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for Items<K, V> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord, V> Items<K, V> {
    pub(super) fn insert(&mut self, key: K, value: V) {
        if let Some(ItemNode::Many(many)) = self.0.as_deref_mut() {
            many.insert(key, value);
            return;
        }
        let kept = match self.0.take().map(|kept| *kept) {
            Some(ItemNode::One(known, old)) if known != key => {
                ItemNode::Many(BTreeMap::from([(known, old), (key, value)]))
            }
            _ => ItemNode::One(key, value),
        };
        self.0 = Some(Box::new(kept));
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        match self.0.as_deref_mut()? {
            ItemNode::One(known, _) if known != key => None,
            ItemNode::One(..) => self.pop_first().map(|(_, value)| value),
            ItemNode::Many(many) => {
                let removed = many.remove(key);
                self.shrink();
                removed
            }
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<(K, V)> {
        if let Some(ItemNode::Many(many)) = self.0.as_deref_mut() {
            let first = many.pop_first();
            self.shrink();
            return first;
        }
        match *self.0.take()? {
            ItemNode::One(key, value) => Some((key, value)),
            ItemNode::Many(mut many) => many.pop_first(),
        }
    }

    /// Gives back the memory of a map that has one entry left.
    fn shrink(&mut self) {
        if let Some(ItemNode::Many(many)) = self.0.as_deref_mut()
            && many.len() <= 1
        {
            self.0 = many.pop_first().map(|(key, value)| Box::new(ItemNode::One(key, value)));
        }
    }

    pub(super) fn first(&self) -> Option<(&K, &V)> {
        match self.0.as_deref()? {
            ItemNode::One(key, value) => Some((key, value)),
            ItemNode::Many(many) => many.first_key_value(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self.0.as_deref() {
            None => 0,
            Some(ItemNode::One(..)) => 1,
            Some(ItemNode::Many(many)) => many.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        let (one, many) = match self.0.as_deref() {
            None => (None, None),
            Some(ItemNode::One(_, value)) => (Some(value), None),
            Some(ItemNode::Many(many)) => (None, Some(many.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl<K: Ord, V> IntoIterator for Items<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Chain<
        std::option::IntoIter<(K, V)>,
        std::iter::Flatten<std::option::IntoIter<BTreeMap<K, V>>>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self.0.map(|kept| *kept) {
            None => (None, None),
            Some(ItemNode::One(key, value)) => (Some((key, value)), None),
            Some(ItemNode::Many(many)) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Items<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut items = Self(Some(Box::new(ItemNode::Many(entries.into_iter().collect()))));
        items.shrink();
        items
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(acts in prop::collection::vec((0..4_u8, 0..5_u8), 0..60)) {
            let (mut items, mut map) = (Items::default(), BTreeMap::new());
            for (number, (act, key)) in acts.into_iter().enumerate() {
                match act {
                    0 => prop_assert_eq!(items.pop_first(), map.pop_first()),
                    1 => prop_assert_eq!(items.remove(&key), map.remove(&key)),
                    _ => {
                        items.insert(key, number);
                        map.insert(key, number);
                    }
                }
                prop_assert_eq!(items.first(), map.first_key_value());
                prop_assert_eq!((items.len(), items.is_empty()), (map.len(), map.is_empty()));
                prop_assert!(items.values().eq(map.values()));
                prop_assert_eq!(matches!(items.0.as_deref(), Some(ItemNode::Many(_))), map.len() > 1);
                items = items.into_iter().collect();
            }
        }
    }
}
