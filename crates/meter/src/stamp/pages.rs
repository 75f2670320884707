//! Histograms for many streams in bounded memory: the counts of one power of two
//! are a page of 32 counters from a pool, taken when the first value falls there.
//!
//! A stream's delays lie within a few powers of two, so a page list is short, and
//! thousands of streams share a pool that was allocated once.

use sonde_results::Hist;
use sonde_results::hist::{SUB_BUCKETS, bucket_of};

/// The pool.
pub(crate) struct Pages {
    headers: Vec<Header>,
    counts: Vec<[u32; SUB_BUCKETS]>,
    fresh: u32,
    free: u32,
    /// Values that found no page: they are in count, sum, minimum and maximum only.
    pub(crate) refused: u64,
}

#[derive(Clone, Copy, Default)]
struct Header {
    next: u32,
    block: i16,
}

/// One histogram; its pages lie in a [`Pages`], always the same one.
#[derive(Clone, Copy)]
pub(crate) struct PagedHist {
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
    head: u32,
}

impl Pages {
    /// A pool of `limit` pages. Memory is touched only as pages are used.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.min(NONE as usize - 1);
        Pages {
            headers: vec![Header::default(); limit],
            counts: vec![[0; SUB_BUCKETS]; limit],
            fresh: 0,
            free: NONE,
            refused: 0,
        }
    }

    fn take(&mut self, block: i16, next: u32) -> Option<u32> {
        let page = if self.free != NONE {
            let page = self.free;
            self.free = self.headers[page as usize].next;
            page
        } else if (self.fresh as usize) < self.headers.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.headers[page as usize] = Header { next, block };
        Some(page)
    }
}

impl PagedHist {
    pub(crate) const EMPTY: PagedHist = PagedHist { count: 0, sum: 0, min: 0, max: 0, head: NONE };

    #[inline]
    pub(crate) fn add(&mut self, pages: &mut Pages, value: i64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        } else {
            self.min = self.min.min(value);
            self.max = self.max.max(value);
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        let bucket = bucket_of(value);
        let block = bucket >> SUB_BUCKETS.trailing_zeros();
        let mut page = self.head;
        while page != NONE {
            let header = pages.headers[page as usize];
            if header.block == block {
                break;
            }
            page = header.next;
        }
        if page == NONE {
            match pages.take(block, self.head) {
                Some(taken) => {
                    self.head = taken;
                    page = taken;
                }
                None => {
                    pages.refused += 1;
                    return;
                }
            }
        }
        pages.counts[page as usize][bucket as usize & (SUB_BUCKETS - 1)] += 1;
    }

    /// Moves the values into `hist` (emptied first) and gives the pages back.
    pub(crate) fn drain(&mut self, pages: &mut Pages, hist: &mut Hist) {
        hist.clear();
        hist.count = self.count;
        hist.sum = i128::from(self.sum);
        (hist.min, hist.max) = (self.min, self.max);
        let mut order = [(0i16, 0u32); MAX_BLOCKS];
        let mut used = 0;
        let mut page = self.head;
        while page != NONE {
            let header = pages.headers[page as usize];
            order[used] = (header.block, page);
            used += 1;
            page = header.next;
        }
        let order = &mut order[..used];
        order.sort_unstable();
        for &mut (block, page) in order {
            let counts = &mut pages.counts[page as usize];
            for (sub, n) in counts.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
                hist.buckets.push((block * SUB_BUCKETS as i16 + sub as i16, *n));
                *n = 0;
            }
            pages.headers[page as usize].next = pages.free;
            pages.free = page;
        }
        *self = PagedHist::EMPTY;
    }
}

const NONE: u32 = u32::MAX;
/// 59 powers of two from 32 on and the linear block, for either sign.
const MAX_BLOCKS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_equals_the_plain_histogram(rounds in prop::collection::vec(
            prop::collection::vec(prop_oneof![any::<i64>(), -5_000i64..5_000_000], 0..60), 1..5)) {
            let mut pages = Pages::new(400);
            let (mut a, mut b) = (PagedHist::EMPTY, PagedHist::EMPTY);
            let (mut got, mut want) = (Hist::default(), Hist::default());
            for values in rounds {
                want.clear();
                for &v in &values {
                    let v = v / 100; // so that no sum overflows
                    a.add(&mut pages, v);
                    b.add(&mut pages, -v);
                    want.add(v);
                }
                a.drain(&mut pages, &mut got);
                prop_assert_eq!(&got, &want);
                b.drain(&mut pages, &mut got);
                prop_assert_eq!(got.count, want.count);
            }
        }
    }

    #[test]
    fn an_empty_pool_is_counted_and_costs_only_quantiles() {
        let mut pages = Pages::new(1);
        let mut h = PagedHist::EMPTY;
        h.add(&mut pages, 100);
        h.add(&mut pages, 100_000);
        let mut out = Hist::default();
        h.drain(&mut pages, &mut out);
        assert_eq!((pages.refused, out.count, out.max, out.buckets.len()), (1, 2, 100_000, 1));
        h.add(&mut pages, 100_000);
        assert_eq!(pages.refused, 1, "the page came back");
    }

    #[test]
    fn every_block_fits_in_the_order_array() {
        let mut blocks = std::collections::BTreeSet::new();
        for shift in 0..64 {
            blocks.insert(bucket_of((u64::MAX >> 1 >> shift) as i64) >> 5);
            blocks.insert(bucket_of(!((u64::MAX >> 1 >> shift) as i64)) >> 5);
        }
        assert!(blocks.len() <= MAX_BLOCKS, "{}", blocks.len());
    }
}
