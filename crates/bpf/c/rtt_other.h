/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What is not TCP: echo, DNS and heartbeat by their identifiers, QUIC's handshake
 * (RFC 9000) and spin bit (section 17.4), and the time from ingress to egress.
 */
#ifndef SONDE_RTT_OTHER_H
#define SONDE_RTT_OTHER_H

#include "rtt_tcp.h"

#define SPIN_RUN 16    /* alternating edges before the bit is believed */
#define SPIN_VIOLATIONS 8
#define QUIC_PATIENCE TICKS(50000000ULL)

/* A request waits for its answer; a repeated identifier could be either's (Karn). */
__noinline int rtt_arm_id(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);

	if (holds_id(D, p->id)) {
		count(DUPLICATE_IDS);
		rtt_match_id(f, p, p->d);
		return 0;
	}
	return rtt_arm(f, p, MODE_ID, p->id);
}

static __always_inline void answer_id(struct flow *f, struct rtt_packet *p, __u32 kind)
{
	__u32 rtt = rtt_match_id(f, p, p->d ^ 1);

	if (rtt != NOTHING)
		rtt_sample(f, p, kind, CLEAN, rtt);
}

static __always_inline void quic_sample(struct flow *f, struct rtt_packet *p, __u32 rtt)
{
	if (rtt > MAX_RTT) {
		count(STALE);
		return;
	}
	SIDE(f, p->d)->handshake = rtt;
	rtt_sample(f, p, KIND_QUIC, CLEAN, rtt);
}

__noinline int rtt_quic_long(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	__u32 hs = hs_of(f), rtt;
	bool from_client;

	if (!(f->flags & QUIC)) {
		f->flags = (f->flags & ~CLIENT) | QUIC | (p->d & 1);
	}
	from_client = (f->flags & CLIENT) == (p->d & 1);
	if (p->what == W_QUIC_RESTART) {
		if (!from_client) {
			set_hs(f, HS_NONE);
			f->flags &= ~HS_VOID_SERVER;
		}
		return 0;
	}
	if (from_client) {
		if (p->what == W_QUIC_INITIAL && hs == HS_NONE) {
			set_hs(f, HS_SYN_SENT);
			f->hs_at = tick_now(p);
		} else if (p->what == W_QUIC_INITIAL && hs == HS_SYN_SENT) {
			f->flags |= HS_VOID_SERVER;
		}
	} else if (hs == HS_SYN_SENT) {
		rtt = ticks_between(f->hs_at, tick_now(p));
		f->hs_at = tick_now(p);
		set_hs(f, HS_SYN_RCVD);
		if (!(f->flags & HS_VOID_SERVER))
			quic_sample(f, p, rtt);
	}
	return 0;
}

/* The client's first packet after it had the server's: of the handshake, or short. */
__noinline int rtt_quic_client_done(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	__u32 server = SIDE(f, p->d ^ 1)->handshake;
	__u32 rtt = ticks_between(f->hs_at, tick_now(p));

	set_hs(f, HS_DONE);
	/* The server sent again meanwhile, as far as one can tell. */
	if (rtt > 3 * server + QUIC_PATIENCE)
		return 0;
	quic_sample(f, p, rtt);
	return 0;
}

__noinline int rtt_quic_spin(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	bool value = p->bits & P_SPIN;
	__u32 run = f->req_id & 0xff, most = f->req_id >> 8, edges, violations, rtt;
	bool first = !(f->flags & SPIN_EDGE);

	if (D->spin_shorts != ~0U)
		D->spin_shorts++;
	if (!(D->flags & SPIN_SEEN)) {
		D->flags |= value ? SPIN_SEEN | SPIN_VALUE : SPIN_SEEN;
		return 0;
	}
	if (!!(D->flags & SPIN_VALUE) == value)
		return 0;
	D->flags ^= SPIN_VALUE;
	D->spin_edges++;
	rtt = ticks_between(f->req_at, tick_now(p));
	f->req_at = tick_now(p);
	if (!first) {
		if (!!(f->flags & SPIN_LAST) != (p->d & 1)) {
			run = run < 255 ? run + 1 : 255;
		} else {
			run = 0;
			f->side[0].nxt++; /* violations, which are the flow's */
		}
	}
	if (run > most)
		most = run;
	f->req_id = most << 8 | run;
	f->flags = (f->flags & ~SPIN_LAST) | SPIN_EDGE | (p->d & 1 ? SPIN_LAST : 0);
	edges = f->side[0].spin_edges + f->side[1].spin_edges;
	violations = f->side[0].nxt;
	if (violations >= SPIN_VIOLATIONS && !(most >= SPIN_RUN && violations * 8 <= edges))
		f->flags |= SPIN_RANDOM;
	if (!first && run >= SPIN_RUN && !(f->flags & SPIN_RANDOM)) {
		if (rtt <= MAX_RTT)
			rtt_sample(f, p, KIND_SPIN, CLEAN, rtt);
		else
			count(STALE);
	}
	return 0;
}

static __always_inline void other_packet(struct flow *f, struct rtt_packet *p)
{
	switch (p->what) {
	case W_ECHO:
	case W_DNS:
	case W_HEARTBEAT:
		rtt_arm_id(f, p);
		break;
	case W_ECHO_REPLY:
		answer_id(f, p, KIND_ECHO);
		break;
	case W_DNS_RESPONSE:
		answer_id(f, p, KIND_DNS);
		break;
	case W_HEARTBEAT_ACK:
		answer_id(f, p, KIND_HEARTBEAT);
		break;
	case W_QUIC_INITIAL:
	case W_QUIC_0RTT:
	case W_QUIC_RESTART:
		rtt_quic_long(f, p);
		break;
	case W_QUIC_HANDSHAKE:
	case W_QUIC_SHORT:
		if (p->what == W_QUIC_HANDSHAKE)
			rtt_quic_long(f, p);
		if (!(f->flags & QUIC))
			break;
		if (hs_of(f) == HS_SYN_RCVD && (f->flags & CLIENT) == (p->d & 1))
			rtt_quic_client_done(f, p);
		if (p->what == W_QUIC_SHORT && !(f->flags & SPIN_RANDOM))
			rtt_quic_spin(f, p);
		break;
	}
}

#endif
