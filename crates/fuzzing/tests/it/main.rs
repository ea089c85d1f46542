//! The fuzz targets on their corpora.

mod inputs;
mod targets;
