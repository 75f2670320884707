//! Tests of the cache as a whole.

mod basics;
