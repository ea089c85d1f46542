//! What the engine asks of a place that keeps counters, and of one that keeps records.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::Ticket;
use crate::charge::{Charges, Outcome};
use crate::limit::Hold;
use crate::outage::Reason;
use crate::plan::Plan;
use crate::time::Timestamp;
use crate::versioned_map::{Changes, Edit, Namespace};

/// A place that keeps counters. It owns the time by which they age.
pub trait Store: Send + Sync {
    /// The store's time: the clock by which its counters age.
    fn now(&self) -> Answer<'_, Timestamp>;

    /// Takes all charges, or none, and writes down what came of it. Without charges it conforms, and the
    /// outcome tells the time.
    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()>;

    /// Says what [`Store::take`] would, and takes nothing.
    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()>;

    /// Gives back what these charges took at `taken_at`, as the fate of each says. They may be a part of
    /// what the ticket took: each of its rules is given back once.
    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded>;

    /// Looks at the holds of one key, or changes them.
    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport>;

    /// Forgets counters.
    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()>;

    /// Undoes a take whose answer never came, as far as the ticket tells what it took: entries of
    /// logs, failures and holds. What was only counted stays counted.
    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()> {
        let _ = charges;
        Answer::ready(Ok(()))
    }

    /// Answers when everything that was taken so far survives a crash of this process. A store that keeps counters
    /// only in memory promises nothing, and answers at once; so does one whose server has its own settings for that.
    fn durable(&self) -> Answer<'_, ()> {
        Answer::ready(Ok(()))
    }

    /// Whether every take, every give and every order about holds is answered at once, so that nobody
    /// need be ready to wait.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Asks whether the store can be used, and what it cannot be used for. A store in this process can
    /// always be used for everything.
    fn probe(&self) -> Answer<'_, Vec<Impairment>> {
        Answer::ready(Ok(Vec::new()))
    }
}

/// A place that keeps named values beside the counters: one map for each namespace, each with its own
/// version. All nodes that share the counters share the values.
pub trait Records: Send + Sync {
    /// Makes edits in one namespace, in their order, and answers for each whether its condition held; an
    /// edit whose condition does not hold changes nothing. Of all callers that expect the same value and
    /// replace it, one succeeds. The changes are durable when the answer comes. If the answer is an error,
    /// up to [`MOST_TOGETHER`] edits were made all or not at all; more may have been made in part.
    /// Fails with [`Namespace::full`] if there is no room.
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>>;

    /// What has changed in a namespace since a version that an earlier answer told, or everything. It
    /// tells everything as well if it no longer knows what has changed since. It tells only what is
    /// durable.
    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes>;

    /// Random bytes that last as long as the counters do, the same for all nodes that share them. The
    /// engine signs receipts with them.
    fn secret(&self) -> Answer<'_, [u8; 32]>;
}

/// How many edits of one call every store makes all or not at all.
pub const MOST_TOGETHER: usize = 1_000;

/// A store's answer: at once if it is in this process, else later. Either way it can be awaited.
pub enum Answer<'a, T> {
    /// Here it is; taken out when it was awaited.
    Ready(Option<Result<T, StoreError>>),
    /// It comes.
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>),
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The calendar brought along does not cover the store's time. Nobody's fault; nothing was
    /// done. Ask again with the calendar around `now`.
    Stale {
        /// The store's time.
        now: Timestamp,
    },
    /// There is no room for another key, and none may be forgotten. The operator's fault; nothing
    /// was done.
    Full {
        /// How many keys there may be.
        max_keys: usize,
    },
    /// What is kept under one key cannot be read, because somebody else wrote it. Nothing was done,
    /// and other keys are well.
    Damaged {
        /// The name it is kept under.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server has no memory left for what this would write. The operator's fault; nothing was
    /// done. What only reads or frees still works.
    OutOfMemory {
        /// What the server said.
        reason: String,
    },
    /// Other callers kept one of the keys busy for too long. Nobody's fault; nothing was done, and the
    /// store is well.
    Busy,
    /// The server's access rules forbid a command that this needs. The operator's fault; nothing was
    /// done. What does not need the command still works.
    Forbidden {
        /// What the server said.
        reason: String,
    },
    /// The server that keeps one of the keys cannot be used, while other servers of the store can. The
    /// operator's fault, or the network's; whether anything was done is not known.
    PartUnavailable {
        /// What happened. It is logged and shown, so it holds no password.
        reason: String,
    },
    /// No answer came in time. The operator's fault, or the network's; whether anything was done is
    /// not known.
    TimedOut,
    /// The server answers, and refuses to serve. The operator's fault; nothing was done.
    Refused {
        /// What the server said. It is logged and shown, so it holds no password.
        reason: String,
    },
    /// The store cannot be used. The operator's fault, or the network's; whether anything was done
    /// is not known.
    Unavailable {
        /// What happened. It is logged and shown, so it holds no password.
        reason: String,
    },
}

/// What a store that answers cannot be relied on for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impairment {
    /// What kind of impairment it is.
    pub kind: ImpairmentKind,
    /// Which server, which commands, and what to do about it. It is logged and shown.
    pub detail: String,
}

/// What a store that answers cannot be relied on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImpairmentKind {
    /// It writes nothing more, because its memory is full.
    Full,
    /// Its access rules forbid some of the commands that are used.
    Forbidden,
    /// Some of its servers cannot be used.
    PartUnavailable,
    /// It drops counters when its memory is full.
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

/// What came of giving back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refunded {
    /// It was given back, as far as it still counted, and had not been before.
    Done,
    /// All of it had been given back before; nothing was done.
    Already,
    /// What it took is no longer known: it was taken too long ago, or what was taken then has been
    /// forgotten or lost since. Nothing was done.
    TooOld,
}

/// One rule at one key.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    /// The limits that hold there.
    pub plan: &'a Arc<Plan>,
    /// The key.
    pub key: &'a str,
}

/// What to do with the holds of a key.
#[derive(Clone, Copy, Debug)]
pub enum HoldsOrder<'a> {
    /// Only list them.
    List,
    /// Renew the lease of one.
    Renew(&'a str),
    /// End one.
    Release(&'a str),
    /// Renew the leases of several, up to [`HoldsOrder::MOST_IDS`].
    RenewMany(&'a [&'a str]),
    /// End several, up to [`HoldsOrder::MOST_IDS`].
    ReleaseMany(&'a [&'a str]),
    /// Hold these ids again, up to [`HoldsOrder::MOST_IDS`], each with its weight, in this order and as
    /// far as there is room: for what still lasts though its hold has run out, or was taken elsewhere.
    /// One that is held already is renewed. No other limit at the key is charged.
    Claim(&'a [(&'a str, u64)], Ticket),
    /// Make exactly these ids held, whatever the limit says: the caller's books are the truth.
    Replace(&'a [&'a str], Ticket),
}

impl HoldsOrder<'_> {
    /// How many ids one order may name; more take several.
    pub const MOST_IDS: usize = 10_000;
}

/// What came of an order about holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldsReport {
    /// Whether the id that was to be renewed or ended was held; of several, whether all were. Of those
    /// that were claimed, whether all are.
    pub found: bool,
    /// The store's time.
    pub now: Timestamp,
    /// By id: every hold, where they were to be listed or replaced; else those of the ids named that were
    /// renewed, ended or are held again.
    pub holds: Vec<(String, Hold)>,
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

impl<T> Answer<'_, T> {
    /// An answer that is there at once.
    pub fn ready(result: Result<T, StoreError>) -> Self {
        Self::Ready(Some(result))
    }
}

impl<T: Unpin> Future for Answer<'_, T> {
    type Output = Result<T, StoreError>;

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
                write!(f, "what the store keeps under `{key}` cannot be read: {reason}; delete it")
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
