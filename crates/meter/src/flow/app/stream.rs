//! The first octets of one direction, put in order again: of a TCP connection, or of the
//! CRYPTO frames of QUIC.

/// At most [`Stream::LIMIT`] octets and [`Stream::MAX_RANGES`] pieces beyond a gap.
#[derive(Clone, Default)]
pub(super) struct Stream {
    /// From the start; what lies in a gap means nothing.
    octets: Vec<u8>,
    /// Octets without a gap.
    end: usize,
    /// What there is beyond, by start; none touches another.
    ranges: Vec<[usize; 2]>,
}

impl Stream {
    pub(super) const LIMIT: usize = 8192;
    /// Memory grows by as many octets.
    pub(super) const STEP: usize = 2048;
    const MAX_RANGES: usize = 32;

    /// Nothing has come yet.
    pub(super) fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// What has come without a gap.
    pub(super) fn data(&self) -> &[u8] {
        &self.octets[..self.end]
    }

    /// Nothing further will be taken.
    pub(super) fn is_full(&self) -> bool {
        self.end == Self::LIMIT
    }

    /// Takes memory for what will come, before anything has: empty, but perhaps with room.
    pub(super) fn lend(&mut self, room: Vec<u8>) {
        debug_assert!(self.is_empty() && room.is_empty());
        self.octets = room;
    }

    /// Forgets everything: its memory, empty.
    pub(super) fn clear(&mut self) -> Vec<u8> {
        let mut room = std::mem::take(self).octets;
        room.clear();
        room
    }

    /// Memory in use beyond the value itself, octets.
    pub(super) fn held(&self) -> usize {
        self.octets.capacity() + self.ranges.capacity() * size_of::<[usize; 2]>()
    }

    /// Takes `data` at `offset`. What came first stays. False: [`Stream::data`] is as it was.
    pub(super) fn insert(&mut self, offset: usize, data: &[u8]) -> bool {
        let stop = offset.saturating_add(data.len()).min(Self::LIMIT);
        let start = offset.max(self.end);
        if start >= stop {
            return false;
        }
        if start > self.end && !self.note(start, stop) {
            return false;
        }
        if self.octets.len() < stop {
            // In steps: the bound of a flow's memory is the sum of these, not twice as much.
            let step = stop.next_multiple_of(Self::STEP);
            self.octets.reserve_exact(step - self.octets.len());
            self.octets.resize(stop, 0);
        }
        self.octets[start..stop].copy_from_slice(&data[start - offset..stop - offset]);
        if start > self.end {
            return false;
        }
        self.end = stop;
        let joined = self.ranges.iter().take_while(|[low, _]| *low <= stop).count();
        for [_, high] in self.ranges.drain(..joined) {
            self.end = self.end.max(high);
        }
        // The last of them may reach a further one only if that one began before its end:
        // ranges do not touch each other, so there is none.
        true
    }

    /// Notes a piece beyond a gap; false: there are too many.
    fn note(&mut self, mut low: usize, mut high: usize) -> bool {
        let first = self.ranges.partition_point(|range| range[1] < low);
        let last = self.ranges.partition_point(|range| range[0] <= high);
        if first == last && self.ranges.len() == Self::MAX_RANGES {
            return false;
        }
        for range in &self.ranges[first..last] {
            low = low.min(range[0]);
            high = high.max(range[1]);
        }
        self.ranges.splice(first..last, [[low, high]]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn out_of_order_twice_and_overlapping() {
        let mut stream = Stream::default();
        assert!(!stream.insert(6, b"gh"));
        assert!(!stream.insert(3, b"de"));
        assert_eq!(stream.data(), b"");
        assert!(stream.insert(0, b"abcX"));
        assert_eq!(stream.data(), b"abcXe");
        assert!(!stream.insert(0, b"zzz"), "what came first stays");
        assert!(stream.insert(4, b"efg"));
        assert_eq!(stream.data(), b"abcXefgh");
    }

    #[test]
    fn bounds() {
        let mut stream = Stream::default();
        for i in 0..100 {
            stream.insert(2 + 2 * i, b"x");
        }
        assert_eq!(stream.ranges.len(), Stream::MAX_RANGES);
        // Piece 33 was not noted: the stream ends before it.
        assert!(stream.insert(0, &[b'y'; 65]));
        assert_eq!(stream.data().len(), 65);
        assert!(!stream.insert(usize::MAX, b"x"));
        assert!(stream.insert(60, &[0; 100_000]));
        assert!(stream.is_full() && stream.data().len() == Stream::LIMIT);
        assert!(stream.held() <= Stream::LIMIT + 1024, "{}", stream.held());
        assert!(!stream.insert(Stream::LIMIT, b"x"));
    }

    proptest! {
        /// However a stream is cut and shuffled, it comes out whole.
        #[test]
        fn any_order(
            whole in proptest::collection::vec(any::<u8>(), 1..300),
            cuts in proptest::collection::vec((0usize..300, 1usize..60), 0..20),
            shuffle: u64,
        ) {
            let mut pieces: Vec<(usize, usize)> = cuts;
            pieces.extend((0..whole.len()).step_by(25).map(|at| (at, 25)));
            fastrand::Rng::with_seed(shuffle).shuffle(&mut pieces);
            let mut stream = Stream::default();
            for (at, len) in pieces {
                let at = at.min(whole.len());
                let before = stream.data().len();
                let grew = stream.insert(at, &whole[at..whole.len().min(at + len)]);
                prop_assert_eq!(grew, stream.data().len() > before);
                prop_assert_eq!(stream.data(), &whole[..stream.data().len()]);
            }
            prop_assert_eq!(stream.data(), &whole[..]);
            prop_assert!(stream.ranges.is_empty());
        }
    }
}
