//! Tests of the cache as a whole.

mod basics;
mod full;
mod oracle;
mod random;
