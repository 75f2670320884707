//! The buckets of the kernel's histograms of round-trip times.

/// Buckets of a kernel histogram: one below 1,024 ns, 26 powers of two of 8 buckets each,
/// one from 2^36 ns (68.7 s). The middle of a bucket is at most 6.25 % from any value in it.
/// [`crate::Hist`] has its own buckets: a quantile there is at most 7 % from the true one.
pub const RTT_BUCKETS: usize = 210;

/// The bucket (0..[`RTT_BUCKETS`]) of a round-trip time, ns.
#[inline]
pub fn rtt_bucket(rtt_ns: u64) -> usize {
    match rtt_ns {
        0..1024 => 0,
        1024..0x10_0000_0000 => {
            let exponent = 63 - rtt_ns.leading_zeros() as usize;
            1 + (exponent - 10) * 8 + (rtt_ns >> (exponent - 3)) as usize % 8
        }
        _ => RTT_BUCKETS - 1,
    }
}

/// The middle of a bucket, ns.
pub fn rtt_bucket_middle(bucket: usize) -> i64 {
    match bucket {
        0 => 512,
        b if b >= RTT_BUCKETS - 1 => 1 << 36,
        b => {
            let (exponent, eighth) = (10 + (b - 1) / 8, (b - 1) % 8);
            let width = 1i64 << (exponent - 3);
            (8 + eighth as i64) * width + width / 2
        }
    }
}
