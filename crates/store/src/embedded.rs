//! The embedded store: a folder with a journal, segments and a catalogue.

pub mod disk;
mod journal;
mod segment;
