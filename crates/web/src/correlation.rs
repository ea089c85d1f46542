//! The id by which a caller finds the answer in its log.

use std::cell::Cell;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Decision, Ticket};

/// The header of the correlation id.
pub const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// The correlation id of a request.
#[derive(Clone, Debug, Default)]
pub struct Correlation {
    /// The caller's id, if it is valid.
    pub sent: Option<HeaderValue>,
}

impl Correlation {
    /// The longest id that is accepted, in bytes.
    pub const MOST_BYTES: usize = 128;

    /// Reads the id from these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let fit = |value: &&HeaderValue| Self::fit(value.as_bytes()).is_some();
        Self { sent: headers.get(CORRELATION_ID).filter(fit).cloned() }
    }

    /// The caller's id as text, if it is valid.
    pub fn fit(value: &[u8]) -> Option<&str> {
        let fits = (1..=Self::MOST_BYTES).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
        str::from_utf8(value).ok().filter(|_| fits)
    }

    /// The caller's id as text.
    pub fn text(&self) -> Option<&str> {
        self.sent.as_ref().and_then(|sent| sent.to_str().ok())
    }

    /// Makes sure that there is an id: creates one if the caller sent none. Every later use gets the same id.
    #[must_use]
    pub fn settled(self) -> Self {
        Self { sent: Some(self.id().into()) }
    }

    /// The id of a response to a decision: the caller's, or one derived from the decision, so that the log
    /// and the journal have the same.
    pub fn id_of(&self, decision: &Decision<'_>) -> Id {
        let made = || IdForm::Generated(decision.charges.ticket.id());
        Id(self.sent.clone().map_or_else(made, IdForm::Sent))
    }

    /// The caller's id, or a new one.
    pub fn id(&self) -> Id {
        Id(self.sent.clone().map_or_else(|| IdForm::Generated(generate()), IdForm::Sent))
    }
}

/// An id of visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(IdForm);

/// The origin of an id. A generated one needs no allocation, since most refusals have one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum IdForm {
    Sent(HeaderValue),
    Generated([u8; 16]),
}

impl Id {
    /// The id as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            IdForm::Sent(value) => value.to_str().unwrap_or_default(),
            IdForm::Generated(digits) => str::from_utf8(digits).unwrap_or_default(),
        }
    }
}

impl From<Id> for HeaderValue {
    fn from(id: Id) -> Self {
        match id.0 {
            IdForm::Sent(value) => value,
            IdForm::Generated(digits) => Self::from_bytes(&digits).expect("digits fit into a header"),
        }
    }
}

/// Generates an id that is unique with high probability, across processes too. Random bits are read once per
/// thread, because a system call for each refusal would cost more than writing it.
fn generate() -> [u8; 16] {
    thread_local! {
        static NEXT: Cell<u64> = Cell::new(getrandom::u64().expect("the system gives random numbers"));
    }
    Ticket(NEXT.replace(NEXT.get().wrapping_add(1))).id()
}
