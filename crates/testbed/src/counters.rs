//! Counters of what was dropped on the way: those of the tester's ports, and what moved.

use sonde_lab::device::{CounterKind, DeviceCounter};
use sonde_results::trial::{LedgerEntry, Side};

use super::tester::InterfaceCounts;

/// What was dropped between two readings.
pub fn dropped(before: &[DeviceCounter], after: Vec<DeviceCounter>) -> Vec<LedgerEntry> {
    let same = |a: &DeviceCounter, b: &DeviceCounter| {
        a.side == b.side && a.location == b.location && a.name == b.name
    };
    let mut entries = Vec::new();
    for now in after.into_iter().filter(|c| c.kind == CounterKind::Dropped) {
        let before = before.iter().find(|c| same(c, &now)).map_or(0, |c| c.value);
        // A device that was reset begins anew.
        let frames = now.value.checked_sub(before).unwrap_or(now.value);
        if frames > 0 {
            let DeviceCounter { side, location, name: counter, .. } = now;
            entries.push(LedgerEntry { side, place: location, counter, frames });
        }
    }
    entries
}

/// What a port of the tester at somebody else's device lost. On virtual Ethernet a frame that
/// finds the device's ring full is counted here, and is the device's loss.
pub fn of_port(
    name: &str,
    netns: Option<&str>,
    interface: &str,
    virtual_end: bool,
) -> Vec<DeviceCounter> {
    let Some(counts) = InterfaceCounts::read(netns, interface) else { return Vec::new() };
    let refused = if virtual_end { Side::Device } else { Side::Tester };
    [
        (Side::Tester, "rx_errors", counts.rx_errors),
        (Side::Tester, "rx_dropped", counts.rx_dropped),
        (Side::Tester, "tx_errors", counts.tx_errors),
        (refused, "tx_dropped", counts.tx_dropped),
    ]
    .map(|(side, counter, value)| DeviceCounter {
        side,
        location: format!("tester {name}"),
        name: counter.into(),
        kind: CounterKind::Dropped,
        value,
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_is_an_entry_and_what_began_anew_counts_from_zero() {
        let counter = |location: &str, name: &str, kind, value| DeviceCounter {
            side: Side::Tester,
            location: location.into(),
            name: name.into(),
            kind,
            value,
        };
        let dropping = |value| counter("a", "tx_dropped", CounterKind::Dropped, value);
        let still = counter("b", "tx_dropped", CounterKind::Dropped, 3);
        let new = counter("b", "rx_errors", CounterKind::Dropped, 2);
        let moved = |before: &[DeviceCounter], after: Vec<DeviceCounter>| {
            let entries = dropped(before, after).into_iter();
            entries.map(|e| (e.place, e.counter, e.frames)).collect::<Vec<_>>()
        };
        assert_eq!(
            moved(&[dropping(5), still.clone()], vec![dropping(12), still.clone(), new]),
            [("a".into(), "tx_dropped".into(), 7), ("b".into(), "rx_errors".into(), 2)]
        );
        assert_eq!(
            moved(&[dropping(5)], vec![dropping(1)]),
            [("a".into(), "tx_dropped".into(), 1)]
        );
    }
}
