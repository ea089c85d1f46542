//! The tower layer in real services.

mod holding;
mod layer;
mod other_programs;
mod tonic;
