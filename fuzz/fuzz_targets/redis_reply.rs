//! See `tollgate_fuzz_targets::redis_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::redis_reply(bytes));
