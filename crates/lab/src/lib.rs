//! Sonde.
