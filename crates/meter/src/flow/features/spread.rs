//! Histograms of a flow's payload lengths and of the times between packets.

use sonde_results::flow::FlowSpread;

/// Both directions: 144 bytes a flow.
#[derive(Clone, Copy, Default)]
pub(super) struct Spread {
    sides: [FlowSpread; 2],
    last_ns: [i64; 2],
}

impl Spread {
    /// A packet with `length` octets of payload, at least one. The first of a direction
    /// has no time before it.
    pub(super) fn packet(&mut self, reverse: bool, length: u32, at_ns: i64) {
        let d = usize::from(reverse);
        let side = &mut self.sides[d];
        if side.lengths != [0; 8] {
            // A packet that was overtaken came 0 ms after.
            let gap = at_ns.saturating_sub(self.last_ns[d]).max(0) / 1_000_000;
            add(&mut side.gaps, u32::try_from(gap).unwrap_or(u32::MAX));
        }
        add(&mut side.lengths, length);
        self.last_ns[d] = at_ns;
    }

    /// A direction's histograms, if it had a packet.
    pub(super) fn result(&self, reverse: bool) -> Option<FlowSpread> {
        let side = self.sides[usize::from(reverse)];
        (side.lengths != [0; 8]).then_some(side)
    }
}

/// Bucket 0 ends with 15, each further one with twice as much and one; the last is open.
fn add(histogram: &mut [u32; 8], value: u32) {
    let bucket = (32 - value.leading_zeros()).saturating_sub(4).min(7);
    let count = &mut histogram[bucket as usize];
    *count = count.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_the_buckets() {
        let bounds = [15, 31, 63, 127, 255, 511, 1023];
        for (i, bound) in bounds.into_iter().enumerate() {
            let mut histogram = [0; 8];
            add(&mut histogram, bound);
            assert_eq!(histogram[i], 1, "{bound}");
            add(&mut histogram, bound + 1);
            assert_eq!(histogram[i + 1], 1, "{bound} + 1");
        }
        let mut histogram = [0; 8];
        add(&mut histogram, 0);
        add(&mut histogram, u32::MAX);
        assert_eq!(histogram, [1, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn directions_are_apart_and_the_first_packet_has_no_gap() {
        let mut spread = Spread::default();
        assert_eq!(spread.result(false), None);
        spread.packet(false, 10, 0);
        spread.packet(true, 2000, 5_000_000);
        spread.packet(false, 100, 40_000_000);
        // Overtaken.
        spread.packet(false, 100, 39_000_000);
        let forward = spread.result(false).unwrap();
        assert_eq!(forward.lengths, [1, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(forward.gaps, [1, 0, 1, 0, 0, 0, 0, 0]);
        let reverse = spread.result(true).unwrap();
        assert_eq!((reverse.lengths[7], reverse.gaps), (1, [0; 8]));
    }
}
