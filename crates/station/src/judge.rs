//! Judges what units measure by objectives.

pub mod settings;
