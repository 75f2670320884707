/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The Internet checksum (RFC 1071), always over all octets. */
#ifndef SONDE_CHECKSUM_H
#define SONDE_CHECKSUM_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SUM_MAX 9216 /* octets that sum_padding takes at most, and 4 at least */
#define SUM_MASK 0x3fff
#define CHUNK 64

/* Complemented and cut to 16 bits. A word and the same with its halves exchanged, added:
 * the carry of the lower half is what has to be added to the upper half's sum.
 */
static __always_inline __u16 fold(__u64 sum)
{
	__u32 half;

	sum += sum << 32 | sum >> 32;
	half = sum >> 32;
	half += half << 16 | half >> 16;
	return ~(half >> 16);
}

/* The value, of which the verifier knows nothing more. Else it would carry on what it learns from a
 * branch: a state for each path through the sum. With all that follows these would be more states
 * than it looks at.
 */
static __always_inline __u32 opaque(__u32 value)
{
	asm volatile("" : "+r"(value));
	return value;
}

/* Two sums at a time, so that no addition waits for the one before. */
static __always_inline __u64 sum_words(const __u32 *w, int words)
{
	__u64 even = 0, odd = 0;

#pragma unroll
	for (int i = 0; i < words; i += 2) {
		even += w[i];
		if (i + 1 < words)
			odd += w[i + 1];
	}
	return even + odd;
}

/* The last `n` (0 to 3) octets of a word in memory, moved to its beginning. */
static __always_inline __u32 last_octets(__u32 word, __u32 n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (__u64)word >> (32 - 8 * n);
#else
	return (__u64)word << (32 - 8 * n);
#endif
}

/* The one's complement sum of the `len` octets at `from`, not folded: 64 bits hold the
 * carries of any packet. Plain loads: for 64 octets they take a fraction of the time of
 * bpf_csum_diff. The caller has checked the bounds, so the early returns never happen.
 */
static __always_inline __u64 sum_padding(const void *from, const void *end, __u32 len)
{
	__u32 chunks = opaque(len / CHUNK), odd = opaque(len & 3);
	__u64 sum = 0;
	const void *p;

	for (__u32 i = 0; i < SUM_MAX / CHUNK && i < chunks; i++) {
		p = from + opaque(i * CHUNK);
		if (p + CHUNK > end)
			return sum;
		sum += sum_words(p, CHUNK / 4);
	}
#pragma unroll
	for (__u32 step = CHUNK / 2; step >= 4; step /= 2) {
		if (opaque(len & step)) {
			p = from + opaque(len & (SUM_MASK & ~(2 * step - 1)));
			if (p + step > end)
				return sum;
			sum += sum_words(p, step / 4);
		}
	}
	/* Up to three octets are left: the end of the last word, the rest of which is in
	 * the sum already.
	 */
	p = from + opaque((len - 4) & SUM_MASK);
	if (p + 4 > end)
		return sum;
	return sum + last_octets(*(__u32 *)p, odd);
}

#endif
