/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Frames that come twice: a mirror port copies a packet where it enters a switch and again
 * where it leaves, or two ports carry it. The second one says nothing that the first did not.
 *
 * Prints are kept for each CPU, in a table that fits its nearest cache. Both copies have the same
 * addresses and ports, by which cards choose the CPU.
 */
#ifndef SONDE_RTT_SEEN_H
#define SONDE_RTT_SEEN_H

#include "rtt_table.h"

#define APART 60 /* moments: less than a millisecond */

/* Notes the packet. Whether the same one has passed within a millisecond, or within a tick of
 * the kernel's coarse clock.
 */
static __always_inline bool seen_before(const struct rtt_packet *p, __u64 hash)
{
	/* A fragment is no copy of the whole that begins alike. */
	__u64 a, b = (__u64)p->identity << 32,
		 c = (__u64)(p->bits & P_FRAGMENT) << 58 | (__u64)p->what << 8 | p->d;
	struct prints *prints;
	struct print *print, now;
	__u32 zero = 0, apart;
	bool again;

	if (p->what == W_TCP) {
		a = (__u64)p->seq << 32 | p->ack;
		if (p->bits & P_TS)
			b |= p->tsval ^ (p->tsecr << 16 | p->tsecr >> 16);
		c |= (__u64)p->len << 40 | (__u64)p->win << 24 | (__u64)p->flags << 16;
	} else {
		a = p->what == W_OTHER || p->what >= W_QUIC_INITIAL ? p->ip_len :
		    p->what == W_DNS || p->what == W_DNS_RESPONSE ? p->id << 16 | p->dns_id : p->id;
	}
	hash = mix(hash ^ a);
	hash = mix(hash ^ b);
	hash = mix(hash ^ c);
	prints = bpf_map_lookup_elem(&rtt_prints, &zero);
	if (!prints)
		return false;
	print = prints->at[hash & (PAIRS - 1)];
	now.check = hash >> 32;
	now.moment = p->moment;
	apart = *(volatile __u64 *)&rtt_test_now ? APART : copy_moments;
	again = (print[0].check == now.check && now.moment - print[0].moment + 1 <= apart + 1) ||
		(print[1].check == now.check && now.moment - print[1].moment + 1 <= apart + 1);
	print[1] = print[0];
	print[0] = now;
	return again;
}

/* Whether a packet that looks like one before may be another one all the same. Without the
 * identification of IPv4 there is only what its headers say. What the receiver misses may be sent
 * again at once. Of QUIC the headers say nothing, and a copy spoils no sample.
 */
static __always_inline bool may_differ(struct flow *f, const struct rtt_packet *p)
{
	if (p->what == W_TCP)
		return !(p->identity >> 16) &&
		       (p->bits & P_SACK || (p->len && SIDE(f, p->d)->flags & TOLD));
	return p->what == W_OTHER || p->what >= W_QUIC_INITIAL;
}

#endif
