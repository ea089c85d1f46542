//! See `tollgate_fuzz_targets::http_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::http_response(bytes));
