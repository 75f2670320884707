//! Histograms as octets: what rows hold in memory, in the journal and in segments.
//!
//! Nothing at all is the empty histogram. Else, with all integers LEB128 and signed ones zigzag:
//! version (1), count, minimum, maximum less minimum, sum; then the buckets, ascending: the first
//! bucket (signed) and its count; of each further one the step from the bucket before, and its count.
//! 50 to 75 octets hold 100 round trips. A histogram may lack buckets: then it has a count, minimum,
//! maximum and sum, and no quantiles.

use std::fmt;

use sonde_results::Hist;
use sonde_results::hist::{bounds_of, buckets_in_row};

use crate::varint;

/// The version in front of every histogram that is not empty.
pub const HIST_BLOB_VERSION: u8 = 1;

/// A histogram of signed nanoseconds as octets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HistBlob(Box<[u8]>);

/// What a histogram knows besides its buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistHead {
    /// Values recorded.
    pub count: u64,
    /// Least value, ns.
    pub min: i64,
    /// Greatest value, ns.
    pub max: i64,
    /// Sum, ns.
    pub sum: i128,
}

impl HistBlob {
    /// All of `hist`.
    pub fn new(hist: &Hist) -> Self {
        let head = HistHead { count: hist.count, min: hist.min, max: hist.max, sum: hist.sum };
        Self::from_parts(&head, &tail_of(hist.buckets.iter().map(|&(b, n)| (b, n.into()))))
    }

    /// Count, minimum, maximum and sum of `hist`, without its buckets.
    pub fn summary(hist: &Hist) -> Self {
        let head = HistHead { count: hist.count, min: hist.min, max: hist.max, sum: hist.sum };
        Self::from_parts(&head, &[])
    }

    /// From a head and the octets of the buckets.
    pub(crate) fn from_parts(head: &HistHead, tail: &[u8]) -> Self {
        if head.count == 0 {
            return HistBlob::default();
        }
        let mut out = Vec::with_capacity(24 + tail.len());
        out.push(HIST_BLOB_VERSION);
        varint::put(&mut out, head.count.into());
        varint::put_signed(&mut out, head.min.into());
        varint::put(&mut out, head.max.abs_diff(head.min).into());
        varint::put_signed(&mut out, head.sum);
        out.extend_from_slice(tail);
        HistBlob(out.into())
    }

    /// From a head and its buckets, which ascend.
    pub(crate) fn from_buckets(
        head: &HistHead,
        buckets: impl IntoIterator<Item = (i16, u64)>,
    ) -> Self {
        Self::from_parts(head, &tail_of(buckets.into_iter()))
    }

    /// Octets that came from outside. `None`: they are no histogram of a known version.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        if octets.is_empty() {
            return Some(HistBlob::default());
        }
        let blob = HistBlob(octets.into());
        let (head, mut tail) = blob.split()?;
        let (mut bucket, mut held, mut first) = (0i64, 0u64, true);
        while !tail.is_empty() {
            let step = varint::take_i64_step(&mut tail, first)?;
            bucket = bucket.checked_add(step)?;
            i16::try_from(bucket).ok()?;
            held = held.checked_add(varint::take_u64(&mut tail)?)?;
            first = false;
        }
        (head.count > 0 && held <= head.count).then_some(blob)
    }

    /// Its octets; none for the empty histogram.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Whether it holds no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Count, minimum, maximum and sum.
    pub fn head(&self) -> HistHead {
        self.split().map(|(head, _)| head).unwrap_or_default()
    }

    /// Head, and the octets of its buckets.
    pub(crate) fn split(&self) -> Option<(HistHead, &[u8])> {
        let mut from = &self.0[..];
        if varint::take_bytes(&mut from, 1)? != [HIST_BLOB_VERSION] {
            return None;
        }
        let count = varint::take_u64(&mut from)?;
        let min = varint::take_i64(&mut from)?;
        let max = min.checked_add_unsigned(varint::take_u64(&mut from)?)?;
        let sum = varint::take_signed(&mut from)?;
        Some((HistHead { count, min, max, sum }, from))
    }

    /// Buckets and their counts, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (i16, u64)> {
        let mut tail = self.split().map(|(_, tail)| tail).unwrap_or_default();
        let (mut bucket, mut first) = (0i64, true);
        std::iter::from_fn(move || {
            bucket = bucket.checked_add(varint::take_i64_step(&mut tail, first)?)?;
            first = false;
            Some((i16::try_from(bucket).ok()?, varint::take_u64(&mut tail)?))
        })
    }

    /// Values that have a bucket: those that quantiles are of.
    pub fn held(&self) -> u64 {
        self.buckets().fold(0, |sum, (_, n)| sum.saturating_add(n))
    }

    /// The histogram.
    pub fn to_hist(&self) -> Hist {
        let mut sum = HistSum::default();
        sum.add(self);
        sum.to_hist()
    }
}

impl fmt::Debug for HistBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HistBlob({:?}, {:?})", self.head(), self.buckets().collect::<Vec<_>>())
    }
}

/// The octets of buckets that ascend.
fn tail_of(buckets: impl Iterator<Item = (i16, u64)>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let mut before = None;
    for (bucket, n) in buckets {
        match before {
            None => varint::put_signed(&mut out, bucket.into()),
            Some(before) => {
                varint::put(&mut out, (i128::from(bucket) - i128::from(before)) as u128)
            }
        }
        varint::put(&mut out, n.into());
        before = Some(bucket);
    }
    out
}

/// Adds histograms up. The result does not depend on their order, nor on how they were grouped.
#[derive(Clone, Debug, Default)]
pub struct HistSum {
    head: HistHead,
    /// Count of the bucket `first`, of the one after it, and so on.
    counts: Vec<u64>,
    first: i16,
    /// Values that have a bucket.
    held: u64,
}

impl HistSum {
    /// Adds all values of `blob`.
    pub fn add(&mut self, blob: &HistBlob) {
        let Some((head, _)) = blob.split() else { return };
        self.add_head(&head);
        blob.buckets().for_each(|(bucket, n)| self.add_to_bucket(bucket, n));
    }

    /// Adds all values of `hist`.
    pub fn add_hist(&mut self, hist: &Hist) {
        let Hist { count, sum, min, max, ref buckets } = *hist;
        self.add_head(&HistHead { count, min, max, sum });
        buckets.iter().for_each(|&(bucket, n)| self.add_to_bucket(bucket, n.into()));
    }

    /// Adds one value, ns.
    pub fn add_value(&mut self, value: i64) {
        self.add_head(&HistHead { count: 1, min: value, max: value, sum: value.into() });
        self.add_to_bucket(sonde_results::hist::bucket_of(value), 1);
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &HistSum) {
        self.add_head(&other.head);
        (other.first..).zip(&other.counts).for_each(|(bucket, &n)| self.add_to_bucket(bucket, n));
    }

    fn add_head(&mut self, other: &HistHead) {
        if other.count == 0 {
            return;
        }
        let empty = self.head.count == 0;
        self.head.min = if empty { other.min } else { self.head.min.min(other.min) };
        self.head.max = if empty { other.max } else { self.head.max.max(other.max) };
        self.head.count += other.count;
        self.head.sum += other.sum;
    }

    fn add_to_bucket(&mut self, bucket: i16, n: u64) {
        if n == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = usize::from(self.first.abs_diff(bucket));
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let at = usize::from(bucket.abs_diff(self.first));
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += n;
        self.held += n;
    }

    /// Count, minimum, maximum and sum.
    pub fn head(&self) -> HistHead {
        self.head
    }

    /// Values that have a bucket: those that quantiles are of.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Buckets that hold something, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (i16, u64)> {
        (self.first..).zip(self.counts.iter().copied()).filter(|&(_, n)| n > 0)
    }

    /// The value below or at which the share `q` (0..=1) of the values that have a bucket lies, ns:
    /// as [`Hist::quantile`] gives it where all have one. Else the greatest of them is not known
    /// exactly; it is the middle of its bucket. `None` where none has one.
    pub fn quantile(&self, q: f64) -> Option<i64> {
        let rank =
            ((q.clamp(0.0, 1.0) * self.held as f64).ceil() as u64).clamp(1, self.held.max(1));
        if rank == self.held && self.held == self.head.count {
            return Some(self.head.max);
        }
        let mut seen = 0;
        let reaches = |&(_, n): &(i16, u64)| {
            seen += n;
            seen >= rank
        };
        let (bucket, _) = self.buckets().find(reaches)?;
        let (low, high) = bounds_of(bucket);
        Some((low + (high - low) / 2).clamp(self.head.min, self.head.max))
    }

    /// Arithmetic mean, ns. `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.head.count > 0).then(|| self.head.sum as f64 / self.head.count as f64)
    }

    /// The histogram.
    pub fn to_hist(&self) -> Hist {
        let HistHead { count, min, max, sum } = self.head;
        Hist {
            count,
            sum,
            min,
            max,
            buckets: buckets_in_row(self.first, self.counts.iter().copied()),
        }
    }

    /// As octets.
    pub fn to_blob(&self) -> HistBlob {
        HistBlob::from_parts(&self.head, &tail_of(self.buckets()))
    }

    /// Empties it; the memory is kept.
    pub fn clear(&mut self) {
        self.counts.clear();
        (self.head, self.held, self.first) = (HistHead::default(), 0, 0);
    }
}

#[cfg(test)]
mod tests;
