//! Who uses the machine.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The right to use the machine, held by a test to its end.
pub enum Turn {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

/// No test of this binary runs beside it.
pub fn alone() -> Turn {
    Turn::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner))
}

/// Others that share the machine run beside it.
pub fn shared() -> Turn {
    Turn::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner))
}

static MACHINE: RwLock<()> = RwLock::new(());
