//! The pure core of tollgate: values in, values out, time as an argument.
//!
//! A door turns bytes into an [`Attempt`]. A [`Policy`] turns the attempt into [`Charges`]. A
//! [`Store`] takes all the charges or none, and returns an [`Outcome`]. The policy turns the outcome
//! into a [`Decision`]. The door turns the decision into bytes.
//!
//! Absent on purpose: clocks, input and output, locks, threads, serialisation, and `std`. The
//! compiler enforces it.

#![no_std]
// Other crates, and programs through `tollgate-tower`, use this API.
#![warn(missing_docs)]

extern crate alloc;

mod attempt;
pub mod banning;
pub mod charge;
pub mod clash;
pub mod climb;
pub mod code;
pub mod decision;
pub mod derived;
pub mod grammar;
pub mod guard;
pub mod key;
pub mod limit;
pub mod lists;
mod mistake;
pub mod net;
pub mod numbers;
pub mod outage;
mod outcome_class;
pub mod plan;
pub mod policy;
pub mod reading;
pub mod rows;
pub mod rule;
pub mod store;
pub mod ticket;
pub mod time;
pub mod versioned_map;

pub use banning::Banning;
pub use charge::{Charge, Charges, Fate, Outcome};
pub use clash::Clash;
pub use climb::Climb;
pub use code::Code;
pub use decision::{Decision, Line, Origin, Receipt, ReceiptLine, Verdict};
pub use guard::{Clears, Guard};
pub use limit::{Limit, State};
pub use lists::{Author, Listing, Lists, Roster, Stance, Target};
pub use net::Net;
pub use outage::{OnOutage, Reason, Share};
pub use outcome_class::{OutcomeClass, OutcomeClasses};
pub use plan::Plan;
pub use policy::{Attempt, Mistake, Policies, Policy};
pub use reading::{Reading, When};
pub use rows::{RowCount, RowSource, RowsError};
pub use rule::{Deferral, Field, OnExceed, Rule};
pub use store::{Answer, Records, Store, StoreError};
pub use ticket::Ticket;
pub use time::{Clock, Span, Timestamp};

/// The largest number that is exact on every store: 2^53 - 1, the last whole number before doubles lose
/// precision.
pub const MAX_EXACT: u64 = (1 << 53) - 1;
