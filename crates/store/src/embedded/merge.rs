//! Rows of several segments in one order, a few at a time of each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::segment::SegmentReader;
use crate::column::StoredRow;
use crate::error::StoreError;

/// Merges sorted segments. Memory: [`AHEAD`] rows and a page of each column for each segment.
pub(super) struct Merge<R: StoredRow> {
    sources: Vec<Source<R>>,
    /// The key of the first row of each source that has one.
    heads: BinaryHeap<Reverse<(R::Key, usize)>>,
    started: bool,
}

struct Source<R: StoredRow> {
    reader: SegmentReader<R>,
    rows: VecDeque<R>,
}

impl<R: StoredRow> Merge<R> {
    pub(super) fn new(readers: Vec<SegmentReader<R>>) -> Self {
        let source = |reader| Source { reader, rows: VecDeque::new() };
        let sources = readers.into_iter().map(source).collect();
        Merge { sources, heads: BinaryHeap::new(), started: false }
    }

    /// Puts the key of the next row of a source into the heap.
    fn refill(&mut self, i: usize) -> Result<(), StoreError> {
        let source = &mut self.sources[i];
        while source.rows.is_empty() {
            match source.reader.next(AHEAD)? {
                Some(rows) => source.rows.extend(rows),
                None => return Ok(()),
            }
        }
        if let Some(row) = source.rows.front() {
            self.heads.push(Reverse((row.key(), i)));
        }
        Ok(())
    }
}

impl<R: StoredRow> Iterator for Merge<R> {
    type Item = Result<R, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.started {
            self.started = true;
            for i in 0..self.sources.len() {
                if let Err(error) = self.refill(i) {
                    return Some(Err(error));
                }
            }
        }
        let Reverse((_, i)) = self.heads.pop()?;
        let row = self.sources[i].rows.pop_front()?;
        Some(self.refill(i).map(|()| row))
    }
}

/// Rows that are read at once of a segment.
const AHEAD: usize = 512;
