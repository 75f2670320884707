//! The hash of a cache's keys, and what they have of the layers below IP.

use super::scope::Scope;
use crate::keyed_hash::KeyedHash;

/// Of one cache. The quality of its hash matters, the speed does not: two multiplications hide
/// behind memory.
#[derive(Clone, Copy)]
pub(super) struct Hasher {
    hash: KeyedHash,
    scope: Scope,
}

impl Hasher {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        Hasher { hash: KeyedHash::new(secret), scope: Scope::new(true, &[]) }
    }

    /// The same with keys of this scope.
    pub(super) fn within(self, scope: Scope) -> Self {
        Hasher { scope, ..self }
    }

    #[inline]
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Of the two words of a key.
    #[inline]
    pub(super) fn key(&self, ends: u64, rest: u64) -> u64 {
        self.hash.pair(ends, rest)
    }

    /// Of the two addresses of an IPv6 flow, in order.
    #[inline]
    pub(super) fn addresses(&self, first: u128, second: u128) -> u64 {
        self.hash.addresses(first, second, 0)
    }
}
