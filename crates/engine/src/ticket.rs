//! Tickets: unique ids of takes, created without a lock.

use std::cell::Cell;

use tollgate_core::Ticket;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// A ticket that no other take has. Each thread steps through a sequence that visits every number once, from
/// a random start.
#[inline]
pub(crate) fn next() -> Ticket {
    NEXT.with(|next| {
        if next.get() == 0 {
            next.set(getrandom::u64().expect("the system gives random numbers") | 1);
        }
        let ticket = next.get();
        next.set(ticket.wrapping_add(0x9e37_79b9_7f4a_7c15));
        Ticket(ticket)
    })
}
