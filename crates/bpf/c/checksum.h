/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The Internet checksum (RFC 1071), always over all octets. */
#ifndef SONDE_CHECKSUM_H
#define SONDE_CHECKSUM_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SUM_MAX 9216 /* octets that sum_padding takes at most */
#define SUM_MASK 0x3fff
#define CHUNK 64

/* Complemented and cut to 16 bits. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Where the part of `len` octets above the bit `step` ends. The mask bounds it for
 * the verifier; the barrier keeps the compiler from carrying the pointer on, which
 * would make every path through the tail a state of its own.
 */
static __always_inline void *after(void *from, __u32 len, __u32 step)
{
	__u32 offset = len & (SUM_MASK & ~(2 * step - 1));

	asm volatile("" : "+r"(offset));
	return from + offset;
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

/* The one's complement sum of the `len` octets from `offset` to the packet's end, not
 * folded: 64 bits hold the carries of any packet. Plain loads: for 64 octets they take
 * a fraction of the time of bpf_csum_diff.
 *
 * A global function, which the verifier proves once, by itself: inlined, its paths
 * times those of the rest are more than it will look at. The caller has checked the
 * bounds, so that the early returns never happen.
 */
__noinline __u64 sum_padding(struct xdp_md *ctx, __u32 offset, __u32 len)
{
	void *from = (void *)(long)ctx->data + (offset & 0xff), *end = (void *)(long)ctx->data_end;
	__u64 sum = 0;
	void *p;

	for (__u32 i = 0; i < SUM_MAX / CHUNK && (i + 1) * CHUNK <= len; i++) {
		__u32 at = i * CHUNK;

		asm volatile("" : "+r"(at));
		p = from + at;
		if (p + CHUNK > end)
			return sum;
		sum += sum_words(p, CHUNK / 4);
	}
#pragma unroll
	for (__u32 step = CHUNK / 2; step >= 4; step /= 2) {
		if (len & step) {
			p = after(from, len, step);
			if (p + step > end)
				return sum;
			sum += sum_words(p, step / 4);
		}
	}
	if (len & 2) {
		p = after(from, len, 2);
		if (p + 2 > end)
			return sum;
		sum += *(__u16 *)p;
	}
	if (len & 1) {
		p = after(from, len, 1);
		if (p + 1 > end)
			return sum;
		sum += bpf_htons((__u16)*(__u8 *)p << 8);
	}
	return sum;
}

#endif
