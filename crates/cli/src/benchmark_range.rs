//! Where benchmarks may send to.

/// The addresses set aside for benchmarks, outside of which they do harm (RFC 6815): RFC 2544,
/// appendix C.2.2, and RFC 5180, section 8.
pub const PREFIXES: [&str; 2] = ["198.18.0.0/15", "2001:2::/48"];
