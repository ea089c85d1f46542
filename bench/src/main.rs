//! tollgate beside its peers: every figure is a ratio of two things measured in turn, in one run.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml` prints the whole table; a word on the
//! command line prints one section of it.

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
    let only = arguments.first();
    let sections: [(&str, fn()); 15] = [
        ("decide", decide::run),
        ("ladder", ladder::run),
        ("lists", lists::run),
        ("levels", levels::run),
        ("threads", threads::run),
        ("memory", memory::run),
        ("flush", flush::run),
        ("http", http::run),
        ("python", python::run),
        ("redis", shared::run),
        ("postgres", postgres::run),
        ("pacer", pacer::run),
        ("policy", policy::run),
        ("gateway", gateway::run),
        ("import", import::run),
        ("relay", relay::run),
        ("relay-million", relay::run_million),
    ];
    println!("| what | measured | beside | ratio | bound |\n| --- | --- | --- | --- | --- |");
    for (name, run) in sections {
        if only.is_none_or(|only| only == name) {
            run();
        }
    }
}
