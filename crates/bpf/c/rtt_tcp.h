/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* TCP: handshake, timestamps (RFC 7323), sequence numbers by Karn's rule (RFC 6298,
 * section 3), losses, response time. The numbers of the steps are those of the rules.
 */
#ifndef SONDE_RTT_TCP_H
#define SONDE_RTT_TCP_H

#include "rtt_table.h"
#include "rtt_variation.h"

#define HOLE_FILL TICKS(3000000ULL) /* as long as the handshake's RTT is unknown */
#define DELAYED TICKS(20000000ULL)    /* Linux holds for 40 ms, RFC 1122 allows 500 */
#define SAMPLED_BITS 14
#define SENDER_PAUSE TICKS(11000000ULL) /* longer than any common TSval clock ticks */
#define LONGEST_HELD TICKS(200000000ULL) /* no common receiver holds longer: Linux' TCP_DELACK_MAX */
#define MAX_WINDOW (1U << 30)  /* RFC 7323, section 2.3 */

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

	D->packets += p->segs;
	if (D->packets < p->segs)
		D->packets_high++;
	add48(&D->bytes, &D->bytes_high, p->ip_len);
}

/* Whether the flow knows this as the number of its client's SYN. */
static __always_inline bool same_isn(const struct flow *f, const struct side *D, __u32 seq)
{
	if (!(D->flags & SYN_BEGAN))
		return false;
	/* Half of it is kept, and it lies before all that was sent. */
	return (hs_of(f) == HS_DONE ? f->hs_at >> 16 : f->req_id) == (seq & 0xffff) &&
	       (__s32)(seq - D->nxt) < 0;
}

/* Whether a SYN ends the flow that is there: a new connection took its ports. */
static __always_inline bool begins_anew(const struct flow *f, const struct rtt_packet *p)
{
	const struct side *D = SIDE(f, p->d);
	bool from_client = (f->flags & CLIENT) == (p->d & 1);
	__u32 hs = hs_of(f);

	if ((p->flags & (TCP_SYN | TCP_RST)) != TCP_SYN)
		return false;
	if (f->flags & CLOSED)
		return true;
	if (!(p->flags & TCP_ACK))
		return !(from_client && same_isn(f, D, p->seq));
	if (hs == HS_NONE || from_client)
		return true;
	return hs == HS_SYN_RCVD && p->seq + 1 + p->len != D->nxt;
}

/* The handshake is over. Its time is no longer needed: what stands there instead tells a
 * late copy of the SYN from a new one, and a request's age.
 */
static __always_inline void finish_handshake(struct flow *f, __u32 coarse)
{
	set_hs(f, HS_DONE);
	f->hs_at = (__u32)f->req_id << 16 | (coarse & 0xffff);
}

static __always_inline void handshake_sample(struct flow *f, struct rtt_packet *p, __u32 kind)
{
	__u32 rtt = age_of(p, f->hs_at);

	if (rtt == NOTHING)
		return;
	SIDE(f, p->d)->handshake = rtt;
	rtt_sample(f, p, kind, CLEAN, rtt);
}

/* Step 3: SYN and SYN-ACK (RFC 9293, section 3.5). */
__noinline int rtt_tcp_syn(struct flow *f, struct rtt_packet *p, bool fresh)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);

	D->win = p->win;
	D->flags |= HAS_WIN;
	if (!(p->flags & TCP_ACK)) {
		if (!fresh) {
			BUMP(f, p->d, retransmitted);
			f->flags |= HS_VOID_SERVER;
			return 0;
		}
		f->flags = (f->flags & ~CLIENT) | (p->d & 1);
		set_hs(f, HS_SYN_SENT);
		f->req_id = p->seq;
		D->flags |= SYN_BEGAN;
	} else {
		if (hs_of(f) == HS_SYN_SENT) {
			/* Data in the SYN (RFC 7413) may be acknowledged, or refused. Of its
			 * number half is kept: the rest is that of what was sent since.
			 */
			__u32 isn = E->nxt - (__u16)(E->nxt - f->req_id);

			if ((__s32)(p->ack - isn) <= 0 || (__s32)(p->ack - E->nxt) > 0)
				return 0;
			if (!(f->flags & HS_VOID_SERVER))
				handshake_sample(f, p, KIND_HANDSHAKE_SERVER);
		} else if (fresh) {
			f->flags = (f->flags & ~CLIENT) | ((p->d ^ 1) & 1);
		} else {
			BUMP(f, p->d, retransmitted);
			f->flags |= HS_VOID_CLIENT;
			return 0;
		}
		set_hs(f, HS_SYN_RCVD);
		E->ack = p->ack;
		E->flags |= HAS_ACK;
	}
	f->hs_at = tick_now(p);
	D->nxt = p->seq + 1 + p->len;
	D->flags |= HAS_NXT;
	if (p->bits & P_TS) {
		D->tsval = p->tsval;
		D->flags |= TS_SEEN | EDGE_SEEN;
	}
	return 0;
}

/* Whether a pure acknowledgement probably waited at its receiver, for a second segment or a
 * timer (RFC 1122, section 4.2.3.2; RFC 5681, section 4.2).
 */
static __always_inline bool held_back(struct side *E, struct rtt_packet *p, __u32 rtt)
{
	__u32 least = E->rtt_min, excess = rtt - least, held, next;

	if (!least || rtt < least || excess < SENDER_PAUSE)
		return false;
	next = slot_age(oldest(E), p);
	/* The timer: nothing sent since could have been answered by now, or both sides had
	 * fallen silent. In a queue samples follow each other, and so does the data that
	 * acknowledgements release.
	 */
	if (excess >= DELAYED &&
	    (__u16)((tick_now(p) >> SAMPLED_BITS) - E->sampled_at) >= DELAYED >> SAMPLED_BITS &&
	    (next == NOTHING || next < least || slot_age(newest(E), p) >= DELAYED))
		return true;
	/* The echo names the first segment of two (RFC 7323, section 4.3). If the sender paused
	 * after it, and what came next could have been answered by now, that was the second.
	 */
	held = least / 2 > SENDER_PAUSE ? least / 2 : SENDER_PAUSE;
	return E->mode == MODE_TS && excess >= held && next != NOTHING &&
	       next >= least - least / 8 && rtt >= next && rtt - next >= held;
}

/* Whether an acknowledgement that data carries comes so late that its receiver must have sent
 * one before, without data (RFC 1122, section 4.2.3.2), and that was lost; or this one was, and
 * is sent again. If such times go on, the path has become that long.
 */
static __always_inline bool lost_before(struct side *E, const struct rtt_packet *p, __u32 rtt)
{
	bool late = E->srtt && rtt >= E->srtt && rtt - E->srtt >= LONGEST_HELD;
	bool first = late && !(E->flags & LATE);

	E->flags = late ? E->flags | LATE : E->flags & ~LATE;
	return first && p->len;
}

/* The sample of an acknowledgement, if there is one in it. */
__noinline int rtt_match_echo(struct flow *f, struct rtt_packet *p, bool advance)
{
	if (!f || !p)
		return 0;
	struct side *E = SIDE(f, p->d ^ 1);
	__u32 rtt, kind, class = CLEAN;

	if (E->mode == MODE_TS && p->bits & P_TS) {
		kind = KIND_TIMESTAMP;
		rtt = match_ts(E, p);
	} else if (E->mode == MODE_SEQ && !(p->bits & P_TS) && advance) {
		kind = KIND_SEQUENCE;
		rtt = match_seq(E, p);
	} else {
		return 0;
	}
	if (rtt == NOTHING)
		return 0;
	if (!advance) {
		/* It rides on data that the other side sent of its own accord. */
		count(NO_ADVANCE);
		return 0;
	}
	if (lost_before(E, p, rtt) || E->flags & RECOVERING)
		class = RECOVERY;
	else if (p->len == 0 && held_back(E, p, rtt))
		class = DELAYED_ACK;
	E->sampled_at = tick_now(p) >> SAMPLED_BITS;
	rtt_sample(f, p, kind, class, rtt);
	return 0;
}

/* Step 7: what this packet acknowledges of the other side's data. */
static __always_inline void tcp_ack(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool known = E->flags & HAS_ACK, unseen, advance;
	__s32 ahead = E->flags & HAS_NXT ? E->nxt - p->ack : 0; /* outstanding after it */

	unseen = ahead < 0;
	if (unseen) {
		if ((__u32)-ahead >= MAX_WINDOW)
			return;
		/* The data went another way. */
		count(ACK_UNSEEN);
		E->nxt = p->ack;
		void_sequence(E);
	}
	advance = known ? (__s32)(p->ack - E->ack) > 0 : E->flags & HAS_NXT;
	if (ahead > 0) {
		bool duplicate = p->len == 0 && !(p->flags & TCP_FIN) && known &&
				 p->ack == E->ack && D->flags & HAS_WIN && D->win == p->win;

		if (duplicate)
			BUMP(f, p->d, duplicate_acks);
		if (duplicate || p->bits & P_SACK)
			enter_recovery(E, E->nxt);
	}
	if (!unseen && E->count)
		rtt_match_echo(f, p, advance);
	if (advance) {
		if ((__s32)(p->ack - E->recover) >= 0)
			E->flags &= ~RECOVERING;
		if (E->flags & HOLE) {
			struct loss_side *l = loss_side(f, p->d ^ 1);

			if (l && (__s32)(p->ack - l->hole_hi) >= 0)
				E->flags &= ~HOLE;
		}
	}
	if (advance || !known) {
		E->ack = p->ack;
		E->flags |= HAS_ACK;
	}
}

/* What a segment with data, or a FIN, is to the sequence so far. */
enum data { D_NONE, D_OTHER, D_PROBE, D_NEW };

/* Sent before, or not in order: Karn's rule, and what it says of losses. */
__noinline __u32 rtt_out_of_order(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	__u32 end = p->seq + p->len + !!(p->flags & TCP_FIN);
	struct loss_side *l;

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
			limit = (f->side[0].handshake + f->side[1].handshake) / 4 * 3;
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
	return D_OTHER;
}

/* Step 5. */
static __always_inline __u32 tcp_data(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool fin = p->flags & TCP_FIN;

	if (D->flags & HAS_NXT && !fin && p->len <= 1 && p->seq == D->nxt - 1)
		return D_NONE; /* a keepalive (RFC 9293, section 3.8.4) */
	if (fin)
		D->flags |= FIN_SEEN;
	if (D->flags & HAS_NXT && p->seq != D->nxt)
		return rtt_out_of_order(f, p);
	D->flags |= HAS_NXT;
	D->nxt = p->seq + p->len + fin;
	/* A probe of a window of zero: its answer waits for the window. */
	return E->flags & HAS_WIN && E->win == 0 && p->len == 1 ? D_PROBE : D_NEW;
}

/* Step 6: arms a TSval when data first carries it. A pure acknowledgement's is echoed only by
 * what the application sends next.
 */
__noinline int rtt_timestamp(struct flow *f, struct rtt_packet *p, __u32 data)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	__u32 steps = p->tsval - D->tsval;
	bool unused;

	if (!(D->flags & TS_SEEN)) {
		D->flags |= TS_SEEN;
		D->tsval = p->tsval;
		return 0;
	}
	if ((__s32)steps > 0) {
		delay_variation(D, p, steps);
		D->tsval = p->tsval;
		unused = D->flags & EDGE_SEEN;
		D->flags |= EDGE_SEEN;
	} else {
		unused = steps == 0 && D->flags & UNUSED;
	}
	D->flags &= ~UNUSED;
	if (!unused)
		return 0;
	if (data == D_NONE)
		D->flags |= UNUSED;
	else if (data != D_PROBE)
		rtt_arm(f, p, MODE_TS, p->tsval);
	return 0;
}

/* Step 8: the server's time, from the first segment of a request to the first of its answer.
 * With DNS (RFC 7766) it is a sample too, if the identifiers agree.
 */
__noinline int rtt_tcp_response(struct flow *f, struct rtt_packet *p, bool in_order)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1), *s = &f->side[0];
	bool repairing = (D->flags | E->flags) & RECOVERING;
	__u32 hs = hs_of(f), time;
	bool dated = hs == HS_NONE || hs == HS_DONE; /* only then there is room for it */

	if ((f->flags & CLIENT) == (p->d & 1)) {
		if (f->flags & PENDING || !in_order || repairing)
			return 0;
		f->req_at = tick_now(p);
		if (dated)
			f->hs_at = (f->hs_at & 0xffff0000) | (p->coarse & 0xffff);
		f->flags |= PENDING;
		if (p->bits & P_DNS && !(p->bits & P_DNS_RESPONSE)) {
			f->req_id = p->dns_id;
			f->flags |= PENDING_DNS;
		}
		return 0;
	}
	if (!(f->flags & PENDING))
		return 0;
	hs = f->flags;
	f->flags &= ~(PENDING | PENDING_DNS);
	if (repairing)
		return 0;
	time = ticks_between(f->req_at, tick_now(p)) ?: 1;
	if (time > MAX_RTT || (dated && (__u16)(p->coarse - f->hs_at) > RECENT))
		return 0;
	s->timed++;
	add48(&s->timed_sum, &s->timed_sum_high, time);
	if (time > s->timed_max)
		s->timed_max = time;
	if (hs & PENDING_DNS && p->bits & P_DNS_RESPONSE && p->dns_id == f->req_id)
		rtt_sample(f, p, KIND_DNS, CLEAN, time);
	return 0;
}

static __always_inline bool all_acknowledged(const struct side *s)
{
	return (s->flags & (FIN_SEEN | HAS_NXT | HAS_ACK)) == (FIN_SEEN | HAS_NXT | HAS_ACK) &&
	       (__s32)(s->nxt - s->ack) <= 0;
}

static __always_inline void tcp_packet(struct flow *f, struct rtt_packet *p, bool fresh)
{
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	__u32 data = D_NONE;

	if (p->flags & TCP_RST) {
		close_flow(f, (D->flags | E->flags) & FIN_SEEN ? R_FIN : R_RESET);
		return;
	}
	if (p->flags & TCP_SYN) {
		rtt_tcp_syn(f, p, fresh);
		return;
	}
	if (p->flags & TCP_ACK) {
		if (hs_of(f) == HS_SYN_RCVD && (f->flags & CLIENT) == (p->d & 1)) {
			if (p->ack == E->nxt && !(f->flags & HS_VOID_CLIENT))
				handshake_sample(f, p, KIND_HANDSHAKE_CLIENT);
			finish_handshake(f, p->coarse);
		}
		tcp_ack(f, p);
	}
	if (p->win == 0 && !(p->flags & TCP_FIN))
		BUMP(f, p->d, zero_windows);
	D->win = p->win;
	D->flags |= HAS_WIN;

	if (p->len || p->flags & TCP_FIN)
		data = tcp_data(f, p);
	/* Most segments need none of what is called from here on. */
	if (p->bits & P_TS) {
		if ((__s32)(p->tsval - D->tsval) > 0 || !(D->flags & TS_SEEN) || D->flags & UNUSED)
			rtt_timestamp(f, p, data);
	} else if (data == D_NEW && !(D->flags & RECOVERING)) {
		rtt_arm(f, p, MODE_SEQ, D->nxt);
	}
	if (p->len && data != D_NONE &&
	    !(f->flags & PENDING) == ((f->flags & CLIENT) == (p->d & 1)))
		rtt_tcp_response(f, p, data != D_OTHER);
	if (all_acknowledged(D) && all_acknowledged(E))
		close_flow(f, R_FIN);
}

/* A long pause, or a clock that was stepped: whatever waits for its end is forgotten, since
 * ticks may have wrapped.
 */
__noinline int rtt_pause(struct flow *f)
{
	if (!f)
		return 0;
	for (__u32 d = 0; d < 2; d++) {
		struct side *s = SIDE(f, d);

		void_slots(s, STALE);
		if (f->key.protocol == IPPROTO_TCP) {
			s->flags &= ~HOLE;
			set_period(s, PERIOD_FRESH);
		}
	}
	f->flags |= HS_VOID_SERVER | HS_VOID_CLIENT;
	if (f->key.protocol == IPPROTO_TCP)
		f->flags &= ~(PENDING | PENDING_DNS);
	else {
		f->flags &= ~SPIN_EDGE;
		f->req_id &= 0xff00;
	}
	return 0;
}

#endif
