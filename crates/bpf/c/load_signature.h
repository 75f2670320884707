/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The signature of test frames, octet for octet that of wire/src/signature.rs, and the
 * histograms of both load programs, bucket for bucket those of results/src/hist.rs.
 */
#ifndef SONDE_LOAD_SIGNATURE_H
#define SONDE_LOAD_SIGNATURE_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SIGNATURE_LEN 18
#define SIGNATURE_MAGIC 0xb5
#define TIME_BITS 48

/* As it lies in the frame, at any alignment. */
struct signature {
	__be64 who; /* magic 8, trial 8, stream 16, sequence 32 */
	__be16 sent_high;
	__be32 sent_low;
	__be32 digest;
} __attribute__((packed));

/* `who` and `sent` in host order. */
static __always_inline __u32 signature_digest(__u64 who, __u64 sent, __u32 len, __u64 secret0,
					      __u64 secret1)
{
	__u64 x = (who ^ secret0) * 0x9e3779b97f4a7c15ULL;

	x ^= x >> 32;
	x = (x ^ (sent << 16 | (len & 0xffff)) ^ secret1) * 0xc2b2ae3d27d4eb4fULL;
	return x >> 32;
}

/* Buckets of each sign. What is beyond (18 minutes) is in the last one; least value,
 * greatest value and sum stay exact.
 */
#define HIST_BUCKETS 1024
#define HIST_UNIT_BITS 5
#define HIST_SUB_BITS 5
#define HIST_LIMIT (1ULL << (HIST_UNIT_BITS + HIST_SUB_BITS + 30))

struct load_hist {
	__s64 min;
	__s64 max;
	__s64 sum;
	__u64 count;
	__u64 bucket[2 * HIST_BUCKETS]; /* -1 - i at 1023 - i, i at 1024 + i */
};

/* The index of `value` in `bucket`. */
static __always_inline __u32 hist_index(__s64 value)
{
	__u64 m = value < 0 ? ~value : value;
	__u32 index, high, shift = 0;

	if (m >= HIST_LIMIT) {
		index = HIST_BUCKETS - 1;
	} else {
		m >>= HIST_UNIT_BITS;
		/* How far the highest bit is above the fifth: what is left is 32 to 63. */
		high = m >> HIST_SUB_BITS;
		if (m >> 21) {
			shift = 16;
			high = m >> 21;
		}
		if (high >> 8) {
			shift += 8;
			high >>= 8;
		}
		if (high >> 4) {
			shift += 4;
			high >>= 4;
		}
		if (high >> 2) {
			shift += 2;
			high >>= 2;
		}
		if (high >> 1)
			shift += 1;
		if (m < 1 << HIST_SUB_BITS)
			index = m;
		else
			index = ((shift + 1) << HIST_SUB_BITS) +
				((m >> shift) & ((1 << HIST_SUB_BITS) - 1));
	}
	return value < 0 ? HIST_BUCKETS - 1 - index : HIST_BUCKETS + index;
}

static __always_inline void hist_add(struct load_hist *h, __s64 value)
{
	__u32 index = hist_index(value) & (2 * HIST_BUCKETS - 1);

	if (!h->count || value < h->min)
		h->min = value;
	if (!h->count || value > h->max)
		h->max = value;
	h->count++;
	h->sum += value;
	h->bucket[index]++;
}

#endif
