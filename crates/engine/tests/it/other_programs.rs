//! Tests that start other programs: servers, clients, interpreters. `./test --quick` leaves them out.

mod blocked_redis;
mod on_redis;
