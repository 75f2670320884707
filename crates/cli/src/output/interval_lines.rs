//! Which records make up a line: those of one interval, each line once and in order, however late
//! the sender or the records are.

use std::collections::BTreeMap;

use sonde_results::Interval;

/// All records of one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalSum {
    /// From the interval's beginning to the end of the longest record.
    pub all: Interval,
    /// The shortest and the longest record, ns.
    pub spans: (i64, i64),
    /// Records, of so many streams.
    pub records: usize,
    pub streams: usize,
    /// No further record comes.
    pub whole: bool,
}

/// Collects the records of many streams.
#[derive(Debug)]
pub struct IntervalLines {
    /// The end of each stream's latest record, ns.
    reached: Vec<i64>,
    /// By beginning, ns.
    open: BTreeMap<i64, (Interval, (i64, i64), usize)>,
    /// Streams without a record of the first open interval or a later one.
    behind: usize,
    /// The beginning of the latest line.
    printed: i64,
}

impl IntervalLines {
    pub fn new(streams: usize) -> Self {
        let reached = vec![i64::MIN; streams];
        IntervalLines { reached, open: BTreeMap::new(), behind: streams, printed: i64::MIN }
    }

    /// `n` streams more.
    pub fn add_streams(&mut self, n: usize) {
        self.reached.resize(self.reached.len() + n, i64::MIN);
        self.count_behind();
    }

    /// Whether no line has been taken yet.
    pub fn are_new(&self) -> bool {
        self.printed == i64::MIN
    }

    /// Takes a record. One of a line that is printed is in no line: it is in the totals.
    pub fn push(&mut self, record: &Interval) {
        let Some(reached) = self.reached.get_mut(record.stream as usize) else { return };
        *reached = (*reached).max(record.end_ns);
        let first = self.first();
        if record.start_ns > self.printed {
            let span = record.end_ns - record.start_ns;
            let (sum, spans, records) = self
                .open
                .entry(record.start_ns)
                .or_insert_with(|| (Interval::empty(0), (i64::MAX, 0), 0));
            sum.merge(record);
            *spans = (spans.0.min(span), spans.1.max(span));
            *records += 1;
        }
        // Passes over all streams for each interval, not for each record.
        self.behind = self.behind.saturating_sub(1);
        if self.behind == 0 || self.first() != first {
            self.count_behind();
        }
    }

    /// The next line, once each stream has its record or a later one; with `anyhow`, before.
    pub fn next(&mut self, anyhow: bool) -> Option<IntervalSum> {
        if !anyhow && self.behind > 0 {
            return None;
        }
        let (start, (all, spans, records)) = self.open.pop_first()?;
        self.printed = start;
        let streams = self.reached.len();
        let whole = self.reached.iter().all(|&end| end > start);
        self.count_behind();
        Some(IntervalSum { all, spans, records, streams, whole })
    }

    /// When the first open interval began, ns.
    pub fn first(&self) -> Option<i64> {
        self.open.keys().next().copied()
    }

    fn count_behind(&mut self) {
        let first = self.first().unwrap_or(i64::MAX);
        self.behind = self.reached.iter().filter(|&&end| end <= first).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::units::SECOND;

    fn record(stream: u32, from: i64, until: i64, sent: u64) -> Interval {
        let mut record = Interval::empty(stream);
        (record.start_ns, record.end_ns) = (from * SECOND, until * SECOND);
        record.counters.sent = sent;
        record
    }

    fn taken(lines: &mut IntervalLines, anyhow: bool) -> Vec<(i64, i64, u64, bool)> {
        std::iter::from_fn(|| lines.next(anyhow))
            .map(|l| {
                let (from, until) = (l.all.start_ns / SECOND, l.all.end_ns / SECOND);
                (from, until, l.all.counters.sent, l.whole)
            })
            .collect()
    }

    #[test]
    fn each_interval_has_one_line_in_order_also_where_streams_are_intervals_apart() {
        let mut lines = IntervalLines::new(3);
        // The sender is seconds late: stream 2 has no record yet where stream 0 has three.
        for (stream, from) in [(0, 0), (1, 0), (0, 5), (0, 10), (1, 5)] {
            lines.push(&record(stream, from, from + 5, 10));
            assert_eq!(taken(&mut lines, false), [], "stream 2 is behind");
        }
        assert!(lines.are_new());
        lines.push(&record(2, 0, 5, 10));
        assert_eq!(taken(&mut lines, false), [(0, 5, 30, true)]);
        lines.push(&record(2, 5, 10, 7));
        assert_eq!(taken(&mut lines, false), [(5, 10, 27, true)]);
        // At the end what is there is printed.
        lines.push(&record(1, 15, 20, 4));
        assert_eq!(taken(&mut lines, true), [(10, 15, 10, false), (15, 20, 4, false)]);
        assert_eq!(taken(&mut lines, true), []);
    }

    #[test]
    fn a_longer_record_stands_in_the_line_of_its_beginning() {
        let mut lines = IntervalLines::new(2);
        lines.push(&record(0, 0, 10, 20));
        lines.push(&record(1, 0, 5, 10));
        let line = lines.next(false).unwrap();
        assert_eq!((line.spans, line.records), ((5 * SECOND, 10 * SECOND), 2));
        // Stream 0 has no record of its own for 5 to 10 s: its last one holds it.
        lines.push(&record(1, 5, 10, 10));
        assert_eq!(taken(&mut lines, false), [(5, 10, 10, true)]);
    }

    #[test]
    fn what_comes_behind_its_line_makes_no_second_one() {
        let mut lines = IntervalLines::new(2);
        lines.push(&record(0, 0, 5, 10));
        assert_eq!(taken(&mut lines, true), [(0, 5, 10, false)]);
        lines.push(&record(1, 0, 5, 10));
        assert_eq!(taken(&mut lines, true), []);
        lines.push(&record(0, 5, 10, 10));
        lines.push(&record(1, 5, 10, 10));
        assert_eq!(taken(&mut lines, false), [(5, 10, 20, true)]);
        // Streams that join are waited for.
        lines.add_streams(1);
        lines.push(&record(0, 10, 15, 10));
        lines.push(&record(1, 10, 15, 10));
        assert_eq!(taken(&mut lines, false), []);
        lines.push(&record(2, 12, 15, 5));
        assert_eq!(taken(&mut lines, false), [(10, 15, 20, true), (12, 15, 5, true)]);
    }
}
