/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* One-way delay variation from a sender's TSval clock (RFC 7323, section 5.4). */
#ifndef SONDE_RTT_VARIATION_H
#define SONDE_RTT_VARIATION_H

#include "rtt_slots.h"

#define SEEK_NS 1000000000LL   /* how long a TSval clock is watched before its period is taken */
#define PAUSE_NS 60000000000LL /* after which all of that begins anew */

static __always_inline void set_period(struct side *D, __u32 period)
{
	D->flags = (D->flags & ((1 << PERIOD_SHIFT) - 1)) | period << PERIOD_SHIFT;
}

static __always_inline bool near(__u64 elapsed, __u64 by_clock)
{
	__u64 off = elapsed > by_clock ? elapsed - by_clock : by_clock - elapsed;

	return off * 10 <= by_clock;
}

static __always_inline __s64 period_ns(__u32 period)
{
	return period == PERIOD_1US ? 1000 : period == PERIOD_1MS ? 1000000 :
	       period == PERIOD_4MS ? 4000000 : 10000000;
}

/* Whether the clock takes four round trips or more for a step, as far as is known before
 * delay_variation.
 */
static __always_inline bool is_slower(const struct side *D, struct rtt_packet *p, __u32 steps)
{
	__u32 period = D->flags >> PERIOD_SHIFT;
	__u64 srtt = D->srtt;

	if (!srtt || period == PERIOD_FRESH)
		return false;
	if (period >= PERIOD_1US)
		return period_ns(period) >= (__s64)(4 * srtt << TICK_SHIFT);
	if (period == PERIOD_SEEKING)
		steps = p->tsval - D->variation;
	return ticks_between(D->edge_at, tick_now(p)) >= 4 * steps * srtt;
}

/* How much later than its TSval says, against the earliest so far, the packet came. */
static __always_inline void delay_variation(struct side *D, struct rtt_packet *p, __u32 steps)
{
	__u32 period = D->flags >> PERIOD_SHIFT, now = tick_now(p);
	__s64 elapsed = (__s64)ticks_between(D->edge_at, now) << TICK_SHIFT, delay;

	if (period == PERIOD_FRESH || elapsed > PAUSE_NS) {
		D->variation = p->tsval;
		D->edge_at = now;
		set_period(D, PERIOD_SEEKING);
		return;
	}
	if (period == PERIOD_SEEKING) {
		__u64 n = p->tsval - D->variation;

		if (elapsed < SEEK_NS)
			return;
		set_period(D, near(elapsed, n * 1000) ? PERIOD_1US :
			      near(elapsed, n * 1000000) ? PERIOD_1MS :
			      near(elapsed, n * 4000000) ? PERIOD_4MS :
			      near(elapsed, n * 10000000) ? PERIOD_10MS : PERIOD_ODD);
		D->variation = 0;
		D->edge_at = now;
		return;
	}
	D->edge_at = now;
	if (period == PERIOD_ODD)
		return;
	delay = steps;
	delay *= period_ns(period);
	/* The leak of 122 ppm keeps clocks of unlike speed from looking like a queue. */
	delay = (__s64)D->variation + elapsed - delay - (elapsed >> 13);
	if (delay < 0)
		delay = 0;
	if (delay > 0xffffffffLL)
		delay = 0xffffffffLL;
	D->variation = delay;
	if ((__u32)delay > D->variation_max)
		D->variation_max = delay;
}

#endif
