//! Histograms for many streams in bounded memory. The counts of one power of two are a page of 32
//! small counters, one cache line, from a pool.
//!
//! A stream's delays lie within a few powers of two, so a page list is short. Thousands of streams
//! share a pool that was allocated once. The page used last is first in the list, and the histogram
//! itself refers to it. So adding a value touches the histogram and one line more. A counter that
//! is full goes on in a further page.

use sonde_results::Hist;
use sonde_results::hist::{SUB_BUCKETS, bucket_of};

use crate::flow::prefetch::prefetch;

pub(crate) struct Pages {
    headers: Vec<PageHeader>,
    counts: Vec<Page>,
    fresh: u32,
    free: u32,
    /// Values that found no page: they are in count, sum, minimum and maximum only.
    pub(crate) refused: u64,
}

#[derive(Clone, Copy)]
struct PageHeader {
    next: u32,
    block: i16,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Page([u16; SUB_BUCKETS]);

/// One histogram; its pages lie in a [`Pages`], always the same one.
#[derive(Clone, Copy)]
pub(crate) struct PagedHist {
    count: u64,
    /// The low and the high half of the sum. A peer's clock may be decades off, and 128 bits in one
    /// would be aligned to 16 bytes.
    sum: [u64; 2],
    min: i64,
    max: i64,
    head: u32,
    /// Block of the head page.
    head_block: i16,
}

impl Pages {
    /// A pool of `limit` pages, all memory touched. A first touch takes the kernel up to a tenth of
    /// a millisecond, which no send should wait for.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.min(NONE as usize - 1);
        let mut counts = vec![Page([1; SUB_BUCKETS]); limit];
        counts.iter_mut().for_each(|page| page.0.fill(0));
        Pages {
            headers: vec![PageHeader { next: NONE, block: 0 }; limit],
            counts,
            fresh: 0,
            free: NONE,
            refused: 0,
        }
    }

    /// Adds so many pages.
    pub(crate) fn grow(&mut self, more: usize) {
        let limit = self.headers.len().saturating_add(more).min(NONE as usize - 1);
        self.headers.resize(limit, PageHeader { next: NONE, block: 0 });
        self.counts.resize(limit, Page([0; SUB_BUCKETS]));
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
        self.headers[page as usize] = PageHeader { next, block };
        Some(page)
    }
}

impl PagedHist {
    pub(crate) const EMPTY: PagedHist =
        PagedHist { count: 0, sum: [0; 2], min: 0, max: 0, head: NONE, head_block: 0 };

    /// Has the page used last at hand when a value comes.
    #[inline]
    pub(crate) fn prefetch(&self, pages: &Pages) {
        prefetch(&pages.counts, self.head as usize);
    }

    #[inline]
    pub(crate) fn add(&mut self, pages: &mut Pages, value: i64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        } else {
            self.min = self.min.min(value);
            self.max = self.max.max(value);
        }
        self.count += 1;
        let (low, carry) = self.sum[0].overflowing_add(value as u64);
        let high = (value >> 63) as u64;
        self.sum = [low, self.sum[1].wrapping_add(high).wrapping_add(u64::from(carry))];
        let bucket = bucket_of(value);
        let block = bucket >> SUB_BUCKETS.trailing_zeros();
        let sub = bucket as usize & (SUB_BUCKETS - 1);
        if (self.head == NONE || self.head_block != block) && !self.bring_to_front(pages, block) {
            pages.refused += 1;
            return;
        }
        let mut counter = &mut pages.counts[self.head as usize].0[sub];
        if *counter == u16::MAX {
            let Some(page) = pages.take(block, self.head) else {
                pages.refused += 1;
                return;
            };
            self.head = page;
            counter = &mut pages.counts[page as usize].0[sub];
        }
        *counter += 1;
    }

    /// Makes a page of `block` the head of the list, a new one if there is none.
    fn bring_to_front(&mut self, pages: &mut Pages, block: i16) -> bool {
        let (mut before, mut page) = (NONE, self.head);
        while page != NONE {
            let header = pages.headers[page as usize];
            if header.block == block {
                pages.headers[before as usize].next = header.next;
                pages.headers[page as usize].next = self.head;
                (self.head, self.head_block) = (page, block);
                return true;
            }
            (before, page) = (page, header.next);
        }
        match pages.take(block, self.head) {
            Some(page) => {
                (self.head, self.head_block) = (page, block);
                true
            }
            None => false,
        }
    }

    /// Moves the values into `hist` (emptied first) and gives the pages back.
    pub(crate) fn drain(&mut self, pages: &mut Pages, hist: &mut Hist) {
        hist.clear();
        hist.count = self.count;
        hist.sum = (u128::from(self.sum[1]) << 64 | u128::from(self.sum[0])) as i128;
        (hist.min, hist.max) = (self.min, self.max);
        // One block after the other in ascending order: the list is short, and walking
        // it again costs less than sorting it somewhere.
        let mut done = i32::from(i16::MIN) - 1;
        loop {
            let (mut lowest, mut page) = (None, self.head);
            while page != NONE {
                let header = pages.headers[page as usize];
                if i32::from(header.block) > done && lowest.is_none_or(|l| header.block < l) {
                    lowest = Some(header.block);
                }
                page = header.next;
            }
            let Some(block) = lowest else { break };
            done = i32::from(block);
            self.drain_block(pages, block, hist);
        }
        let mut page = self.head;
        while page != NONE {
            let next = pages.headers[page as usize].next;
            pages.headers[page as usize].next = pages.free;
            pages.free = page;
            page = next;
        }
        *self = PagedHist::EMPTY;
    }

    fn drain_block(&self, pages: &mut Pages, block: i16, hist: &mut Hist) {
        let mut total = [0u32; SUB_BUCKETS];
        let mut page = self.head;
        while page != NONE {
            let header = pages.headers[page as usize];
            if header.block == block {
                let counts = &mut pages.counts[page as usize].0;
                for (total, n) in total.iter_mut().zip(counts) {
                    *total += u32::from(std::mem::take(n));
                }
            }
            page = header.next;
        }
        let first = block * SUB_BUCKETS as i16;
        let used = (first..).zip(total).filter(|&(_, n)| n > 0);
        hist.buckets.extend(used);
    }
}

const NONE: u32 = u32::MAX;

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
                    a.add(&mut pages, v);
                    b.add(&mut pages, v.saturating_neg());
                    want.add(v);
                }
                a.drain(&mut pages, &mut got);
                prop_assert_eq!(&got, &want);
                b.drain(&mut pages, &mut got);
                prop_assert_eq!(got.count, want.count);
                prop_assert!((got.sum + want.sum).abs() <= 60);
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
    fn full_counters_go_on_in_further_pages() {
        let mut pages = Pages::new(8);
        let mut h = PagedHist::EMPTY;
        for _ in 0..200_000 {
            h.add(&mut pages, 700);
        }
        h.add(&mut pages, 90_000);
        h.add(&mut pages, 700);
        let mut out = Hist::default();
        h.drain(&mut pages, &mut out);
        let counts: Vec<u32> = out.buckets.iter().map(|&(_, n)| n).collect();
        assert_eq!((out.count, counts, pages.refused), (200_002, vec![200_001, 1], 0));
    }
}
