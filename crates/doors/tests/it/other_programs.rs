//! Tests that start other programs: servers, clients, interpreters. `./test --quick` leaves them out.

mod forward_auth_proxies;
mod relay;
