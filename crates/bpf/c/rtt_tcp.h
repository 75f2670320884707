/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* TCP: handshake, timestamps (RFC 7323), sequence numbers by Karn's rule (RFC 6298,
 * section 3), losses, response time. The steps are numbered as of the rules.
 */
#ifndef SONDE_RTT_TCP_H
#define SONDE_RTT_TCP_H

#include "rtt_away.h"
#include "rtt_seen.h"

#define HOLE_FILL TICKS(3000000ULL) /* as long as the handshake's RTT is unknown */
#define LONGEST_HELD TICKS(200000000ULL) /* no common receiver holds longer: Linux' TCP_DELACK_MAX */

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

/* Octets in front of what segmentation cuts up, which each packet on the wire has. */
static __always_inline __u32 header_len(const struct rtt_packet *p)
{
	__u32 ip = p->bits & P_IPV4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	if (p->key.protocol == IPPROTO_TCP)
		return p->ip_len - p->len;
	return p->key.protocol == IPPROTO_UDP ? ip + 8 : p->key.protocol == IPPROTO_SCTP ? ip + 12 : ip;
}

static __always_inline void count_packet(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d);

	D->packets += p->segs;
	if (D->packets < p->segs)
		D->packets_high++;
	add48(&D->bytes, &D->bytes_high, p->ip_len + (p->segs - 1) * header_len(p));
}

/* Whether the flow knows this as the ISN of its client. */
static __always_inline bool same_isn(const struct flow *f, const struct side *D, __u32 seq)
{
	if (!(D->flags & SYN_BEGAN))
		return false;
	if (hs_of(f) == HS_SYN_SENT)
		return D->handshake == seq;
	/* Half of it is kept, and it lies before all that was sent. */
	return (hs_of(f) == HS_DONE ? f->hs_at >> 16 : f->req_id) == (seq & 0xffff) &&
	       (__s32)(seq - D->nxt) < 0;
}

/* Whether the packet confirms that a connection began with the SYN that was noted: then that
 * is a packet of the new flow, and in p->syn.
 */
__noinline int rtt_begins(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct loss *l = loss_of(f);
	struct noted_syn *n;
	struct side *s;
	bool own;

	if (!l || (p->flags & (TCP_ACK | TCP_RST)) != TCP_ACK)
		return 0;
	n = &l->syn;
	own = n->side == p->d;
	if (p->flags & TCP_SYN && (own || n->bits & NOTED_ACK))
		return 0;
	if (own) {
		/* Its answer does not pass here. */
		if (n->bits & NOTED_ACK || (__s32)(p->seq - n->seq) <= 0 ||
		    (__s32)(p->seq - n->end) > 0)
			return 0;
	} else if ((__s32)(p->ack - n->seq) <= 0 || (__s32)(p->ack - n->end) > 0 ||
		   (n->bits & NOTED_ACK ? p->seq != n->ack : !(p->flags & TCP_SYN))) {
		return 0;
	}
	p->syn = *n;
	s = SIDE(f, n->side);
	if (s->packets == 0)
		s->packets_high--;
	s->packets--;
	if (s->bytes < n->ip_len)
		s->bytes_high--;
	s->bytes -= n->ip_len;
	return 1;
}

/* The flow that begins with it. */
__noinline int rtt_begin_noted(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *S = SIDE(f, p->syn.side), *O = SIDE(f, p->syn.side ^ 1);

	S->packets = 1;
	S->bytes = p->syn.ip_len;
	f->flags &= ~(CLIENT | HS_MASK);
	if (p->syn.bits & NOTED_ACK) {
		f->flags |= ((p->syn.side ^ 1) & 1) | HS_SYN_RCVD << HS_SHIFT;
		if (p->syn.bits & NOTED_AGAIN)
			f->flags |= HS_VOID_CLIENT;
		O->ack = p->syn.ack;
		O->flags |= HAS_ACK;
		S->ack = p->syn.end;
	} else {
		f->flags |= (p->syn.side & 1) | HS_SYN_SENT << HS_SHIFT;
		if (p->syn.bits & NOTED_AGAIN)
			f->flags |= HS_VOID_SERVER;
		f->req_id = p->syn.seq;
		S->handshake = p->syn.seq;
		S->flags |= SYN_BEGAN;
	}
	f->hs_at = p->syn.at;
	S->nxt = p->syn.end;
	S->flags |= HAS_NXT;
	if (p->syn.bits & NOTED_TS) {
		S->tsval = p->syn.tsval;
		S->flags |= TS_SEEN | EDGE_SEEN;
	}
	return 0;
}

/* A SYN of other sequence numbers. Anybody can forge one, and its receiver only asks back (RFC 5961,
 * section 4): it begins a connection once the other side, or the handshake's end, says so.
 */
__noinline int rtt_note_syn(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct loss *l = loss_of(f);
	__u8 kind = p->flags & TCP_ACK ? NOTED_ACK : 0;
	struct noted_syn *n;

	count(UNCONFIRMED);
	if (!l)
		return 0;
	n = &l->syn;
	if (f->flags & SYN_NOTED && n->seq == p->seq && n->side == p->d &&
	    (n->bits & NOTED_ACK) == kind && (!kind || n->ack == p->ack)) {
		n->bits |= NOTED_AGAIN;
		return 0;
	}
	n->seq = p->seq;
	n->end = p->seq + 1 + p->len;
	n->at = tick_now(p);
	n->ack = p->ack;
	n->tsval = p->tsval;
	n->ip_len = p->ip_len;
	n->side = p->d;
	n->bits = kind | (p->bits & P_TS ? NOTED_TS : 0);
	f->flags |= SYN_NOTED;
	return 0;
}

/* The handshake is over. Its time is no longer needed: what stands there instead distinguishes a
 * late copy of the SYN from a new one, and a request's age.
 */
static __always_inline void finish_handshake(struct flow *f, __u32 coarse)
{
	set_hs(f, HS_DONE);
	f->hs_at = (__u32)f->req_id << 16 | (coarse & 0xffff);
}

static __always_inline void handshake_sample(struct flow *f, struct rtt_packet *p, __u32 kind,
					     __u32 class)
{
	__u32 rtt = age_of(p, f->hs_at);

	if (rtt == NOTHING)
		return;
	if (class == CLEAN)
		SIDE(f, p->d)->handshake = rtt;
	rtt_sample(f, p, kind, class, rtt);
}

/* What its segments say of their sender from its SYN on. */
static __always_inline void begin_side(struct side *D, const struct rtt_packet *p)
{
	D->nxt = p->seq + 1 + p->len;
	D->flags |= HAS_NXT | HAS_WIN;
	D->win = p->win;
	if (p->bits & P_TS) {
		D->tsval = p->tsval;
		D->flags |= TS_SEEN | EDGE_SEEN;
	}
}

static __always_inline void syn_again(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d);

	BUMP(f, p->d, retransmitted);
	D->win = p->win;
	D->flags |= HAS_WIN;
}

/* Step 3: SYN (RFC 9293, section 3.5). */
__noinline int rtt_tcp_syn(struct flow *f, struct rtt_packet *p, bool fresh)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	bool from_client = (f->flags & CLIENT) == (p->d & 1);
	__u32 hs = hs_of(f), end = p->seq + 1 + p->len;

	if (fresh) {
		f->flags = (f->flags & ~CLIENT) | (p->d & 1);
		set_hs(f, HS_SYN_SENT);
		f->req_id = p->seq;
		D->handshake = p->seq;
		D->flags |= SYN_BEGAN;
		f->hs_at = tick_now(p);
	} else if (from_client && same_isn(f, D, p->seq)) {
		f->flags |= HS_VOID_SERVER;
		syn_again(f, p);
		return 0;
	} else if (hs == HS_SYN_SENT && !from_client && !(D->flags & HAS_NXT)) {
		/* Both open (RFC 9293, figure 7): of one of the SYNs only the time is kept. */
		f->flags |= HS_VOID_CLIENT;
	} else if (hs == HS_SYN_SENT && !from_client && D->nxt == end) {
		syn_again(f, p);
		return 0;
	} else if (hs == HS_SYN_RCVD && from_client && !(D->flags & HAS_NXT) &&
		   (__s32)(D->ack - p->seq) > 0 && (__s32)(D->ack - end) <= 0) {
		/* Captured after its answer. */
		f->req_id = p->seq;
		D->flags |= SYN_BEGAN;
	} else {
		rtt_note_syn(f, p);
		return 0;
	}
	begin_side(D, p);
	return 0;
}

/* And SYN-ACK. */
__noinline int rtt_tcp_syn_ack(struct flow *f, struct rtt_packet *p, bool fresh)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	__u32 hs = hs_of(f), end = p->seq + 1 + p->len;

	if (fresh) {
		f->flags = (f->flags & ~CLIENT) | ((p->d ^ 1) & 1);
	} else if ((f->flags & CLIENT) == (p->d & 1)) {
		if (!same_isn(f, D, p->seq) || !(E->flags & HAS_NXT)) {
			rtt_note_syn(f, p);
			return 0;
		}
		/* The answer to a SYN that crossed its own. */
		E->ack = p->ack;
		E->flags |= HAS_ACK;
		D->win = p->win;
		D->flags |= HAS_WIN;
		return 0;
	} else {
		if (hs == HS_SYN_RCVD && D->ack == end) {
			f->flags |= HS_VOID_CLIENT;
			syn_again(f, p);
			return 0;
		}
		/* The handshake's last step was lost behind this point. */
		if (hs == HS_DONE && D->nxt - end <= FAR) {
			syn_again(f, p);
			return 0;
		}
		/* Data in the SYN (RFC 7413) may be acknowledged, or refused. */
		if (hs != HS_SYN_SENT || (__s32)(p->ack - E->handshake) <= 0 ||
		    (__s32)(p->ack - E->nxt) > 0) {
			rtt_note_syn(f, p);
			return 0;
		}
		if (!(f->flags & HS_VOID_SERVER))
			handshake_sample(f, p, KIND_HANDSHAKE_SERVER, CLEAN);
	}
	set_hs(f, HS_SYN_RCVD);
	E->handshake = 0;
	E->ack = p->ack;
	E->flags |= HAS_ACK;
	/* What ends the handshake; until then nothing of this side has been acknowledged. */
	D->ack = end;
	D->flags &= ~HAS_ACK;
	f->hs_at = tick_now(p);
	begin_side(D, p);
	return 0;
}

/* The client's first segment after the SYN-ACK ends the handshake, whatever it says. */
__noinline int rtt_handshake_end(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	/* Of more than the SYN-ACK it is an answer to what the server sent later. With data it
	 * waited for the application; for longer than acknowledgements are held back, one
	 * before it was missed.
	 */
	if (p->ack == SIDE(f, p->d ^ 1)->ack && !(f->flags & HS_VOID_CLIENT)) {
		__u32 age = ticks_between(f->hs_at, tick_now(p));

		if (p->len == 0 || age < LONGEST_HELD)
			handshake_sample(f, p, KIND_HANDSHAKE_CLIENT,
					 p->len && age >= DELAYED ? DELAYED_ACK : CLEAN);
	}
	finish_handshake(f, p->coarse);
	return 0;
}

/* Whether an acknowledgement that data carries comes too late to be the first. Its receiver must
 * have sent one before, without data (RFC 1122, section 4.2.3.2), that was lost. Or this one was
 * lost, and is sent again. If such times go on, the path has become that long.
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
	} else if (E->mode == MODE_TS && advance && !p->bad_options) {
		/* Something on the way has taken the timestamps off. */
		void_slots(E, VOIDED);
		SIDE(f, p->d)->flags &= ~TS_SEEN;
		return 0;
	} else if (E->mode == MODE_SEQ && advance) {
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
	else if (p->len == 0 && rtt_held_back(f, p, rtt))
		class = DELAYED_ACK;
	E->sampled_at = tick_now(p) >> SAMPLED_BITS;
	rtt_sample(f, p, kind, class, rtt);
	return 0;
}

/* A keepalive (RFC 9293, section 3.8.4): where all is acknowledged, its receiver must answer
 * at once. What it answers is not known if there were two (Karn's rule): an answer may echo the
 * timestamp of what was sent before them.
 */
__noinline int rtt_keepalive(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);

	if (!(D->flags & HAS_ACK) || D->ack != D->nxt || D->flags & RECOVERING ||
	    (E->flags & HAS_WIN && E->win == 0))
		return 0;
	if (D->probed) {
		void_sequence(D);
		return 0;
	}
	D->probed = 1;
	return rtt_arm(f, p, MODE_SEQ, D->nxt);
}

/* The answer to a keepalive: an acknowledgement of nothing new, which is neither an update of
 * the window nor a keepalive itself.
 */
__noinline int rtt_match_keepalive(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	__u32 rtt;

	if (p->len || p->flags & TCP_FIN || p->ack != E->nxt || !(D->flags & HAS_NXT) ||
	    p->seq != D->nxt || !(D->flags & HAS_WIN) || p->win != D->win)
		return 0;
	E->probed = 0;
	if (E->mode != MODE_SEQ)
		return 0;
	rtt = match_seq(E, p);
	if (rtt == NOTHING)
		return 0;
	E->sampled_at = tick_now(p) >> SAMPLED_BITS;
	rtt_sample(f, p, KIND_SEQUENCE, CLEAN, rtt);
	return 0;
}

/* What an acknowledgement names beyond all that was seen may have been captured behind it. */
static __always_inline bool is_late(const struct side *s, const struct loss *l, __u32 d, __u32 now)
{
	return s->flags & HOLE && l->late_hole[d & 1] &&
	       ticks_between(l->side[d & 1].hole_at, now) < HOLE_FILL;
}

__noinline int rtt_expect_late(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *E = SIDE(f, p->d ^ 1);
	__u32 e = (p->d ^ 1) & 1, now = tick_now(p);
	struct loss *l = loss_of(f);

	if (!l)
		return 0;
	if (!is_late(E, l, e, now))
		l->side[e].hole_lo = E->nxt;
	l->side[e].hole_hi = p->ack;
	l->side[e].hole_at = now;
	l->late_hole[e] = 1;
	E->flags |= HOLE;
	return 0;
}

/* Step 4: what this packet acknowledges of the other side's data. */
static __always_inline void tcp_ack(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool known = E->flags & HAS_ACK, unseen, advance;
	__s32 ahead = E->flags & HAS_NXT ? E->nxt - p->ack : 0; /* outstanding after it */

	unseen = ahead < 0;
	if (unseen) {
		if ((__u32)-ahead > FAR) {
			count(UNCONFIRMED);
			return;
		}
		/* The data went another way, or comes from another queue in a moment. */
		count(ACK_UNSEEN);
		rtt_expect_late(f, p);
		E->nxt = p->ack;
		void_sequence(E);
	}
	advance = known ? (__s32)(p->ack - E->ack) > 0 : E->flags & HAS_NXT;
	if (ahead > 0) {
		bool duplicate = p->len == 0 && !(p->flags & TCP_FIN) && known &&
				 p->ack == E->ack && D->flags & HAS_WIN && D->win == p->win;

		if (duplicate)
			BUMP(f, p->d, duplicate_acks);
		if (duplicate || p->bits & P_SACK) {
			enter_recovery(E, E->nxt);
			E->flags |= TOLD;
		}
	}
	if (!unseen && E->count)
		rtt_match_echo(f, p, advance);
	if (E->probed && !unseen && !advance)
		rtt_match_keepalive(f, p);
	if (advance) {
		E->probed = 0;
		if ((__s32)(E->recover - p->ack) <= 0)
			E->flags &= ~(RECOVERING | TOLD);
		if (E->flags & HOLE) {
			struct loss *l = loss_of(f);
			__u32 e = (p->d ^ 1) & 1;

			if (l && !l->late_hole[e] && (__s32)(l->side[e].hole_hi - p->ack) <= 0)
				E->flags &= ~HOLE;
		}
		/* All has arrived: no other echo will be of what is left. */
		if (E->flags & HAS_NXT && E->nxt == p->ack) {
			E->flight = 0;
			if (E->mode == MODE_TS)
				void_slots(E, COUNTERS);
		}
	}
	if (advance || !known) {
		E->ack = p->ack;
		E->flags |= HAS_ACK;
	}
}

/* What a segment with data, or a FIN, is to the sequence so far. */
enum data { D_NONE, D_LATE, D_PROBE, D_OTHER, D_NEW }; /* late: acknowledged before it passed */

/* Sent before, or not in order: Karn's rule, and what it says of losses. */
__noinline __u32 rtt_out_of_order(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	__u32 end = p->seq + p->len + !!(p->flags & TCP_FIN), d = p->d & 1;
	struct loss *all = loss_of(f);
	struct loss_side *l = all ? &all->side[d] : NULL;
	bool ahead = (__s32)(p->seq - D->nxt) > 0, old = (__s32)(end - D->nxt) <= 0;
	bool fills = !ahead && old && l && D->flags & HOLE && (__s32)(l->hole_lo - p->seq) <= 0 &&
		     (__s32)(end - l->hole_hi) <= 0;
	bool late = fills && is_late(D, all, d, tick_now(p));

	if (!late)
		void_sequence(D);
	if (ahead) {
		D->flags &= ~AWAY;
		if (l) {
			l->gaps++;
			if (!(D->flags & HOLE) || all->late_hole[d]) {
				l->hole_lo = D->nxt;
				l->hole_at = tick_now(p);
				D->flags |= HOLE;
				all->late_hole[d] = 0;
			}
			l->hole_hi = p->seq;
		}
		D->nxt = end;
	} else if (old) {
		__u32 limit = HOLE_FILL;

		if (f->side[0].handshake && f->side[1].handshake)
			limit = (f->side[0].handshake + f->side[1].handshake) / 4 * 3;
		if (!late && fills && ticks_between(l->hole_at, tick_now(p)) < limit)
			l->reordered++;
		else if (!late && l)
			l->retransmitted++;
		if (fills && end == l->hole_hi)
			D->flags &= ~HOLE;
		else if (fills && p->seq == l->hole_lo)
			l->hole_lo = end;
		if (late)
			return D_LATE;
	} else {
		if (l)
			l->retransmitted++;
		D->nxt = end;
	}
	enter_recovery(D, D->nxt);
	return D_OTHER;
}

/* Looks like data that was sent before, but asks whether the other side is there (RFC 9293, section
 * 3.8.4).
 */
static __always_inline bool is_keepalive(const struct side *s, const struct rtt_packet *p)
{
	return s->flags & HAS_NXT && p->len <= 1 && p->seq == s->nxt - 1 && !(p->flags & TCP_FIN);
}

/* Step 6. */
static __always_inline __u32 tcp_data(struct flow *f, struct rtt_packet *p)
{
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool fin = p->flags & TCP_FIN;

	if (is_keepalive(D, p))
		return D_NONE;
	if (D->probed) {
		/* What comes now may answer either. */
		D->probed = 0;
		void_sequence(D);
	}
	if (fin)
		D->flags |= FIN_SEEN;
	if (D->flags & HAS_NXT && p->seq != D->nxt)
		return rtt_out_of_order(f, p);
	D->flags = (D->flags & ~AWAY) | HAS_NXT;
	D->nxt = p->seq + p->len + fin;
	/* A probe of a window of zero: its answer waits for the window. */
	return E->flags & HAS_WIN && E->win == 0 && p->len == 1 ? D_PROBE : D_NEW;
}

enum value { V_USED, V_UNUSED, V_SLOW }; /* of a TSval: slow: its clock hardly ticks within a round trip */

/* Step 7: follows a side's TSvals. A pure acknowledgement does not use its TSval up: it is
 * echoed only by what the application sends next.
 */
__noinline __u32 rtt_timestamp(struct flow *f, struct rtt_packet *p, __u32 data)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	__u32 steps = p->tsval - D->tsval, value = V_USED;

	if (!(D->flags & TS_SEEN)) {
		D->flags |= TS_SEEN;
		D->tsval = p->tsval;
		return V_USED;
	}
	if ((__s32)steps > 0) {
		bool slow = is_slower(D, p, steps);

		delay_variation(D, p, steps);
		D->tsval = p->tsval;
		if (D->flags & EDGE_SEEN)
			value = slow ? V_SLOW : V_UNUSED;
		D->flags |= EDGE_SEEN;
	} else if (steps == 0 && D->flags & UNUSED) {
		value = V_UNUSED;
	}
	D->flags &= ~UNUSED;
	if (value != V_USED && (data == D_NONE || data == D_LATE))
		D->flags |= UNUSED;
	return value;
}

/* Arms a TSval when data first carries it; else the sequence number of new data, by Karn's
 * rule, unless TSvals wait.
 */
static __always_inline void time_data(struct flow *f, struct rtt_packet *p, __u32 data, __u32 value)
{
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool by_number = data == D_NEW && !(D->flags & RECOVERING);
	bool waits = D->mode == MODE_TS && D->count;
	__u32 flight = D->flight + (p->segs > 1 ? 2 : 1);

	D->flight = flight < MANY ? flight : MANY;
	if (value != V_USED && E->flags & TS_SEEN && (value == V_UNUSED || !by_number || waits))
		rtt_arm(f, p, MODE_TS, p->tsval);
	else if (by_number && !waits)
		rtt_arm(f, p, MODE_SEQ, D->nxt);
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
	__u32 data = D_NONE, value = V_USED, far, went_on = 0;

	if (p->flags & TCP_RST) {
		/* RFC 5961, section 3.2: nobody believes one far from what its side has sent. */
		if (far_of(D, p) != NEAR_BY) {
			count(UNCONFIRMED);
			return;
		}
		close_flow(f, (D->flags | E->flags) & FIN_SEEN ? R_FIN : R_RESET);
		return;
	}
	if (p->flags & TCP_SYN) {
		if (p->flags & TCP_ACK)
			rtt_tcp_syn_ack(f, p, fresh);
		else
			rtt_tcp_syn(f, p, fresh);
		return;
	}
	if (p->flags & TCP_ACK && E->flags & AWAY)
		went_on = rtt_resynchronise(f, p);
	if (went_on == 2)
		rtt_sample_away(f, p);
	if (!went_on) {
		if (p->len || p->flags & TCP_FIN) {
			far = far_of(D, p);
			if (far != NEAR_BY) {
				rtt_note_away(f, p, far);
				return;
			}
		}
		if (p->flags & TCP_ACK) {
			if (hs_of(f) == HS_SYN_RCVD && (f->flags & CLIENT) == (p->d & 1))
				rtt_handshake_end(f, p);
			tcp_ack(f, p);
		}
	}
	if (p->win == 0 && !(p->flags & TCP_FIN))
		BUMP(f, p->d, zero_windows);
	D->win = p->win;
	D->flags |= HAS_WIN;

	if (is_keepalive(D, p))
		rtt_keepalive(f, p);
	if (p->len || p->flags & TCP_FIN)
		data = tcp_data(f, p);
	/* Most segments need none of what is called from here on. */
	if (p->bits & P_TS &&
	    ((__s32)(p->tsval - D->tsval) > 0 || !(D->flags & TS_SEEN) || D->flags & UNUSED))
		value = rtt_timestamp(f, p, data);
	if (data >= D_OTHER)
		time_data(f, p, data, value);
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
			s->flags &= ~(HOLE | AWAY);
			set_period(s, PERIOD_FRESH);
		}
	}
	f->flags |= HS_VOID_SERVER | HS_VOID_CLIENT;
	f->flags &= ~SYN_NOTED;
	if (f->key.protocol == IPPROTO_TCP)
		f->flags &= ~(PENDING | PENDING_DNS);
	else {
		f->flags &= ~SPIN_EDGE;
		f->req_id &= 0xff00;
	}
	return 0;
}

#endif
