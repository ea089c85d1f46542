//! tollgate beside its peers: every figure is a ratio of two things measured in turn, in one run.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml` prints the whole table; words on
//! the command line print sections of it.

mod contenders;
mod decide;
mod draws;
mod flush;
mod gateway;
mod http;
mod import;
mod ladder;
mod levels;
mod lists;
mod memory;
mod nodes;
mod pacer;
mod policy;
mod postgres;
mod python;
mod relay;
mod replay;
mod rounds;
mod shared;
mod threads;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((node, settings)) = arguments.split_first()
        && node == nodes::NODE
    {
        return nodes::be_one(settings);
    }
    let sections: &[(&str, fn())] = &[
        ("decide", decide::run),
        ("ladder", ladder::run),
        ("lists", lists::run),
        ("levels", levels::run),
        ("threads", threads::run),
        ("memory", memory::run),
        ("flush", flush::run),
        ("http", http::run),
        ("http-peer", http::peer::run),
        ("python", python::run),
        ("redis", shared::run),
        ("postgres", postgres::run),
        ("pacer", pacer::run),
        ("policy", policy::run),
        ("gateway", gateway::rates),
        ("gateway-cpu", gateway::costs),
        ("gateway-429", gateway::refusals),
        ("gateway-redis", gateway::on_redis),
        ("gateway-latency", gateway::latency),
        ("gateway-idle", gateway::idle),
        ("import", import::run),
        ("replay", replay::run),
        ("relay", relay::run),
        ("relay-million", relay::run_million),
    ];
    println!("| what | measured | beside | ratio | bound |\n| --- | --- | --- | --- | --- |");
    for (name, run) in sections {
        if arguments.is_empty() || arguments.iter().any(|only| only == name) {
            run();
        }
    }
}
