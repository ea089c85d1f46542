//! See `tollgate_fuzz_targets::policy_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::policy_request(bytes));
