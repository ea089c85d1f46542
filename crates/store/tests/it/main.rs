//! The stores in this process, and one contract for every store.

mod contract;
mod crash;
mod file;
mod file_foreign;
mod file_formats;
mod file_secret_keys;
mod memory_bounds;
mod memory_kinds;
mod memory_size;
