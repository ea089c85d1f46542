//! Derived fields: the domain of a mail address, the network of an IP address.
//!
//! A policy set says which fields are derived from which. An attempt with the source need not have the field.
//! If it has both, they must agree: otherwise a caller could be counted under different values by different
//! rules.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::charge::KeyText;
use crate::key::{FieldKind, Kinds, Presence, ValueError, same};
use crate::mistake::Mistake;

/// A field and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// The field.
    pub field: Arc<str>,
    /// The source.
    pub source: Arc<str>,
    part: SourcePart,
}

/// The part of the source that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourcePart {
    /// The domain of a mail address.
    Domain,
    /// The network around an IP address.
    Network { of: FieldKind, kind: FieldKind },
}

/// A derivation with the indices of its fields in a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedDerivation {
    field: u8,
    source: u8,
    part: SourcePart,
}

/// The fields of an attempt, including derived ones.
pub type Completed<'a> = SmallVec<[(&'a str, &'a str); 8]>;

impl Kinds {
    /// Adds a derivation. The kinds of both fields must be set before. The error says what is wrong.
    pub fn derive(mut self, field: &str, source: &str) -> Result<Self, String> {
        if field == source {
            return Err(format!("`{field}` cannot be derived from itself"));
        }
        if self.derived.iter().any(|known| &*known.field == source) {
            return Err(format!("`{source}` is derived itself: name the field that it is derived from"));
        }
        if self.derived.iter().any(|known| &*known.source == field) {
            return Err(format!("other fields are derived from `{field}`, so it cannot be derived itself"));
        }
        let part = match (self.of(field), self.of(source)) {
            (FieldKind::Domain, FieldKind::Address) => SourcePart::Domain,
            (kind @ FieldKind::Ip { .. }, of @ FieldKind::Ip { .. }) => SourcePart::Network { of, kind },
            _ => {
                return Err(format!(
                    "`{field}` cannot be derived from `{source}`: a domain is derived from a mail address, and a network from an IP address"
                ));
            }
        };
        self.derived.push(Derivation { field: field.into(), source: source.into(), part });
        Ok(self)
    }

    /// The fields that are derived.
    pub fn derived(&self) -> &[Derivation] {
        &self.derived
    }

    /// Whether any field is derived from this one.
    pub(crate) fn is_source(&self, name: &str) -> bool {
        self.derived.iter().any(|known| &*known.source == name)
    }

    /// Adds missing derived fields; `None` if nothing is derived. A value from which nothing can be derived
    /// is left for the policy to refuse.
    pub fn complete<'a>(&'a self, fields: &[(&'a str, &'a str)]) -> Option<Completed<'a>> {
        if self.derived.is_empty() {
            return None;
        }
        let value = |name: &str| fields.iter().find(|(own, _)| same(own, name)).map(|(_, value)| *value);
        let missing = self.derived.iter().filter(|own| value(&own.field).is_none());
        let derived = missing.filter_map(|own| {
            let part = own.part.of(value(&own.source)?).ok()??;
            Some((&*own.field, part))
        });
        Some(fields.iter().copied().chain(derived).collect())
    }
}

impl SourcePart {
    /// This part of a value of the source, as written there; `None` if the value has no such part.
    fn of(self, value: &str) -> Result<Option<&str>, ValueError> {
        match self {
            Self::Domain => {
                FieldKind::Address.check(value)?;
                Ok(FieldKind::domain_of(value))
            }
            Self::Network { of, .. } => {
                of.check(value)?;
                Ok(Some(value))
            }
        }
    }

    /// The kind of the derived field.
    fn kind(self) -> FieldKind {
        match self {
            Self::Domain => FieldKind::Domain,
            Self::Network { kind, .. } => kind,
        }
    }
}

impl IndexedDerivation {
    /// The derivations that concern a policy with these fields. Missing sources are added to the fields.
    pub(crate) fn of(kinds: &Kinds, fields: &mut Vec<Arc<str>>) -> Box<[Self]> {
        let mut placed = Vec::new();
        for Derivation { field, source, part } in kinds.derived() {
            let Some(field) = fields.iter().position(|known| known == field) else { continue };
            let source = fields.iter().position(|known| known == source).unwrap_or_else(|| {
                fields.push(Arc::clone(source));
                fields.len() - 1
            });
            let place = |index: usize| u8::try_from(index).expect("a policy has few fields");
            placed.push(Self { field: place(field), source: place(source), part: *part });
        }
        placed.into()
    }

    /// The indices of the field and of its source.
    pub(crate) fn places(self) -> (usize, usize) {
        (self.field.into(), self.source.into())
    }
}

/// Fills in derived values, given the names of all fields.
#[inline(never)]
pub(crate) fn fill(
    derived: &[IndexedDerivation],
    names: &[Arc<str>],
    values: &mut [Option<&str>],
) -> Result<(), Mistake> {
    for placed in derived {
        let (field, source) = placed.places();
        let Some(from) = values[source] else { continue };
        let bad = |at: usize, error| Mistake::BadValue { field: names[at].to_string(), error };
        let Some(part) = placed.part.of(from).map_err(|error| bad(source, error))? else { continue };
        match values[field] {
            None => values[field] = Some(part),
            Some(given) if given == part => {}
            Some(given) => {
                let agrees = agree(placed.part.kind(), given, part).map_err(|error| bad(field, error))?;
                if !agrees {
                    return Err(bad(field, ValueError::NotDerived { source: names[source].to_string() }));
                }
            }
        }
    }
    Ok(())
}

/// Whether two values are the same in their normalized form.
fn agree(kind: FieldKind, one: &str, other: &str) -> Result<bool, ValueError> {
    let (mut first, mut second) = (KeyText::new(), KeyText::new());
    let present = [kind.write(one, &mut first)?, kind.write(other, &mut second)?];
    Ok(present == [Presence::Present; 2] && first == second)
}
