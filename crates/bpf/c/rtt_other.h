/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What is not TCP: echo, DNS and heartbeat (rtt_requests.h), QUIC's handshake
 * (RFC 9000) and spin bit (section 17.4), and the time from ingress to egress.
 */
#ifndef SONDE_RTT_OTHER_H
#define SONDE_RTT_OTHER_H

#include "rtt_requests.h"

#define SPIN_RUN 16    /* alternating edges before the bit is believed */
#define SPIN_VIOLATIONS 8
#define QUIC_FLIGHT TICKS(50000000ULL) /* its datagrams follow each other sooner */
#define SPIN_ENOUGH 32 /* packets without an edge that make a bit constant */

/* `limit`: beyond it something was lost and sent again. */
static __always_inline void quic_sample(struct flow *f, struct rtt_packet *p, __u32 limit)
{
	__u32 rtt = age_of(p, f->hs_at);

	if (rtt > limit)
		return;
	SIDE(f, p->d)->handshake = rtt;
	rtt_sample(f, p, KIND_QUIC, CLEAN, rtt);
}

/* The client's first packet that only the server's handshake makes possible. */
static __noinline int quic_answer(struct flow *f, struct rtt_packet *p)
{
	__u32 server = SIDE(f, p->d ^ 1)->handshake;

	if (hs_of(f) != HS_SYN_RCVD)
		return 0;
	set_hs(f, HS_DONE);
	if (server && !(f->flags & HS_VOID_CLIENT))
		quic_sample(f, p, 3 * server + QUIC_FLIGHT);
	return 0;
}

__noinline int rtt_quic_long(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	bool from_client = (f->flags & CLIENT) == (p->d & 1);
	__u32 hs = hs_of(f);

	if (p->what == W_QUIC_RESTART) {
		if (hs == HS_SYN_SENT) {
			set_hs(f, HS_NONE);
			f->flags &= ~(HS_VOID_SERVER | EARLY);
		}
	} else if (from_client) {
		if (p->what == W_QUIC_HANDSHAKE) {
			quic_answer(f, p);
		} else if (p->what == W_QUIC_INITIAL && (hs == HS_NONE ||
			   (hs == HS_SYN_SENT && f->flags & EARLY))) {
			set_hs(f, HS_SYN_SENT);
			f->flags &= ~EARLY;
			f->hs_at = tick_now(p);
		} else if (p->what == W_QUIC_0RTT && hs == HS_NONE) {
			/* It may have overtaken the Initial, or hide one that shares its datagram. */
			set_hs(f, HS_SYN_SENT);
			f->flags |= EARLY;
			f->hs_at = tick_now(p);
		} else if (p->what == W_QUIC_INITIAL && hs == HS_SYN_SENT &&
			   ticks_between(f->hs_at, tick_now(p)) > QUIC_FLIGHT) {
			/* Sent again; sooner it is the same flight's second datagram. */
			f->flags |= HS_VOID_SERVER;
		}
	} else if (hs == HS_SYN_SENT) {
		if (!(f->flags & HS_VOID_SERVER))
			quic_sample(f, p, MAX_RTT);
		set_hs(f, HS_SYN_RCVD);
		f->hs_at = tick_now(p);
	}
	return 0;
}

__noinline int rtt_quic_spin(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d);
	bool value = p->bits & P_SPIN, first = !(f->flags & SPIN_EDGE), near;
	__u32 run = f->req_id & 0xff, most = f->req_id >> 8, edges, then;
	/* Violations and the last edge's coarse time are the flow's; they stand in side 0. */
	__u32 *violations = &f->side[0].nxt, *edge_coarse = &f->side[0].recover;

	if (D->spin_shorts < SPIN_ENOUGH)
		D->spin_shorts++;
	if (!(D->flags & SPIN_SEEN)) {
		D->flags |= value ? SPIN_SEEN | SPIN_VALUE : SPIN_SEEN;
		return 0;
	}
	if (!!(D->flags & SPIN_VALUE) == value)
		return 0;
	D->flags ^= SPIN_VALUE;
	D->spin_edges++;
	then = f->req_at;
	near = (__u16)(p->coarse - *edge_coarse) <= RECENT;
	f->req_at = tick_now(p);
	*edge_coarse = p->coarse;
	if (first) {
		f->flags |= SPIN_EDGE;
	} else if (!!(f->flags & SPIN_LAST) != (p->d & 1)) {
		run = run < 255 ? run + 1 : 255;
	} else {
		run = 0;
		if (*violations < 0xffff)
			++*violations;
	}
	f->flags = (f->flags & ~SPIN_LAST) | (p->d & 1 ? SPIN_LAST : 0);
	if (first)
		return 0;
	if (run > most)
		most = run;
	f->req_id = most << 8 | run;
	edges = f->side[0].spin_edges + f->side[1].spin_edges;
	if (*violations >= SPIN_VIOLATIONS && !(most >= SPIN_RUN && *violations * 8 <= edges))
		f->flags |= SPIN_RANDOM;
	if (f->flags & SPIN_RANDOM || run < SPIN_RUN)
		return 0;
	if (!near) {
		count(STALE);
		return 0;
	}
	then = age_of(p, then);
	if (then != NOTHING)
		rtt_sample(f, p, KIND_SPIN, CLEAN, then);
	return 0;
}

/* Residence: a packet that is distinct from others is noted as it comes in, and timed as it
 * goes out of another interface. Which flow entry: that of the interface it leaves by.
 */
static __noinline int transit(struct flow *f, struct rtt_packet *p)
{
	__u64 h = seed[1] ^ (p->what == W_TCP ? (__u64)p->seq << 32 | p->tsval :
						(__u64)p->dns_id << 32 | p->id);
	struct side *s = &f->side[1];
	struct transit *t;
	__u32 at, time;

	if (p->what == W_TCP ? p->len == 0 : p->what == W_OTHER || p->what >= W_QUIC_INITIAL)
		return 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		h = mix(h ^ p->key.w[i]) + 1;
	/* The ports, the protocol and the direction; neither VLAN nor point. */
	h = mix(h ^ (p->key.w[4] & 0x00ff0000ffffffffULL) ^ (__u64)p->d << 63);
	at = h & (TRANSIT - 1);
	t = bpf_map_lookup_elem(&rtt_transit, &at);
	if (!t)
		return 0;
	if (!(p->bits & P_EGRESS)) {
		t->tick = tick_now(p);
		t->check = h >> 32;
		return 0;
	}
	if (t->check != (__u32)(h >> 32))
		return 0;
	t->check = 0;
	time = ticks_between(t->tick, tick_now(p));
	if (time > MAX_RTT)
		return 0;
	s->timed++;
	add48(&s->timed_sum, &s->timed_sum_high, time);
	if (time > s->timed_max)
		s->timed_max = time;
	return 0;
}

/* Not inlined: its stack is not that of what TCP calls. */
__noinline int rtt_other_packet(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	switch (p->what) {
	case W_ECHO:
	case W_DNS:
	case W_HEARTBEAT:
		rtt_ask(f, p);
		break;
	case W_ECHO_REPLY:
		take_answer(f, p, KIND_ECHO);
		break;
	case W_DNS_RESPONSE:
		take_answer(f, p, KIND_DNS);
		break;
	case W_HEARTBEAT_ACK:
		take_answer(f, p, KIND_HEARTBEAT);
		break;
	case W_QUIC_INITIAL:
	case W_QUIC_0RTT:
	case W_QUIC_HANDSHAKE:
	case W_QUIC_RESTART:
		rtt_quic_long(f, p);
		break;
	case W_QUIC_SHORT:
		if ((f->flags & CLIENT) == (p->d & 1))
			quic_answer(f, p);
		rtt_quic_spin(f, p);
		break;
	}
	return 0;
}

#endif
