//! The id that ties an answer to the caller's log.

use std::cell::Cell;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Decision, Ticket};

/// The header of the correlation id.
pub const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// The id by which a caller finds a request again.
#[derive(Clone, Debug, Default)]
pub struct Correlation {
    /// What the caller sent, if it is fit to be sent back.
    pub given: Option<HeaderValue>,
}

impl Correlation {
    /// The longest id that is taken over, in bytes.
    pub const MOST_BYTES: usize = 128;

    /// The id of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let fit = |value: &&HeaderValue| Self::fit(value.as_bytes()).is_some();
        Self { given: headers.get(CORRELATION_ID).filter(fit).cloned() }
    }

    /// What a caller sent, if it is fit to be sent back.
    pub fn fit(value: &[u8]) -> Option<&str> {
        let fits = (1..=Self::MOST_BYTES).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
        str::from_utf8(value).ok().filter(|_| fits)
    }

    /// What the caller sent, as a decision has to know it.
    pub fn text(&self) -> Option<&str> {
        self.given.as_ref().and_then(|given| given.to_str().ok())
    }

    /// The same with an id for sure: one that is made up now, if the caller sent none. It is the same
    /// wherever it is said from here on.
    #[must_use]
    pub fn settled(self) -> Self {
        Self { given: Some(self.id().into()) }
    }

    /// The id of an answer to a decision: the caller's, or the one that is made up from the decision, so that
    /// the log and the journal have the same.
    pub fn id_of(&self, decision: &Decision<'_>) -> Id {
        let made = || IdForm::Made(decision.charges.ticket.id());
        Id(self.given.clone().map_or_else(made, IdForm::Given))
    }

    /// The id: the caller's, or one that is made up now.
    pub fn id(&self) -> Id {
        Id(self.given.clone().map_or_else(|| IdForm::Made(made_up()), IdForm::Given))
    }
}

/// An id: visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(IdForm);

/// Where an id comes from. One that is made up takes no memory of its own: most refusals have one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum IdForm {
    Given(HeaderValue),
    Made([u8; 16]),
}

impl Id {
    /// As text.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            IdForm::Given(value) => value.to_str().unwrap_or_default(),
            IdForm::Made(digits) => str::from_utf8(digits).unwrap_or_default(),
        }
    }
}

impl From<Id> for HeaderValue {
    fn from(id: Id) -> Self {
        match id.0 {
            IdForm::Given(value) => value,
            IdForm::Made(digits) => Self::from_bytes(&digits).expect("digits fit into a header"),
        }
    }
}

/// An id that this thread makes up once, and that no other is likely to make up, here or elsewhere.
/// Asking the system for luck each time would take longer than writing a refusal.
fn made_up() -> [u8; 16] {
    thread_local! {
        static NEXT: Cell<u64> = Cell::new(getrandom::u64().expect("the system gives random numbers"));
    }
    Ticket(NEXT.replace(NEXT.get().wrapping_add(1))).id()
}
