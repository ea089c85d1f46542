//! The interfaces of stores: counters and records.

mod holds;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::charge::{Charges, Outcome};
use crate::outage::Reason;
use crate::plan::Plan;
use crate::time::Timestamp;
use crate::versioned_map::{Changes, Edit, Namespace};

pub use holds::{HoldsOrder, HoldsReport};

/// A store of counters. Counters age by its clock.
pub trait Store: Send + Sync {
    /// The store's time: the clock by which its counters age.
    fn now(&self) -> Answer<'_, Timestamp>;

    /// Takes all charges, or none, and writes the outcome. Without charges the attempt is allowed, and the
    /// outcome has the time.
    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()>;

    /// Writes the outcome that [`Store::take`] would have, and takes nothing.
    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()>;

    /// Refunds or finishes charges that were taken at `taken_at`, by the fate of each. They may be a part of
    /// the ticket's charges: each rule is refunded once. Without charges, because none of the rules exists any
    /// more, there is nothing to refund, and the result is [`Refunded::TooOld`].
    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded>;

    /// Lists or changes the holds of one key.
    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport>;

    /// Deletes counters.
    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()>;

    /// Undoes a take that got no answer, as far as its entries have the ticket: entries of logs, failures and
    /// holds. Plain counts stay.
    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()>;

    /// Marks everything that was taken so far, for [`Store::durable`].
    fn mark(&self) -> SaveMark {
        SaveMark::default()
    }

    /// Is ready when everything that was taken before the mark survives a crash of this process. A store that
    /// keeps counters only in memory promises nothing and is ready at once; so is one whose server has its own
    /// settings for that.
    fn durable(&self, _mark: SaveMark) -> Answer<'_, ()> {
        Answer::ready(Ok(()))
    }

    /// Whether takes, refunds and orders about holds are always answered at once, so that callers never have
    /// to wait.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Asks whether the store can be used, and what it cannot be used for. A store in this process can always
    /// be used for everything.
    fn probe(&self) -> Answer<'_, Vec<Impairment>> {
        Answer::ready(Ok(Vec::new()))
    }
}

/// A store of named values beside the counters: one map for each namespace, each with its own version. All
/// nodes that share the counters share the values.
pub trait Records: Send + Sync {
    /// Makes edits in one namespace, in their order, and returns for each whether its condition held. An edit
    /// whose condition does not hold changes nothing. Of several callers that expect the same value and
    /// replace it, one succeeds. The changes are durable when the call returns. After an error, up to
    /// [`MOST_TOGETHER`] edits were made all or not at all; more may have been made in part. Fails with
    /// [`Namespace::full`] if there is no room.
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>>;

    /// The changes in a namespace since a version of an earlier answer, or all entries. It also returns all
    /// entries if the changes are no longer known. Only durable changes are included.
    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes>;

    /// Random bytes that last as long as the counters, the same for all nodes that share them. The engine
    /// signs receipts with them.
    fn secret(&self) -> Answer<'_, [u8; 32]>;
}

/// A moment between two savings of a store. Takes before it are in every saving that begins after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaveMark(
    /// How many savings had begun.
    pub u64,
);

/// How many edits of one call every store makes all or not at all.
pub const MOST_TOGETHER: usize = 1_000;

/// The answer of a store, or of an engine that asks one: ready if the store is in this process, otherwise a future. Both
/// can be awaited.
pub enum Answer<'a, T, E = StoreError> {
    /// Ready; `None` after it was awaited.
    Ready(Option<Result<T, E>>),
    /// Not ready yet.
    Later(Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>),
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The calendar in the charges does not cover the store's time. No caller is at fault; nothing was done.
    /// Repeat the call with the calendar around `now`.
    Stale {
        /// The store's time.
        now: Timestamp,
    },
    /// There is no room for another key, and none may be evicted. The operator's fault; nothing was done.
    Full {
        /// The most keys.
        max_keys: usize,
    },
    /// The value of a key cannot be read, because another program wrote it. Nothing was done, and other keys
    /// are not affected.
    Damaged {
        /// The name of the key in the store.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server has no memory left for this write. The operator's fault; nothing was done. Reading and
    /// freeing still work.
    OutOfMemory {
        /// The server's message.
        reason: String,
    },
    /// Other callers kept one of the keys busy for too long, or its limits or the store's clock kept changing.
    /// No caller is at fault; nothing was done, and the store works.
    Busy,
    /// The server's access rules forbid a command that this call needs. The operator's fault; nothing was
    /// done. Calls without the command still work.
    Forbidden {
        /// The server's message.
        reason: String,
    },
    /// The server of one of the keys cannot be used, while other servers of the store can. The fault is the
    /// operator's or the network's; it is not known whether anything was done.
    PartUnavailable {
        /// What happened. It is logged and shown, so it holds no password.
        reason: String,
    },
    /// No answer arrived in time. The fault is the operator's or the network's; it is not known whether
    /// anything was done.
    TimedOut,
    /// The server answers, but refuses to serve. The operator's fault; nothing was done.
    Refused {
        /// The server's message. It is logged and shown, so it holds no password.
        reason: String,
    },
    /// The store cannot be used. The fault is the operator's or the network's; it is not known whether
    /// anything was done.
    Unavailable {
        /// What happened. It is logged and shown, so it holds no password.
        reason: String,
    },
}

/// What a store that answers cannot be relied on for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impairment {
    /// The kind of impairment.
    pub kind: ImpairmentKind,
    /// The server, the commands, and the remedy. It is logged and shown.
    pub detail: String,
}

/// The kinds of impairments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImpairmentKind {
    /// It accepts no more writes, because its memory is full.
    Full,
    /// Its access rules forbid some of the necessary commands.
    Forbidden,
    /// Some of its servers cannot be used.
    PartUnavailable,
    /// It evicts counters when its memory is full.
    Evicting,
}

impl ImpairmentKind {
    /// Why some decisions are made without the store; `None` if none are.
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::Full => Some(Reason::Full),
            Self::Forbidden => Some(Reason::Forbidden),
            Self::PartUnavailable => Some(Reason::Unreachable),
            Self::Evicting => None,
        }
    }
}

/// The result of a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refunded {
    /// It was refunded, as far as it still counted, and had not been before.
    Done,
    /// All of it had been refunded before; nothing was done.
    Already,
    /// The charges are no longer known: they are too old, or have been forgotten or lost since. Nothing was
    /// done.
    TooOld,
}

/// One rule at one key.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    /// The limits at this key.
    pub plan: &'a Arc<Plan>,
    /// The key.
    pub key: &'a str,
}

/// What to forget.
#[derive(Clone, Copy, Debug)]
pub enum Forget<'a> {
    /// One rule's counters at one key.
    Key(Counter<'a>),
    /// All counters of one rule.
    Rule(&'a str),
    /// Everything.
    All,
}

impl StoreError {
    /// Why a decision has to do without the store; `None` if it only has to be asked again.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Stale { .. } => None,
            Self::Full { .. } | Self::OutOfMemory { .. } => Some(Reason::Full),
            Self::Forbidden { .. } => Some(Reason::Forbidden),
            Self::Damaged { .. } => Some(Reason::Damaged),
            Self::Busy => Some(Reason::Busy),
            Self::TimedOut => Some(Reason::Timeout),
            Self::PartUnavailable { .. } | Self::Refused { .. } | Self::Unavailable { .. } => {
                Some(Reason::Unreachable)
            }
        }
    }

    /// Whether it is about the store as a whole, and not about one call or one key.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Refused { .. } | Self::Unavailable { .. })
    }

    /// Whether what was asked may have been done, though the answer is an error.
    pub fn is_uncertain(&self) -> bool {
        matches!(self, Self::TimedOut | Self::PartUnavailable { .. } | Self::Unavailable { .. })
    }

    /// Whether the same call may succeed later: the cause lies in the servers, in how they are set up, or
    /// in the way to them.
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::Stale { .. } | Self::Full { .. } | Self::Damaged { .. })
    }
}

impl<T, E> Answer<'_, T, E> {
    /// An answer that is there at once.
    pub fn ready(result: Result<T, E>) -> Self {
        Self::Ready(Some(result))
    }
}

impl<T: Unpin, E: Unpin> Future for Answer<'_, T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(result) => Poll::Ready(result.take().expect("an answer is awaited once")),
            Self::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { .. } => f.write_str("the calendar brought along does not cover the store's time"),
            Self::Full { max_keys } => {
                write!(
                    f,
                    "all {max_keys} keys are in use by limits that must not be forgotten; raise `max_keys`"
                )
            }
            Self::Damaged { key, reason } => {
                write!(f, "the stored value of `{key}` cannot be read: {reason}; delete it")
            }
            Self::OutOfMemory { reason } => write!(f, "the store is full: {reason}"),
            Self::Busy => f.write_str("other callers kept one of the keys busy for too long"),
            Self::Forbidden { reason } => write!(f, "the store forbids a command that is needed: {reason}"),
            Self::PartUnavailable { reason } => write!(f, "a part of the store cannot be used: {reason}"),
            Self::TimedOut => f.write_str("the store did not answer in time"),
            Self::Refused { reason } => write!(f, "the store refuses to serve: {reason}"),
            Self::Unavailable { reason } => write!(f, "the store cannot be used: {reason}"),
        }
    }
}

impl core::error::Error for StoreError {}
