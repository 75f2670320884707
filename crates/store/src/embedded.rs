//! The embedded store: a folder with a journal, segments and a catalogue.

mod catalogue;
pub mod disk;
mod journal;
mod merge;
mod segment;

pub use catalogue::SegmentId;
