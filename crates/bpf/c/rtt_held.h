/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Acknowledgements that their receiver probably held back, for a second segment or a timer
 * (RFC 1122, section 4.2.3.2; RFC 5681, section 4.2), distinguished from a path that has become longer.
 */
#ifndef SONDE_RTT_HELD_H
#define SONDE_RTT_HELD_H

#include "rtt_slots.h"

#define DELAYED TICKS(20000000ULL)       /* Linux holds for 40 ms, RFC 1122 allows 500 */
#define MOST_HELD TICKS(500000000ULL)    /* RFC 1122: it must be less */
#define SENDER_PAUSE TICKS(11000000ULL)  /* longer than any common TSval clock ticks */
#define USUAL_LEAST TICKS(36000000ULL)   /* what Linux' shortest timer, TCP_DELACK_MIN, makes */
#define USUAL_MOST TICKS(48000000ULL)
#define RESTED TICKS(500000000ULL)       /* longer than common retransmission time-outs */
#define NEARLY TICKS(2000000ULL)
#define SAMPLED_BITS 14
#define PERIOD_BITS 8                    /* of coarse time: 17 s */

/* side.held: lone segments in a row that were acknowledged at once, and acknowledgements in a
 * row that looked held back equally long.
 */
#define PROMPT_MASK 0x1f
#define PROMPT 20
#define PROMPT_RESTED 4
#define ALIKE_SHIFT 5
#define ALIKE 3
#define MOST_ALIKE 7

/* The record of a flow's losses, made when first needed. */
static __noinline struct loss *loss_of(struct flow *f)
{
	__u32 i = f->loss;
	struct loss *l;

	if (i) {
		i--;
		return bpf_map_lookup_elem(&rtt_losses, &i);
	}
	i = take_from(&free_losses, &losses_fresh, loss_count);
	l = i == NOTHING ? NULL : bpf_map_lookup_elem(&rtt_losses, &i);
	if (!l) {
		count(LOSSES_FULL);
		return NULL;
	}
	__builtin_memset(l, 0, sizeof(*l));
	f->loss = i + 1;
	return l;
}

/* Ticks in 16 bits, in the same order, rounded down by less than a thousandth. */
static __always_inline __u32 rtt_code(__u32 ticks)
{
	__u32 v = ticks >> 11, shift = 0;

	if (v >> 16)
		shift += 16, v >>= 16;
	if (v >> 8)
		shift += 8, v >>= 8;
	if (v >> 4)
		shift += 4, v >>= 4;
	if (v >> 2)
		shift += 2, v >>= 2;
	shift += v >> 1 ? 2 : v;
	return (shift << 10) + (ticks >> shift);
}

static __always_inline __u32 rtt_decoded(__u32 code)
{
	__u32 shift = code >> 10;

	return shift < 2 ? code : ((code & 1023) | 1024) << (shift - 1);
}

static __always_inline void turn_period(struct side *s, const struct rtt_packet *p)
{
	__u8 period = p->coarse >> PERIOD_BITS;

	if (period == s->held_period)
		return;
	s->held_period = period;
	s->recent[1] = s->recent[0];
	s->recent[0] = 0;
}

/* Takes a clean sample. */
static __always_inline void note_recent(struct side *s, const struct rtt_packet *p, __u32 rtt)
{
	__u32 code = rtt_code(rtt);

	turn_period(s, p);
	if (!s->recent[0] || code < s->recent[0])
		s->recent[0] = code;
}

/* The least clean sample of the last 17 to 34 s; 0: none. */
static __always_inline __u32 least_recent(const struct side *s)
{
	__u32 a = s->recent[0], b = s->recent[1];

	return rtt_decoded(!a || (b && b < a) ? b : a);
}

static __always_inline bool usual(__u32 excess)
{
	return excess >= USUAL_LEAST && excess < USUAL_MOST;
}

/* Whether a pure acknowledgement was probably held back. */
__noinline int rtt_held_back(struct flow *f, struct rtt_packet *p, __u32 rtt)
{
	if (!f || !p)
		return 0;
	struct side *E = SIDE(f, p->d ^ 1);
	__u32 ever = E->rtt_min, least, excess, held, next, off, prompt, alike, *last;
	struct loss *l;
	__u16 silence;
	bool alone, second;

	turn_period(E, p);
	least = rtt > ever && usual(rtt - ever) ? ever : least_recent(E);
	if (!ever || !least)
		return 0;
	excess = rtt > least ? rtt - least : 0;
	silence = (tick_now(p) >> SAMPLED_BITS) - E->sampled_at;
	if (silence < DELAYED >> SAMPLED_BITS && excess < SENDER_PAUSE)
		return 0;
	next = slot_age(oldest(E), p);
	/* The timer: nothing sent since could have been answered by now, or both sides had
	 * fallen silent. In a queue samples follow each other, and so does the data that
	 * acknowledgements release.
	 */
	alone = silence >= DELAYED >> SAMPLED_BITS &&
		(next == NOTHING || next < least || slot_age(newest(E), p) >= DELAYED);
	/* The echo names the first segment of two (RFC 7323, section 4.3). If the sender paused
	 * after it, and what came next could have been answered by now, that was the second.
	 */
	held = least / 2 > SENDER_PAUSE ? least / 2 : SENDER_PAUSE;
	second = E->mode == MODE_TS && excess >= held && next != NOTHING &&
		 next >= least - least / 8 && rtt >= next && rtt - next >= held;
	prompt = E->held & PROMPT_MASK;
	if (excess > MOST_HELD || !(second || (alone && excess >= DELAYED))) {
		if (alone && E->flight == 1 && excess < DELAYED)
			E->held = prompt < PROMPT_MASK ? prompt + 1 : prompt;
		return 0;
	}
	/* A receiver that acknowledges at once goes on to do so; Linux' does for 16 segments,
	 * and again after a silence longer than the retransmission time-out.
	 */
	if (prompt >= PROMPT ||
	    (prompt >= PROMPT_RESTED &&
	     silence >= (RESTED >> SAMPLED_BITS) + (__u16)(rtt >> SAMPLED_BITS)))
		return 0;
	/* A path is longer by the same each time; but so is Linux' timer, and a second segment
	 * that follows by a round trip.
	 */
	l = second || usual(excess) ? NULL : loss_of(f);
	if (l) {
		last = &l->excess[(p->d ^ 1) & 1];
		off = excess > *last ? excess - *last : *last - excess;
		alike = E->held >> ALIKE_SHIFT;
		if (off > (*last / 8 > NEARLY ? *last / 8 : NEARLY))
			alike = 1;
		else if (alike < MOST_ALIKE)
			alike++;
		*last = excess;
		E->held = alike << ALIKE_SHIFT | prompt;
		if (alike > ALIKE)
			return 0;
	}
	E->held &= ~PROMPT_MASK;
	return 1;
}

#endif
