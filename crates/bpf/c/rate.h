/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Limits of rate: of one source address, and of all together. Both are on by default, so
 * they have to be cheap.
 *
 * A source's bucket is one word: the source (the upper bits of a keyed hash) and when its debt will
 * be paid (the generic cell rate algorithm, ITU-T I.371). It is changed by one compare-and-swap, so
 * CPUs cannot spend a token twice. A word whose time has passed says no more than an empty one, and
 * may be reused. A source has WAYS entries, all in one cache line. If more live sources than that
 * meet, the one with the least debt begins afresh.
 *
 * Of the bucket of all together each CPU takes some tokens at a time. The word that all CPUs write
 * is then written once in so many packets.
 */
#ifndef SONDE_RATE_H
#define SONDE_RATE_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define WAYS 4
#define CAS_TRIES 4
#define TIME_BITS 44 /* 4.9 hours, in ns */
#define TIME_MASK ((1ULL << TIME_BITS) - 1)

const volatile __u32 bucket_mask;    /* entries - 1 */
const volatile __u64 rate_gap_ns;    /* between packets at the full rate; 0: no limit */
const volatile __u64 rate_burst_ns;  /* at most 2^42 */
const volatile __u64 total_gap_ns;   /* 0: no limit */
const volatile __u64 total_burst_ns;
const volatile __u64 total_lease;    /* tokens that a CPU takes at a time */

__u64 total_due;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAYS); /* set by the loader */
	__type(key, __u32);
	__type(value, __u64);
} buckets SEC(".maps");

/* How far ahead of `now` a bucket's time is. Further than any bucket goes: it has passed
 * (the times are a ring), or the clock was set back.
 */
static __always_inline __u64 debt(__u64 bucket, __u64 now)
{
	__u64 ahead = (bucket - now) & TIME_MASK;

	return ahead > rate_burst_ns + rate_gap_ns ? 0 : ahead;
}

static __always_inline __u64 *bucket_at(__u32 index)
{
	index &= bucket_mask;
	return bpf_map_lookup_elem(&buckets, &index);
}

static __always_inline bool take_token(__u64 source, __u64 now)
{
	__u32 first = (__u32)source & ~(WAYS - 1);
	__u64 least = ~0ULL, *bucket = NULL, *way;

#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 owed;

		way = bucket_at(first + i);
		if (!way)
			return false;
		if (((*way ^ source) & ~TIME_MASK) == 0) {
			bucket = way;
			break;
		}
		owed = debt(*way, now);
		if (owed < least) {
			least = owed;
			bucket = way;
		}
	}
	for (int i = 0; bucket && i < CAS_TRIES; i++) {
		__u64 old = *(volatile __u64 *)bucket, owed = 0;

		if (((old ^ source) & ~TIME_MASK) == 0)
			owed = debt(old, now);
		if (owed > rate_burst_ns)
			return false;
		if (__sync_val_compare_and_swap(bucket, old,
						(source & ~TIME_MASK) |
							((now + owed + rate_gap_ns) & TIME_MASK)) == old)
			return true;
	}
	return false;
}

/* Tokens for this CPU out of the bucket of all. */
static __always_inline __u64 take_lease(__u64 now)
{
	for (int i = 0; i < CAS_TRIES; i++) {
		__u64 old = *(volatile __u64 *)&total_due, from = old;

		if (from < now || from > now + total_burst_ns + total_lease * total_gap_ns)
			from = now;
		if (from > now + total_burst_ns)
			return 0;
		if (__sync_val_compare_and_swap(&total_due, old,
						from + total_lease * total_gap_ns) == old)
			return total_lease;
	}
	return 0;
}

#endif
