//! See `tollgate_fuzz_targets::forwarding`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_targets::forwarding(bytes));
