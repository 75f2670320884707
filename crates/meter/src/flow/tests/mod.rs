//! Tests of the cache as a whole.

mod active;
mod basics;
mod fragments;
mod full;
mod icmp;
mod oracle;
mod random;
