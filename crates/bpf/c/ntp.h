/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* NTP time stamps (RFC 5905, section 6) from nanoseconds, fast enough to be made twice
 * in every packet.
 */
#ifndef SONDE_NTP_H
#define SONDE_NTP_H

#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define NSEC 1000000000ULL
#define NTP_UNIX 2208988800ULL /* 1900 to 1970, s */

/* Seconds and the rest, without a 64-bit division (tens of cycles, twice a packet). 2305843009 is
 * 2^61 / 10^9 rounded down. What is lost, in the shift and in the rounding, is less than one second
 * until 2106, so one correction suffices.
 */
static __always_inline __u64 split(__u64 ns, __u64 *rest)
{
	__u64 s = (ns >> 29) * 2305843009ULL >> 32;
	__u64 r = ns - s * NSEC;

	if (r >= NSEC) {
		r -= NSEC;
		s++;
	}
	*rest = r;
	return s;
}

/* rest / 10^9 as a 32-bit binary fraction: 18446744073 is 2^64 / 10^9. */
static __always_inline __be32 fraction(__u64 rest)
{
	return bpf_htonl((__u32)(rest * 18446744073ULL >> 32));
}

#endif
