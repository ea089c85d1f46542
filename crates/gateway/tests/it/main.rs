//! The gateway between real clients and upstreams.

mod bad_input;
mod bans;
mod bodies;
mod draining;
mod guarding;
mod holding;
mod http2;
mod http2_frames;
mod http2_upstream;
mod lifecycle;
mod limits;
mod passing;
mod routing;
mod seeing;
mod smuggling;
mod support;
mod tls;
mod upgrade;
mod upstreams;
mod waiting;
