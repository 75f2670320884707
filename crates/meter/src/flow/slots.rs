//! State beside the flow cache's records, by slot.

/// Sets the state of a slot. Slots come into use one after the other, and memory is touched
/// only then.
pub(super) fn set_slot<T: Default>(states: &mut Vec<T>, slot: usize, state: T) {
    if slot >= states.len() {
        states.resize_with(slot + 1, T::default);
    }
    states[slot] = state;
}
