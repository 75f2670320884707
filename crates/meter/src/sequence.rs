//! TCP sequence numbers (RFC 9293, section 3.4): comparison modulo 2^32, and where a
//! segment lies in what its sender has sent so far. The round-trip instrument and the
//! flow meter judge loss by the same rules, which are these.

/// Where a segment's data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentPosition {
    /// One octet or none just before the end: a keepalive (RFC 9293, section 3.8.4).
    Keepalive,
    /// It continues where the data ended.
    Next,
    /// Beyond a gap in the sequence.
    Ahead,
    /// It begins with old data and ends with new.
    Overlap,
    /// In the gap that is remembered.
    Hole,
    /// All of it has been seen.
    Old,
}

/// The position of the octets from `seq` to before `end`, at least one. `next` is the sequence
/// number after everything sent so far, `hole` the gap in it. `fin`: one of the octets is a FIN.
#[inline]
pub(crate) fn position(
    seq: u32,
    end: u32,
    fin: bool,
    next: u32,
    hole: Option<[u32; 2]>,
) -> SegmentPosition {
    if !fin && end.wrapping_sub(seq) <= 1 && seq == next.wrapping_sub(1) {
        SegmentPosition::Keepalive
    } else if seq == next {
        SegmentPosition::Next
    } else if after(seq, next) {
        SegmentPosition::Ahead
    } else if after(end, next) {
        SegmentPosition::Overlap
    } else if hole.is_some_and(|[low, high]| !after(low, seq) && !after(end, high)) {
        SegmentPosition::Hole
    } else {
        SegmentPosition::Old
    }
}

/// What is left of `hole` after [`SegmentPosition::Hole`]. Of a hole filled in its middle both ends
/// stay: only one hole is remembered.
#[inline]
pub(crate) fn fill([low, high]: [u32; 2], seq: u32, end: u32) -> Option<[u32; 2]> {
    match (seq == low, end == high) {
        (_, true) => None,
        (true, false) => Some([end, high]),
        (false, false) => Some([low, high]),
    }
}

/// `a` lies after `b` in sequence space, or among timestamps (modulo 2^32).
#[inline]
pub(crate) fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_position() {
        let hole = Some([50, 70]);
        for (seq, end, fin, hole, want) in [
            (100, 110, false, None, SegmentPosition::Next),
            (101, 110, false, None, SegmentPosition::Ahead),
            (99, 110, false, None, SegmentPosition::Overlap),
            (99, 100, false, None, SegmentPosition::Keepalive),
            (99, 100, true, None, SegmentPosition::Old),
            (98, 100, false, None, SegmentPosition::Old),
            (50, 70, false, hole, SegmentPosition::Hole),
            (55, 60, false, hole, SegmentPosition::Hole),
            (49, 60, false, hole, SegmentPosition::Old),
            (60, 71, false, hole, SegmentPosition::Old),
        ] {
            assert_eq!(position(seq, end, fin, 100, hole), want, "{seq}..{end}");
        }
    }

    proptest! {
        /// Sequence numbers wrap: only their differences count.
        #[test]
        fn positions_do_not_depend_on_the_origin(
            origin: u32, seq in -500i32..500, len in 1u32..300, low in -500i32..0, gap in 1u32..100,
        ) {
            let at = |x: i32| origin.wrapping_add(x as u32);
            let find = |base: &dyn Fn(i32) -> u32| {
                let (seq, low) = (base(seq), base(low));
                position(seq, seq.wrapping_add(len), false, base(0), Some([low, low.wrapping_add(gap)]))
            };
            prop_assert_eq!(find(&at), find(&|x| (x as u32).wrapping_add(1 << 20)));
        }

        /// Whatever is filled, a hole does not grow, and goes when it is filled in order.
        #[test]
        fn holes_shrink(low: u32, steps in proptest::collection::vec(1u32..50, 1..20)) {
            let high = low.wrapping_add(steps.iter().sum());
            let mut hole = Some([low, high]);
            let mut seq = low;
            for step in steps {
                let end = seq.wrapping_add(step);
                prop_assert_eq!(position(seq, end, true, high.wrapping_add(1), hole), SegmentPosition::Hole);
                hole = fill(hole.unwrap(), seq, end);
                seq = end;
            }
            prop_assert_eq!(hole, None);
        }
    }
}
