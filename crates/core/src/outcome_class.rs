//! How attempts end, in classes that only a door can tell apart.

/// How an attempt ended, as its door sees it: a number that says nothing to the engine. At HTTP doors it is
/// made from the status of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutcomeClass(pub u16);

/// Some of the classes below [`OutcomeClasses::END`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OutcomeClasses([u64; WORDS]);

const WORDS: usize = 10;

impl OutcomeClass {
    /// An ending that the door cannot classify. It is in every set.
    pub const UNKNOWN: Self = Self(u16::MAX);
}

impl OutcomeClasses {
    /// The first class that no set can tell from others.
    pub const END: u16 = 64 * WORDS as u16;

    /// Adds a class; one from [`OutcomeClasses::END`] on is in every set already.
    pub fn insert(&mut self, class: OutcomeClass) {
        if let Some(word) = self.0.get_mut(usize::from(class.0 / 64)) {
            *word |= 1 << (class.0 % 64);
        }
    }

    /// Whether this is one of them. A class that no set can name always is, so that no client gets around a
    /// limit by it.
    pub fn contains(&self, class: OutcomeClass) -> bool {
        self.0.get(usize::from(class.0 / 64)).is_none_or(|word| word >> (class.0 % 64) & 1 == 1)
    }
}

impl FromIterator<OutcomeClass> for OutcomeClasses {
    fn from_iter<I: IntoIterator<Item = OutcomeClass>>(classes: I) -> Self {
        let mut all = Self::default();
        classes.into_iter().for_each(|class| all.insert(class));
        all
    }
}
