//! See `tollgate_fuzz_targets::login_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::login_body(bytes));
