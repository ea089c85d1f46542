//! The store on a real PostgreSQL.

mod batches;
mod bounds;
mod damage;
mod doctor;
mod failover;
mod faults;
mod guide;
mod large_states;
mod plans;
mod readable;
mod stage;
mod sweeping;
mod together;
mod uncertain;
mod upgrading;
