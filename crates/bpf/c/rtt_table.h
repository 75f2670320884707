/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The flow table: buckets of eight flows, a lock each.
 *
 * The tags of a bucket fill one cache line, and so a flow is found with two misses. A full bucket
 * gives up a closed flow, an idle one, or one that nobody has answered. So a flood of connection
 * requests pushes out its own, never an established flow.
 */
#ifndef SONDE_RTT_TABLE_H
#define SONDE_RTT_TABLE_H

#include "rtt_samples.h"

#define IDLE_CLOSED COARSE(5000000000ULL)
#define IDLE_ONE_WAY COARSE(10000000000ULL)
#define IDLE_DATAGRAM COARSE(30000000000ULL)
#define IDLE_TCP COARSE(300000000000ULL)
#define NO_WAY WAYS

static __always_inline __u64 flow_hash(const __u64 *w)
{
	__u64 h = seed[0];

#pragma unroll
	for (int i = 0; i < 5; i++)
		h = mix(h ^ mix(w[i] ^ seed[1])) + 1;
	return h;
}

static __always_inline bool try_lock(struct bucket *b)
{
	__u32 old = *(volatile __u32 *)&b->lock;

	return !(old & 1) && __sync_val_compare_and_swap(&b->lock, old, old + 1) == old;
}

/* Not inlined: hardly ever called, and long to prove. */
__noinline int rtt_lock(struct bucket *b)
{
	if (!b)
		return 0;
	for (int i = 0; i < LOCK_TRIES; i++)
		if (try_lock(b))
			return 1;
	return 0;
}

static __always_inline bool lock(struct bucket *b)
{
	return try_lock(b) || rtt_lock(b);
}

static __always_inline void unlock(struct bucket *b)
{
#ifdef __TARGET_ARCH_x86
	/* Stores are never reordered there: a plain one, after all others, will do. */
	asm volatile("" ::: "memory");
	*(volatile __u32 *)&b->lock = b->lock + 1;
#else
	__sync_fetch_and_add(&b->lock, 1);
#endif
}

static __always_inline struct flow *flow_at(__u32 bucket, __u32 way)
{
	__u32 i = bucket * WAYS + (way & (WAYS - 1));

	return bpf_map_lookup_elem(&rtt_flows, &i);
}

static __always_inline bool same_key(const struct flow *f, const struct rtt_packet *p)
{
	return ((f->key.w[0] ^ p->key.w[0]) | (f->key.w[1] ^ p->key.w[1]) |
		(f->key.w[2] ^ p->key.w[2]) | (f->key.w[3] ^ p->key.w[3]) |
		(f->key.w[4] ^ p->key.w[4])) == 0;
}

static __always_inline bool two_way(const struct flow *f)
{
	return (f->side[0].packets | f->side[0].packets_high) &&
	       (f->side[1].packets | f->side[1].packets_high);
}

static __always_inline __u32 time_out(const struct flow *f)
{
	if (f->flags & CLOSED)
		return IDLE_CLOSED;
	if (!two_way(f))
		return IDLE_ONE_WAY;
	return f->key.protocol == IPPROTO_TCP ? IDLE_TCP : IDLE_DATAGRAM;
}

/* Coarse units since the last packet, or the close; 0 when the clock stepped back. */
static __always_inline __u32 idle_for(const struct flow *f, __u32 coarse)
{
	__s32 idle = coarse - f->last;

	return idle > 0 ? idle : 0;
}

static __always_inline bool is_idle(const struct flow *f, __u32 coarse)
{
	__u32 idle = idle_for(f, coarse);

	/* No time-out is shorter: most packets need no more than this. */
	return idle > IDLE_CLOSED && idle > time_out(f);
}

static __always_inline __u32 reason_of(const struct flow *f)
{
	return (f->flags & REASON_MASK) >> REASON_SHIFT;
}

/* TCP says that it is over; the entry stays for stragglers. The first reason holds. */
static __always_inline void close_flow(struct flow *f, enum reason reason)
{
	if (!(f->flags & CLOSED))
		f->flags |= CLOSED | reason << REASON_SHIFT;
}

static __always_inline void leave_group(__u32 at)
{
	struct group *g;

	if (at < 2) /* none, or the common one */
		return;
	at--;
	g = bpf_map_lookup_elem(&rtt_groups, &at);
	if (g)
		__sync_fetch_and_add(&g->state, -1);
}

/* The flow's record goes to user space (a closed one keeps its own reason), and what it holds to where it came from. */
__noinline int rtt_end_flow(struct flow *f, __u32 reason)
{
	if (!f)
		return 0;
	struct flow_event *e;
	__u32 i = f->loss;

	count(FLOWS_ENDED);
	e = bpf_ringbuf_reserve(&rtt_ended, sizeof(*e), 0);
	if (e) {
		struct loss *l = NULL;

		if (i) {
			__u32 at = i - 1;

			l = bpf_map_lookup_elem(&rtt_losses, &at);
		}
		__builtin_memcpy(&e->flow, f, sizeof(*f));
		if (l)
			__builtin_memcpy(&e->loss, &l->side, sizeof(e->loss));
		else
			__builtin_memset(&e->loss, 0, sizeof(e->loss));
		e->reason = f->flags & CLOSED ? reason_of(f) : reason;
		e->unused = 0;
		bpf_ringbuf_submit(e, wake(&rtt_ended));
	} else {
		count(FLOWS_LOST);
	}
	give_page(&f->side[0]);
	give_page(&f->side[1]);
	leave_group(f->side[0].group);
	leave_group(f->side[1].group);
	if (i) {
		i--;
		bpf_map_push_elem(&free_losses, &i, 0);
		f->loss = 0;
	}
	return 0;
}

/* Whether the first packet of a flow comes from its client; a SYN knows better. */
static __always_inline bool from_client(const struct rtt_packet *p)
{
	switch (p->what) {
	case W_TCP:
		return bpf_ntohs(p->key.port[(p->d ^ 1) & 1]) < bpf_ntohs(p->key.port[p->d & 1]);
	case W_ECHO_REPLY:
	case W_DNS_RESPONSE:
	case W_HEARTBEAT_ACK:
		return false;
	}
	return true;
}

__noinline int rtt_begin_flow(struct flow *f, const struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	__builtin_memset(f, 0, sizeof(*f));
#pragma unroll
	for (int i = 0; i < 5; i++)
		f->key.w[i] = p->key.w[i];
	f->start = p->coarse;
	f->last = p->coarse;
	f->flags = p->bits & P_IPV4 ? IPV4 : 0;
	f->flags |= (p->d ^ !from_client(p)) & 1;
	if (group_by == BY_DSCP) { /* the only one that the entry does not hold */
		f->side[0].group = rtt_join_group(f, 0, p->tos >> 2);
		f->side[1].group = rtt_join_group(f, 1, p->tos >> 2);
	}
	if (weigh_flows || event_mode >= EVENTS_EVERY) {
		__u32 at = p->index;
		struct marks *m = bpf_map_lookup_elem(&rtt_marks, &at);

		if (m)
			__builtin_memset(m, 0, sizeof(*m));
	}
	count(FLOWS);
	return 0;
}

static __always_inline bool may_begin(const struct rtt_packet *p)
{
	if (p->what == W_TCP)
		return !(p->flags & TCP_RST);
	return p->what != W_OTHER && p->what != W_QUIC_SHORT && p->what != W_QUIC_RESTART;
}

/* A way for a new flow: a free one, or that of a flow that may go. */
static __noinline __u32 make_room(struct bucket *b, __u32 index, __u32 coarse)
{
	__u32 best = NO_WAY, rank = 0, longest = 0;
	struct flow *f;

	for (__u32 i = 0; i < WAYS; i++)
		if (b->tag[i] == 0)
			return i;
	for (__u32 i = 0; i < WAYS; i++) {
		__u32 idle, r;

		f = flow_at(index, i);
		if (!f)
			return NO_WAY;
		idle = idle_for(f, coarse);
		if (f->flags & CLOSED) {
			best = i;
			rank = 3;
			break;
		}
		r = idle > time_out(f) ? 2 : !two_way(f) ? 1 : 0;
		if (r > rank || (r && r == rank && idle > longest)) {
			best = i;
			rank = r;
			longest = idle;
		}
	}
	if (best == NO_WAY)
		return NO_WAY;
	f = flow_at(index, best);
	if (!f)
		return NO_WAY;
	rtt_end_flow(f, rank == 1 ? R_EVICTED : R_IDLE);
	b->tag[best & (WAYS - 1)] = 0;
	return best;
}

/* Ends the idle flows of a bucket, and gives back pages that are empty. */
static __noinline int sweep_bucket(__u32 index, __u32 coarse)
{
	struct bucket *b;

	index &= bucket_mask;
	b = bpf_map_lookup_elem(&rtt_buckets, &index);
	if (!b)
		return 0;
	if ((b->tag[0] | b->tag[1] | b->tag[2] | b->tag[3] | b->tag[4] | b->tag[5] | b->tag[6] |
	     b->tag[7]) == 0)
		return 0;
	if (!lock(b))
		return 0;
	for (__u32 i = 0; i < WAYS; i++) {
		struct flow *f = flow_at(index, i);

		if (!f)
			break;
		if (b->tag[i] == 0)
			continue;
		if (is_idle(f, coarse)) {
			rtt_end_flow(f, R_IDLE);
			b->tag[i] = 0;
			continue;
		}
		for (__u32 d = 0; d < 2; d++) {
			struct side *s = SIDE(f, d);

			if (s->page && s->count == 0)
				give_page(s);
		}
	}
	unlock(b);
	return 0;
}

#endif
