//! Frames of one sender that arrive, or may arrive, at more ports than one: what a bridge floods,
//! and what goes to multicast groups.

use serde::{Deserialize, Serialize};
use sonde_meter::load::{HeaderTemplate, LoadError, Traffic, headers};
use sonde_results::trial::Direction;
use sonde_wire::ethernet::Mac;

/// What goes out beside the first direction of a tester, and where else it may arrive.
#[derive(Clone, Debug, Default)]
pub struct CopySpec {
    /// Frames of another class that share the first direction's stream.
    pub mixed: Option<Mixed>,
    /// Further ports at which its frames are looked for.
    pub branches: Vec<Branch>,
}

/// A second class of frames in one stream (RFC 3918, section 4.1).
#[derive(Clone, Debug)]
pub struct Mixed {
    /// Its frames: as many flows of them as there are groups. Sizes and encapsulation are
    /// those of the first class.
    pub traffic: Traffic,
    /// Its frames of all, 0 to 1, evenly spread.
    pub share: f64,
}

impl Mixed {
    pub(super) fn classes(&self, first: &Traffic) -> Result<Classes, LoadError> {
        Classes::new(self.share, first.flows, self.traffic.flows)
    }
}

/// A further port at which the frames of the first direction may arrive.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    /// Index of the port.
    pub to: usize,
    /// Destination MAC address of what arrives; others are stray. `None`: any.
    pub for_mac: Option<Mac>,
    /// Which of the frames have to.
    pub expects: Expects,
}

/// Which frames of a stream have to arrive at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expects {
    /// All: it is a direction of its own.
    All,
    /// Those of the second class: a direction of its own, too. Others are `flooded`.
    Mixed,
    /// None: every copy is `flooded` of the first direction.
    None,
}

/// The order in which classes share a stream: frame `n` is of the second class where entry `n`
/// modulo the length is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Classes(Vec<bool>);

impl Classes {
    /// The shortest order in which the share is exact (to one in [`PARTS`]) and each of the
    /// flows of both classes has a turn.
    fn new(share: f64, first: u32, second: u32) -> Result<Classes, LoadError> {
        let parts = (share.clamp(0.0, 1.0) * f64::from(PARTS)).round() as u32;
        let common = common_divisor(parts, PARTS);
        let (seconds, all) = (parts / common, PARTS / common);
        let turns = |flows: u32, of: u32| if of == 0 { 1 } else { flows.div_ceil(of) };
        let times = turns(second, seconds).max(turns(first, all - seconds));
        let length = times.saturating_mul(all);
        if length > STREAMS {
            return Err(LoadError::Rule(format!(
                "a stream of {length} flows cannot be distinguished by class: fewer flows or groups, \
                 or a rounder share"
            )));
        }
        let of_second = |n: u32| {
            let until = |n: u64| n * u64::from(seconds) / u64::from(all);
            until(u64::from(n % all) + 1) > until(u64::from(n % all))
        };
        Ok(Classes((0..length).map(of_second).collect()))
    }

    /// Frames of the second class among the first `n`.
    pub(super) fn of_second(&self, n: u64) -> u64 {
        let length = self.0.len() as u64;
        let among = |classes: &[bool]| classes.iter().filter(|&&second| second).count() as u64;
        n / length * among(&self.0) + among(&self.0[..(n % length) as usize])
    }

    fn is_second(&self, n: u64) -> bool {
        self.0[(n % self.0.len() as u64) as usize]
    }

    /// The headers of both, in that order.
    pub(super) fn headers(
        &self,
        first: &Traffic,
        second: &Traffic,
    ) -> Result<Vec<HeaderTemplate>, LoadError> {
        let (firsts, seconds) = (headers(first)?, headers(second)?);
        let (mut firsts, mut seconds) = (firsts.iter().cycle(), seconds.iter().cycle());
        let pick = |(index, &is_second): (usize, &bool)| {
            let next = if is_second { seconds.next() } else { firsts.next() };
            let header = next.cloned().ok_or(LoadError::Rule("a class without flows".into()))?;
            Ok(HeaderTemplate { stream: index as u16, ..header })
        };
        self.0.iter().enumerate().map(pick).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Of the stream of both classes, what a port has to receive.
#[derive(Clone, Debug)]
pub(super) struct CopyShare {
    pub(super) expects: Expects,
    pub(super) classes: Option<Classes>,
}

impl CopyShare {
    /// Frames of the first `n` that have to arrive.
    pub(super) fn of(&self, n: u64) -> u64 {
        match (self.expects, &self.classes) {
            (Expects::All, _) => n,
            (Expects::Mixed, Some(classes)) => classes.of_second(n),
            (Expects::Mixed | Expects::None, _) => 0,
        }
    }

    /// A bit for each of the 64 frames from `first` on that need not arrive.
    pub(super) fn excused(&self, first: u64) -> u64 {
        match (self.expects, &self.classes) {
            (Expects::All, _) => 0,
            (Expects::Mixed, Some(classes)) => {
                (0..64).map(|i| u64::from(!classes.is_second(first + i)) << i).sum()
            }
            (Expects::Mixed | Expects::None, _) => u64::MAX,
        }
    }

    /// Makes of the counts of a whole stream those of this share of it; `from` is the first
    /// frame that counted.
    pub(super) fn restrict(&self, d: &mut Direction, from: u64) {
        let (Expects::Mixed, Some(classes)) = (self.expects, &self.classes) else { return };
        let count = |frames: u64| classes.of_second(from + frames) - classes.of_second(from);
        let (all, bytes) = (d.sent.max(1), d.received_bytes.checked_div(d.received).unwrap_or(0));
        // Of the whole stream, by the time between two of its frames: from the first of the
        // share to the last.
        let slot = (d.sent_ns[1] - d.sent_ns[0]) as f64 / all.saturating_sub(1).max(1) as f64;
        let own = |n: &u64| classes.is_second(from + n);
        let lead = (0..all).find(own).unwrap_or(0);
        let tail = (0..all).rev().find(own).map_or(0, |n| all - 1 - n);
        d.sent_ns[0] += (lead as f64 * slot) as i64;
        d.sent_ns[1] -= (tail as f64 * slot) as i64;
        d.sent_bytes = (d.sent_bytes as f64 * count(d.sent) as f64 / all as f64) as u64;
        (d.intended, d.sent) = (count(d.intended), count(d.sent));
        let (own, others): (Vec<_>, Vec<_>) =
            d.streams.drain(..).partition(|s| classes.is_second(s.stream.into()));
        d.flooded += others.iter().map(|s| s.received).sum::<u64>();
        d.received = own.iter().map(|s| s.received).sum();
        d.received_bytes = bytes * d.received;
        d.streams = own;
    }
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a.max(1) } else { common_divisor(b, a % b) }
}

/// To which shares are exact.
const PARTS: u32 = 1000;
/// Streams that are counted apart.
const STREAMS: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_results::trial::StreamCount;

    #[test]
    fn classes_are_evenly_spread_and_every_flow_has_a_turn() {
        let classes = Classes::new(0.3, 1, 16).unwrap();
        assert_eq!(classes.of_second(10), 3);
        // 3 entries in 10: six times for 16 groups.
        assert_eq!((classes.len(), classes.of_second(60)), (60, 18));
        assert_eq!(Classes::new(0.5, 8, 1).unwrap().len(), 16);
        assert_eq!(Classes::new(1.0, 1, 5).unwrap().0, [true; 5]);
        assert_eq!(Classes::new(0.0, 3, 5).unwrap().0, [false; 3]);
        let error = Classes::new(0.001, 1, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("rounder share"), "{error}");
    }

    #[test]
    fn the_share_of_a_port_is_all_that_it_is_judged_by() {
        let classes = Classes::new(0.5, 1, 1).ok();
        let share = CopyShare { expects: Expects::Mixed, classes };
        assert_eq!(share.excused(0) & 0b1111, 0b0101, "the second of each two is of the group");
        let of = |stream: u16, received| StreamCount { stream, sent: 10, received };
        let mut d = Direction {
            intended: 20,
            sent: 20,
            received: 12,
            received_bytes: 1200,
            sent_bytes: 2000,
            sent_ns: [0, 19_000],
            streams: vec![of(0, 3), of(1, 9)],
            ..Direction::default()
        };
        share.restrict(&mut d, 0);
        assert_eq!((d.intended, d.sent, d.received, d.flooded), (10, 10, 9, 3));
        assert_eq!((d.sent_bytes, d.received_bytes, d.sent_ns), (1000, 900, [1000, 19_000]));
        assert_eq!(d.streams, [of(1, 9)]);
    }

    proptest! {
        #[test]
        fn what_is_excused_and_what_is_expected_make_the_whole(
            share in 0.0..=1.0f64, first in 1u32..50, second in 1u32..50, block in 0u64..100,
        ) {
            let classes = Some(Classes::new(share, first, second).unwrap());
            let share = CopyShare { expects: Expects::Mixed, classes };
            let from = block * 64;
            let expected = share.of(from + 64) - share.of(from);
            prop_assert_eq!(expected + u64::from(share.excused(from).count_ones()), 64);
        }
    }
}
