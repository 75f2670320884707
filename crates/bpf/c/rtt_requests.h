/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Echo, DNS over UDP and SCTP heartbeats: requests that wait for their answers, in one table for
 * all flows. An entry is found by the flow and the identifier, so any number may be in flight, and
 * one without an answer blocks no other.
 *
 * A request's own flow is locked, but another flow's may share its set. An entry is taken by
 * comparing and exchanging its word, and who has it writes the rest.
 */
#ifndef SONDE_RTT_REQUESTS_H
#define SONDE_RTT_REQUESTS_H

#include "rtt_tcp.h"

#define TURN_BITS 6                  /* of coarse units: 4.3 s */
#define REQUEST_LIFE (1 << TURN_BITS) /* then its entry may be reused */
#define COPY TICKS(1000000ULL)       /* the same twice within this: a mirror port's copy */
#define AMBIGUOUS 0x80000000U        /* sent again: an answer says nothing about the time */
#define COARSE_OF_WORD 0xffffULL

/* That of the flow, continued by one word. */
static __always_inline __u64 request_hash(const struct rtt_packet *p, __u32 side)
{
	return mix(flow_hash(p->key.w) ^ mix(((__u64)p->id << 1 | (side & 1)) ^ seed[1])) + 1;
}

static __always_inline __u64 request_word(__u64 hash)
{
	return (hash | 1ULL << 63) & ~COARSE_OF_WORD;
}

static __always_inline bool same_request(__u64 a, __u64 b)
{
	return (a ^ b) >> 16 == 0;
}

static __always_inline bool claim(struct request *q, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(&q->word, from, to) == from;
}

/* What waits since before the last turn waits in vain. A clock one unit behind, as those of
 * two processors may be, changes nothing.
 */
static __always_inline void settle(struct asked *a, __u32 coarse)
{
	__u32 turn = coarse >> TURN_BITS, turns = turn - a->turn;

	if (turns == 0 || turns == ~0U)
		return;
	a->unanswered += a->waiting[1];
	if (turns == 1) {
		a->waiting[1] = a->waiting[0];
	} else {
		a->unanswered += a->waiting[0];
		a->waiting[1] = 0;
	}
	a->waiting[0] = 0;
	a->turn = turn;
}

/* Adds to where a request of this time is counted that has no answer yet; one that was given
 * up may still be answered. False: there is none of that time.
 */
static __always_inline bool add_waiting(struct asked *a, __u32 coarse, __s32 n)
{
	__u32 turns = a->turn - (coarse >> TURN_BITS);
	__u32 *waiting = turns == 0 ? &a->waiting[0] : turns == 1 ? &a->waiting[1] : &a->unanswered;

	if (n < 0 && *waiting == 0)
		return false;
	*waiting += n;
	return true;
}

__noinline int rtt_ask(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return 0;
	struct asked *a = &SIDE(f, p->d)->asked;
	__u64 hash = request_hash(p, p->d), word = request_word(hash), old = 0;
	__u32 now = tick_now(p), at = hash & request_mask;
	struct request_set *set = bpf_map_lookup_elem(&rtt_requests, &at);
	struct request *entry = NULL;

	settle(a, p->coarse);
	if (!set)
		return 0;
#pragma unroll
	for (__u32 i = 0; i < REQUEST_WAYS; i++) {
		struct request *q = &set->way[i];
		__u64 held = *(volatile __u64 *)&q->word;
		bool same = same_request(held, word) && q->name == p->dns_id;

		if (held && (__u16)(p->coarse - (__u16)held + 1) <= REQUEST_LIFE + 1) {
			if (!same)
				continue;
			/* Sent again later than that, either may be answered (Karn's rule). */
			if (ticks_between(q->time, now) >= COPY)
				q->time |= AMBIGUOUS;
			count(DUPLICATE_IDS);
			return 0;
		}
		if (same || !entry) {
			entry = q;
			old = held;
		}
	}
	if (!entry || !claim(entry, old, word | (p->coarse & COARSE_OF_WORD))) {
		count(SLOTS_FULL);
		return 0;
	}
	entry->time = now;
	entry->name = p->dns_id;
	a->requests++;
	add_waiting(a, p->coarse, 1);
	count(REQUESTS);
	return 0;
}

/* The round-trip time that this answer ends; NOTHING: none. The caller takes the sample, for
 * the verifier adds up the stacks of all functions that call each other.
 */
__noinline __u32 rtt_answer(struct flow *f, struct rtt_packet *p)
{
	if (!f || !p)
		return NOTHING;
	struct asked *a = &SIDE(f, p->d ^ 1)->asked;
	__u64 hash = request_hash(p, p->d ^ 1), word = request_word(hash), held;
	__u32 at = hash & request_mask, fitting = 0, time;
	struct request_set *set = bpf_map_lookup_elem(&rtt_requests, &at);
	struct request *exact = NULL, *fits = NULL;
	__u16 then;

	settle(a, p->coarse);
	if (!set)
		return NOTHING;
#pragma unroll
	for (__u32 i = 0; i < REQUEST_WAYS; i++) {
		struct request *q = &set->way[i];

		if (!same_request(*(volatile __u64 *)&q->word, word))
			continue;
		if (q->name == p->dns_id) {
			exact = exact ?: q;
		} else if (!q->name || !p->dns_id) {
			fits = q;
			fitting++;
		}
	}
	if (!exact && fitting == 1)
		exact = fits;
	if (!exact)
		return NOTHING;
	held = *(volatile __u64 *)&exact->word;
	time = exact->time;
	then = held;
	if (!same_request(held, word) || !claim(exact, held, 0))
		return NOTHING;
	if (!recent(p->coarse, then)) {
		count(STALE);
		return NOTHING;
	}
	/* Else it is that of an earlier flow with the same key. */
	if (!add_waiting(a, p->coarse - (__s16)((__u16)p->coarse - then), -1))
		return NOTHING;
	a->answered++;
	count(ANSWERED);
	if (time & AMBIGUOUS)
		return NOTHING;
	return age_of(p, time);
}

static __always_inline void take_answer(struct flow *f, struct rtt_packet *p, __u32 kind)
{
	__u32 rtt = rtt_answer(f, p);

	if (rtt != NOTHING)
		rtt_sample(f, p, kind, CLEAN, rtt);
}

#endif
