/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* TCP: handshake, timestamps (RFC 7323), sequence numbers by Karn's rule (RFC 6298,
 * section 3), losses, response time. The numbers of the steps are those of the rules.
 */
#ifndef SONDE_RTT_TCP_H
#define SONDE_RTT_TCP_H

#include "rtt_table.h"

#define HOLE_FILL TICKS(3000000ULL) /* as long as the handshake's RTT is unknown */
#define PERIOD_AFTER TICKS(1000000000ULL)
#define PAUSE COARSE(60000000000ULL)

static __always_inline __u32 hs_of(const struct flow *f)
{
	return (f->flags & HS_MASK) >> HS_SHIFT;
}

static __always_inline void set_hs(struct flow *f, __u32 hs)
{
	f->flags = (f->flags & ~HS_MASK) | hs << HS_SHIFT;
}

static __always_inline void enter_recovery(struct side *s, __u32 point)
{
	if (!(s->flags & RECOVERING) || (__s32)(point - s->recover) > 0)
		s->recover = point;
	s->flags |= RECOVERING;
}

static __always_inline struct loss_side *loss_side(struct flow *f, __u32 d)
{
	struct loss *l = loss_of(f);

	return l ? &l->side[d & 1] : NULL;
}

#define BUMP(f, d, field)                             \
	do {                                          \
		struct loss_side *l_ = loss_side(f, d); \
		if (l_)                               \
			l_->field++;                  \
	} while (0)

static __always_inline void count_packet(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d);

	add48(&D->packets, &D->packets_high, p->segs);
	add48(&D->bytes, &D->bytes_high, p->ip_len);
	f->last = p->coarse;
}

/* Step 3, SYN and SYN-ACK of a flow that is not to begin anew. */
__noinline int rtt_tcp_syn(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	__u32 hs = hs_of(f);
	__u32 rtt;

	if (!(p->flags & TCP_ACK)) {
		if (D->flags & SYN_BEGAN) { /* again */
			BUMP(f, p->d, retransmitted);
			f->flags |= HS_VOID_SERVER;
			return 0;
		}
		f->flags = (f->flags & ~CLIENT) | (p->d & 1);
		set_hs(f, HS_SYN_SENT);
		f->hs_at = tick_now(p);
		D->nxt = p->seq + 1 + p->len;
	} else {
		if (D->flags & SYN_BEGAN) {
			BUMP(f, p->d, retransmitted);
			f->flags |= HS_VOID_CLIENT;
			return 0;
		}
		D->nxt = p->seq + 1;
		if (hs == HS_SYN_SENT && !(f->flags & HS_VOID_SERVER) && p->ack == E->nxt) {
			rtt = ticks_between(f->hs_at, tick_now(p));
			if (rtt <= MAX_RTT) {
				D->handshake = rtt;
				rtt_sample(f, p, KIND_HANDSHAKE_SERVER, CLEAN, rtt);
			} else {
				count(STALE);
			}
		}
		f->flags = (f->flags & ~CLIENT) | ((p->d ^ 1) & 1);
		set_hs(f, HS_SYN_RCVD);
		f->hs_at = tick_now(p);
		E->ack = p->ack;
		E->flags |= HAS_ACK;
	}
	D->recover = p->seq;
	D->flags |= SYN_BEGAN | HAS_NXT;
	if (p->bits & P_TS) {
		D->tsval = p->tsval;
		D->flags |= TS_SEEN;
	}
	return 0;
}

/* Whether a SYN or SYN-ACK begins a new connection on the ports of this one. */
static __always_inline bool begins_anew(const struct flow *f, const struct rtt_packet *p)
{
	const struct side *D = SIDE(f, p->d);
	__u32 hs = hs_of(f);

	if (p->flags & TCP_ACK)
		return hs == HS_NONE || (f->flags & CLOSED);
	return !((hs == HS_SYN_SENT || hs == HS_SYN_RCVD) && D->flags & SYN_BEGAN &&
		 !(D->flags & RECOVERING) && D->recover == p->seq && !(f->flags & CLOSED));
}

/* Step 7: what this packet acknowledges of the other side's data. */
__noinline int rtt_tcp_ack(struct flow *f, struct rtt_packet *p, __u32 same_window)
{
	if (!f || !p)
		return 0;
	struct side *E = SIDE(f, p->d ^ 1);
	bool known = E->flags & HAS_ACK, has_nxt = E->flags & HAS_NXT, fin = p->flags & TCP_FIN;
	__s32 ahead = has_nxt ? E->nxt - p->ack : 0;
	bool advance = known ? (__s32)(p->ack - E->ack) > 0 : has_nxt && ahead >= 0;

	if (ahead < 0) {
		E->nxt = p->ack;
		void_sequence(E);
		count(ACK_UNSEEN);
		E->ack = p->ack;
		E->flags |= HAS_ACK;
	} else {
		__u32 rtt = NOTHING, kind = KIND_TIMESTAMP;

		if (known && p->len == 0 && !fin && p->ack == E->ack && same_window && ahead > 0) {
			BUMP(f, p->d, duplicate_acks);
			enter_recovery(E, E->nxt);
		} else if (p->bits & P_SACK && ahead > 0) {
			enter_recovery(E, E->nxt);
		}
		if (E->count) {
			if (p->bits & P_TS) {
				if (E->mode == MODE_TS)
					rtt = match_ts(E, p);
				if (rtt != NOTHING && !advance) {
					count(NO_ADVANCE);
					rtt = NOTHING;
				}
			} else if (E->mode == MODE_SEQ) {
				kind = KIND_SEQUENCE;
				rtt = match_seq(E, p);
			}
		}
		if (rtt != NOTHING) {
			__u32 class = CLEAN;

			if (E->flags & RECOVERING)
				class = RECOVERY;
			else if (p->len == 0 && E->unacked <= 1 && E->samples &&
				 rtt >= E->rtt_min + DELAYED_ACK_EXCESS)
				class = DELAYED_ACK;
			rtt_sample(f, p, kind, class, rtt);
		}
		if (advance || !known) {
			E->ack = p->ack;
			E->flags |= HAS_ACK;
		}
	}
	if (advance) {
		E->unacked = 0;
		if (E->flags & RECOVERING && (__s32)(p->ack - E->recover) >= 0)
			E->flags &= ~RECOVERING;
	}
	return 0;
}

/* Step 5. Whether the segment is new data that may be timed: 2; new: 1; neither: 0. */
__noinline __u32 rtt_tcp_data(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool fin = p->flags & TCP_FIN;
	__u32 end = p->seq + p->len + fin, verdict = 2, room;
	struct loss_side *l;

	if (fin)
		D->flags |= FIN_SEEN;
	if (!(D->flags & HAS_NXT)) {
		D->flags |= HAS_NXT;
		D->nxt = end;
	} else if (p->seq == D->nxt) {
		D->nxt = end;
		/* A probe of a window of zero is not answered until the window opens. */
		if (E->flags & HAS_WIN && E->win == 0 && p->len == 1)
			verdict = 1;
	} else if (p->len <= 1 && !fin && p->seq == D->nxt - 1) {
		return 0; /* keepalive */
	} else {
		void_sequence(D);
		l = loss_side(f, p->d);
		if ((__s32)(p->seq - D->nxt) > 0) {
			if (l) {
				l->gaps++;
				if (!(D->flags & HOLE)) {
					l->hole_lo = D->nxt;
					l->hole_at = tick_now(p);
					D->flags |= HOLE;
				}
				l->hole_hi = p->seq;
			}
			D->nxt = end;
		} else if ((__s32)(end - D->nxt) <= 0) {
			__u32 limit = HOLE_FILL;
			bool fills = l && D->flags & HOLE && (__s32)(p->seq - l->hole_lo) >= 0 &&
				     (__s32)(end - l->hole_hi) <= 0;

			if (f->side[0].handshake && f->side[1].handshake)
				limit = f->side[0].handshake + f->side[1].handshake;
			if (fills && ticks_between(l->hole_at, tick_now(p)) < limit)
				l->reordered++;
			else if (l)
				l->retransmitted++;
			if (fills && end == l->hole_hi)
				D->flags &= ~HOLE;
			else if (fills && p->seq == l->hole_lo)
				l->hole_lo = end;
		} else {
			if (l)
				l->retransmitted++;
			D->nxt = end;
		}
		enter_recovery(D, D->nxt);
		return 0;
	}
	room = 255 - D->unacked;
	D->unacked += p->segs < room ? p->segs : room;
	return verdict;
}

/* Step 6: how much later than its TSval says the packet came. */
static __always_inline void delay_variation(struct side *D, struct rtt_packet *p, __u32 steps)
{
	__u32 period = D->flags >> PERIOD_SHIFT, now = tick_now(p), since;
	__s64 off, ns;

	since = ticks_between(D->edge_at, now);
	D->edge_at = now;
	if (period == PERIOD_NONE || since > TICKS(60000000000ULL)) {
		D->first_ts = p->tsval;
		D->first_at = now;
		D->flags = (D->flags & ((1 << PERIOD_SHIFT) - 1)) | PERIOD_STARTED << PERIOD_SHIFT;
		return;
	}
	if (period == PERIOD_STARTED) {
		__u32 ts = p->tsval - D->first_ts;
		__u64 each;

		since = ticks_between(D->first_at, now);
		if (since < PERIOD_AFTER || ts == 0)
			return;
		each = ((__u64)since << TICK_SHIFT) / ts;
		if (each >= 900 && each <= 1100)
			period = PERIOD_1US;
		else if (each >= 900000 && each <= 1100000)
			period = PERIOD_1MS;
		else if (each >= 3600000 && each <= 4400000)
			period = PERIOD_4MS;
		else if (each >= 9000000 && each <= 11000000)
			period = PERIOD_10MS;
		else
			period = PERIOD_UNKNOWN;
		D->flags = (D->flags & ((1 << PERIOD_SHIFT) - 1)) | period << PERIOD_SHIFT;
		D->variation = 0;
		D->variation_max = 0;
		return;
	}
	if (period == PERIOD_UNKNOWN)
		return;
	ns = (__s64)since << TICK_SHIFT;
	off = steps;
	off *= period == PERIOD_1US ? 1000 : period == PERIOD_1MS ? 1000000 :
	       period == PERIOD_4MS ? 4000000 : 10000000;
	off = (__s64)D->variation + ns - off - (ns >> 13);
	if (off < 0)
		off = 0;
	if (off > 0xffffffffLL)
		off = 0xffffffffLL;
	D->variation = off;
	if (off > D->variation_max)
		D->variation_max = off;
}

/* Step 8. */
__noinline int rtt_tcp_response(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1), *s = &f->side[0];
	bool from_client = (f->flags & CLIENT) == (p->d & 1);

	if (from_client) {
		if (f->flags & PENDING)
			return 0;
		f->req_at = tick_now(p);
		f->flags = (f->flags & ~PENDING_DNS) | PENDING;
		if (p->bits & P_DNS && !(p->bits & P_DNS_RESPONSE)) {
			f->req_id = p->dns_id;
			f->flags |= PENDING_DNS;
		}
	} else if (f->flags & PENDING) {
		f->flags &= ~PENDING;
		if (!((D->flags | E->flags) & RECOVERING)) {
			__u32 time = ticks_between(f->req_at, tick_now(p));

			s->timed++;
			add48(&s->timed_sum, &s->timed_sum_high, time);
			if (time > s->timed_max)
				s->timed_max = time;
			if (f->flags & PENDING_DNS && p->bits & P_DNS &&
			    p->bits & P_DNS_RESPONSE && p->dns_id == f->req_id)
				rtt_sample(f, p, KIND_DNS, CLEAN, time);
		}
	}
	return 0;
}

static __always_inline void tcp_packet(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	__u32 fresh = 0, same_window;

	if (p->flags & TCP_SYN) {
		rtt_tcp_syn(f, p);
		return;
	}
	if ((p->flags & TCP_ACK) && hs_of(f) == HS_SYN_RCVD &&
	    (f->flags & CLIENT) == (p->d & 1) && p->ack == E->nxt) {
		set_hs(f, HS_DONE);
		if (!(f->flags & HS_VOID_CLIENT)) {
			__u32 rtt = ticks_between(f->hs_at, tick_now(p));

			if (rtt <= MAX_RTT) {
				D->handshake = rtt;
				rtt_sample(f, p, KIND_HANDSHAKE_CLIENT, CLEAN, rtt);
			} else {
				count(STALE);
			}
		}
	}
	if (p->win == 0 && !(p->flags & TCP_FIN))
		BUMP(f, p->d, zero_windows);
	same_window = D->flags & HAS_WIN && D->win == p->win;
	D->win = p->win;
	D->flags |= HAS_WIN;

	if (p->flags & TCP_ACK)
		rtt_tcp_ack(f, p, same_window);
	if (p->len || p->flags & TCP_FIN)
		fresh = rtt_tcp_data(f, p);

	if (p->bits & P_TS) {
		__u32 steps = p->tsval - D->tsval;

		if (!(D->flags & TS_SEEN)) {
			D->flags |= TS_SEEN;
			D->tsval = p->tsval;
		} else if ((__s32)steps > 0) {
			D->tsval = p->tsval;
			if (fresh == 2 && D->flags & (EDGE_SEEN | SYN_BEGAN))
				rtt_arm(f, p, MODE_TS, p->tsval);
			D->flags |= EDGE_SEEN;
			delay_variation(D, p, steps);
		}
	} else if (fresh == 2 && !(D->flags & RECOVERING)) {
		rtt_arm(f, p, MODE_SEQ, p->seq + p->len + !!(p->flags & TCP_FIN));
	}
	if (p->len)
		rtt_tcp_response(f, p);
}

#endif
