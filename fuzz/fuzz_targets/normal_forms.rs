//! See `tollgate_fuzz_targets::normal_forms`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::normal_forms(bytes));
