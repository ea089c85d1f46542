//! The tower layer in real services.

mod examples;
mod holding;
mod layer;
mod tonic;
