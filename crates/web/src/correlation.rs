//! The id that ties an answer to the caller's log.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Where the id stands.
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
        let fit = |value: &&HeaderValue| {
            (1..=Self::MOST_BYTES).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
        };
        Self { given: headers.get(CORRELATION_ID).filter(fit).cloned() }
    }

    /// The id: the caller's, or one that is made up now.
    pub fn id(&self) -> HeaderValue {
        self.given.clone().unwrap_or_else(made_up)
    }
}

/// An id as text; ids are visible ASCII.
pub fn id_text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// An id that this process makes up once, and that no other is likely to make up. Asking the system
/// for luck each time would take longer than writing a refusal.
fn made_up() -> HeaderValue {
    static START: LazyLock<u64> =
        LazyLock::new(|| getrandom::u64().expect("the system gives random numbers"));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = scatter(START.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed)));
    let text: [u8; 16] =
        std::array::from_fn(|digit| b"0123456789abcdef"[(number >> (60 - 4 * digit)) as usize & 15]);
    HeaderValue::from_maybe_shared(Bytes::copy_from_slice(&text)).expect("digits fit into a header")
}

/// Turns neighbours into numbers far apart, and never two into one (the finisher of splitmix64).
fn scatter(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
