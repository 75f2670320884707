/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Segments far from their connection's sequence numbers: forged, corrupt, or of a connection
 * of which something was missed here. They are believed once the other side acknowledges them.
 */
#ifndef SONDE_RTT_AWAY_H
#define SONDE_RTT_AWAY_H

#include "rtt_table.h"
#include "rtt_variation.h"

#define FAR 0xffffU            /* the widest window without a scale */
#define MAX_WINDOW (1U << 30)  /* RFC 7323, section 2.3 */
#define IN_A_ROW 4             /* are believed where only one direction passes */

enum far { NEAR_BY, AHEAD, BEHIND };

/* Where a segment lies, seen from what its side has sent. */
static __always_inline __u32 far_of(const struct side *D, const struct rtt_packet *p)
{
	bool known = D->flags & HAS_ACK && D->nxt - D->ack < MAX_WINDOW;
	__u32 oldest = known ? D->ack : D->nxt, end = p->seq + p->len + !!(p->flags & TCP_FIN);

	if (p->seq == D->nxt || !(D->flags & HAS_NXT))
		return NEAR_BY;
	if ((__s32)(p->seq - (D->nxt + FAR)) > 0)
		return AHEAD;
	return (__s32)(oldest - FAR - end) > 0 ? BEHIND : NEAR_BY;
}

/* A side goes on at `next`. */
static __always_inline void take_up(struct side *s, __u32 next, bool ts, __u32 tsval)
{
	void_slots(s, VOIDED);
	s->nxt = next;
	s->flight = 0;
	s->flags &= ~(AWAY | HOLE | RECOVERING | TOLD | FIN_SEEN | UNUSED | TS_SEEN);
	s->probed = 0;
	s->flags |= HAS_NXT;
	set_period(s, PERIOD_FRESH);
	if (ts) {
		s->tsval = tsval;
		s->flags |= TS_SEEN | EDGE_SEEN;
	}
}

/* Notes one. Nothing else becomes of it. */
__noinline int rtt_note_away(struct flow *f, struct rtt_packet *p, __u32 far)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	__u32 end = p->seq + p->len + !!(p->flags & TCP_FIN), was;
	bool goes_on, behind = far == BEHIND;
	struct loss *l = loss_of(f);
	struct away *a;

	count(UNCONFIRMED);
	if (!l)
		return 0;
	a = &l->away[p->d & 1];
	if (behind)
		l->side[p->d & 1].retransmitted++;
	goes_on = D->flags & AWAY && (__s32)(a->start - p->seq) <= 0 &&
		  (__s32)(p->seq - (a->end + FAR)) <= 0;
	was = a->end;
	if (!goes_on) {
		a->start = p->seq;
		a->end = end;
		a->segments = 1;
		a->again = behind;
		a->bits = AWAY_TIMED;
	} else {
		if ((__s32)(end - was) > 0)
			a->end = end;
		a->segments = p->seq != was ? 1 : a->segments < 0xffff ? a->segments + 1 : 0xffff;
		if (behind && a->again < 0xffff)
			a->again++;
		a->bits = (__s32)(was - p->seq) <= 0 ? AWAY_TIMED : 0;
	}
	a->at = tick_now(p);
	a->ack = p->ack;
	a->tsval = p->tsval;
	if (p->bits & P_TS)
		a->bits |= AWAY_TS;
	D->flags |= AWAY;
	/* Several in a row are no accident. Behind, they may all be sent again. */
	if (!behind && a->segments >= IN_A_ROW) {
		count(RESYNCHRONISED);
		take_up(D, a->end, a->bits & AWAY_TS, a->tsval);
	}
	return 0;
}

/* If both sides agree about other sequence numbers, the connection goes on there: 1. Returns 2
 * where its data can be timed, too. rtt_sample_away does that: its stack and this one would be too
 * much.
 */
__noinline int rtt_resynchronise(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	struct loss *l = loss_of(f);
	__u32 e = (p->d ^ 1) & 1;
	struct away *a;

	if (!l)
		return 0;
	a = &l->away[e];
	if ((__s32)(p->ack - a->start) <= 0 || (__s32)(p->ack - a->end) > 0)
		return 0;
	count(RESYNCHRONISED);
	l->side[e].retransmitted -= a->again < l->side[e].retransmitted ? a->again :
									  l->side[e].retransmitted;
	take_up(E, a->end, a->bits & AWAY_TS, a->tsval);
	E->ack = p->ack;
	E->flags |= HAS_ACK;
	if (!(D->flags & HAS_NXT) || (__s32)(p->seq - (D->nxt + FAR)) > 0 ||
	    (__s32)(D->nxt - FAR - p->seq) > 0) {
		take_up(D, p->seq, p->bits & P_TS, p->tsval);
		D->ack = a->ack;
		D->flags |= HAS_ACK;
	}
	f->flags &= ~(PENDING | PENDING_DNS);
	return a->bits & AWAY_TIMED && p->ack == a->end ? 2 : 1;
}

__noinline int rtt_sample_away(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct loss *l = loss_of(f);
	__u32 rtt;
	bool held;

	if (!l)
		return 0;
	rtt = age_of(p, l->away[(p->d ^ 1) & 1].at);
	if (rtt == NOTHING)
		return 0;
	held = p->len == 0 && rtt_held_back(f, p, rtt);
	SIDE(f, p->d ^ 1)->sampled_at = tick_now(p) >> SAMPLED_BITS;
	rtt_sample(f, p, KIND_SEQUENCE, held ? DELAYED_ACK : CLEAN, rtt);
	return 0;
}

#endif
