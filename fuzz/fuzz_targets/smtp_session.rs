//! See `tollgate_fuzz_targets::smtp_session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::smtp_session(bytes));
