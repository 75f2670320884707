//! The frames of one sequence as they arrive: which are new, which are copies, which come behind
//! later ones.

use sonde_wire::signature;

use super::{ArrivalDelays, ArrivalWindow};

/// What a frame is in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceVerdict {
    /// None that was sent later has arrived.
    InOrder,
    /// One that was sent later has (RFC 4737, section 3.3).
    Reordered,
    /// It has arrived before (RFC 5560, section 4), or is outside the window.
    Duplicate,
}

/// What has arrived of a sequence, each frame once. The window over it has `WORDS` times 64 frames.
#[derive(Debug)]
pub struct SequenceArrivals<const WORDS: usize> {
    /// Frames, each once.
    pub received: u64,
    /// Their octets, as they were given.
    pub octets: u64,
    /// Further copies.
    pub duplicates: u64,
    /// First and last arrival, ns TAI; 0: none.
    pub times: [i64; 2],
    pub delays: ArrivalDelays,
    /// Which of them it was.
    pub seen: ArrivalWindow<WORDS>,
    /// One more than the greatest sequence number.
    after: u64,
}

impl<const WORDS: usize> SequenceArrivals<WORDS> {
    /// None has arrived; the window begins at frame `floor`.
    pub fn new(floor: u64) -> Self {
        SequenceArrivals {
            received: 0,
            octets: 0,
            duplicates: 0,
            times: [0; 2],
            delays: ArrivalDelays::default(),
            seen: ArrivalWindow::new(floor),
            after: 0,
        }
    }

    /// One more than the greatest sequence number that has arrived.
    #[inline]
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The whole number of a frame, of which it carries the low 32 bits.
    #[inline]
    pub fn extend(&self, sequence: u32) -> u64 {
        signature::extend(sequence, self.after)
    }

    /// Frame `sequence` arrives at a time (ns TAI), `latency` ns after it was sent.
    #[inline]
    pub fn take(&mut self, sequence: u64, octets: u64, latency: i64, at: i64) -> SequenceVerdict {
        if !self.seen.note(sequence) {
            self.duplicates += 1;
            return SequenceVerdict::Duplicate;
        }
        if self.received == 0 {
            self.times[0] = at;
        }
        self.times[1] = at;
        self.received += 1;
        self.octets += octets;
        self.delays.add(latency);
        match sequence < self.after {
            true => SequenceVerdict::Reordered,
            false => {
                self.after = sequence + 1;
                SequenceVerdict::InOrder
            }
        }
    }

    /// Its numbers begin at 0 again; what was counted stays.
    pub fn restart(&mut self) {
        self.after = 0;
        self.seen.clear();
    }

    /// Nothing has been counted.
    pub fn clear(&mut self) {
        self.restart();
        self.delays.clear();
        (self.received, self.octets, self.duplicates, self.times) = (0, 0, 0, [0; 2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_counts_once_and_in_its_order() {
        use SequenceVerdict::{Duplicate, InOrder, Reordered};
        let mut sequence = SequenceArrivals::<2>::new(0);
        let mut verdicts = Vec::new();
        for (n, at) in [(0, 100), (1, 250), (1, 260), (4, 500), (3, 550), (2, 600), (3, 610)] {
            verdicts.push(sequence.take(n, 64, at - n as i64 * 100, at));
        }
        assert_eq!(
            verdicts,
            [InOrder, InOrder, Duplicate, InOrder, Reordered, Reordered, Duplicate]
        );
        assert_eq!((sequence.received, sequence.octets, sequence.duplicates), (5, 320, 2));
        assert_eq!((sequence.times, sequence.after()), ([100, 600], 5));
        let latency = sequence.delays.latency();
        assert_eq!((latency.count, latency.min, latency.max), (5, 100, 400));
        // Beyond the window nobody knows.
        assert_eq!(sequence.take(128, 64, 0, 700), Duplicate);
        // The numbers begin again, and the counts go on.
        sequence.restart();
        assert_eq!(sequence.take(0, 64, 100, 800), InOrder);
        assert_eq!((sequence.received, sequence.times, sequence.after()), (6, [100, 800], 1));
        sequence.clear();
        assert_eq!(sequence.take(1, 64, 100, 900), InOrder);
        assert_eq!((sequence.received, sequence.times, sequence.duplicates), (1, [900, 900], 0));
        assert_eq!(sequence.delays.jitter().count, 0);
    }

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let mut sequence = SequenceArrivals::<2>::new(u64::from(u32::MAX));
        sequence.take(u64::from(u32::MAX), 64, 0, 0);
        assert_eq!(sequence.extend(1), (1 << 32) + 1);
        assert_eq!(sequence.extend(u32::MAX - 1), u64::from(u32::MAX) - 1);
    }
}
