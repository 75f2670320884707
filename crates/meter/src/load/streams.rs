//! What every stream sent, which follows from the order of flows without counting.

use sonde_results::trial::Direction;

/// Fills in what each stream sent when frame `n` belonged to flow `n` modulo `flows` and those from
/// `counted_from` on were counted. Keeps at most [`STREAMS_KEPT`] streams: those that lost most.
pub fn fill_streams(direction: &mut Direction, flows: u32, counted_from: u64) {
    let flows = u64::from(flows);
    let (from, to) = (counted_from, counted_from + direction.sent);
    for stream in &mut direction.streams {
        // Flows 2^16 apart share a stream.
        let own = (u64::from(stream.stream)..flows).step_by(1 << 16);
        let until = |n: u64, flow: u64| n / flows + u64::from(flow < n % flows);
        stream.sent = own.map(|flow| until(to, flow) - until(from, flow)).sum();
    }
    if direction.streams.len() > STREAMS_KEPT {
        direction
            .streams
            .sort_by_key(|s| (std::cmp::Reverse(s.sent - s.received.min(s.sent)), s.stream));
        direction.streams.truncate(STREAMS_KEPT);
        direction.streams.sort_by_key(|s| s.stream);
    }
}

/// Streams of a trial that are listed, at most.
pub const STREAMS_KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::trial::StreamCount;

    fn direction(sent: u64, streams: u32) -> Direction {
        let of = |s: u32| StreamCount { stream: s as u16, sent: 0, received: 0 };
        Direction { sent, streams: (0..streams).map(of).collect(), ..Direction::default() }
    }

    #[test]
    fn flows_take_turns() {
        let mut d = direction(10, 3);
        fill_streams(&mut d, 3, 0);
        assert_eq!(d.streams.iter().map(|s| s.sent).collect::<Vec<_>>(), [4, 3, 3]);
        fill_streams(&mut d, 3, 1);
        assert_eq!(d.streams.iter().map(|s| s.sent).collect::<Vec<_>>(), [3, 4, 3]);
        let mut shared = direction(70_000, 2);
        fill_streams(&mut shared, 65_538, 0);
        assert_eq!(shared.streams.iter().map(|s| s.sent).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn those_that_lost_are_kept() {
        let mut d = direction(4000, 2000);
        d.streams.iter_mut().for_each(|s| s.received = 2);
        d.streams[1999].received = 0;
        fill_streams(&mut d, 2000, 0);
        assert_eq!((d.streams.len(), d.streams.last().unwrap().stream), (STREAMS_KEPT, 1999));
    }
}
