/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What waits for its echo: the ring of slots of a side. Four are in the flow's entry; a ring
 * that needs more moves to a chain of pages from a common pool.
 *
 * All of it runs under the lock of the flow's bucket. An unmatched slot is never
 * overwritten: the packets that find no room are left out, and counted.
 */
#ifndef SONDE_RTT_SLOTS_H
#define SONDE_RTT_SLOTS_H

#include "rtt_groups.h"

#define SIDE(f, d) (&(f)->side[(d) & 1])

static __always_inline __u64 now_ns(struct rtt_packet *p)
{
	if (!p->now)
		p->now = *(volatile __u64 *)&rtt_test_now ?: bpf_ktime_get_ns();
	return p->now;
}

/* The clock is read where time matters, and there only. */
static __always_inline __u32 tick_now(struct rtt_packet *p)
{
	return TICKS(now_ns(p)) & TICK_MASK;
}

static __always_inline struct page *page_at(__u32 id)
{
	id--;
	return bpf_map_lookup_elem(&rtt_pages, &id);
}

static __always_inline struct slot *slot_in(__u32 id, __u32 at)
{
	struct page *page = page_at(id);

	if (!page)
		return NULL;
	/* Else clang adds before the check, which the verifier refuses. */
	asm volatile("" : "+r"(page));
	return &page->slot[at & (PAGE_SLOTS - 1)];
}

/* A page from the pool: as side.page, 0 when there is none. */
static __always_inline __u32 take_page(void)
{
	__u32 i = take_from(&free_pages, &pages_fresh, page_count);

	if (i == NOTHING)
		return 0;
	__sync_fetch_and_add(&pages_used, 1);
	return i + 1;
}

/* Gives the first page of several back: it is empty, or what it holds is void. */
__noinline int rtt_drop_page(struct side *s)
{
	struct page *page;
	__u32 i;

	if (!s)
		return 0;
	page = page_at(s->page);
	if (!page)
		return 0;
	i = s->page - 1;
	s->page = page->next;
	s->chain.head = 0;
	s->chain.left = PAGE_SLOTS;
	s->chain.pages--;
	bpf_map_push_elem(&free_pages, &i, 0);
	__sync_fetch_and_add(&pages_used, -1);
	return 0;
}

/* One more page behind the last, if there is enough for the others: 1 when there is. */
__noinline int rtt_add_page(struct side *s)
{
	struct page *last;
	__u32 id;

	if (!s || s->chain.pages >= MAX_PAGES ||
	    *(volatile __u32 *)&pages_used >= page_count / 2)
		return 0;
	last = page_at(s->chain.last);
	if (!last)
		return 0;
	id = take_page();
	if (!id)
		return 0;
	if (s->chain.pages == 1)
		s->chain.left = PAGE_SLOTS;
	last->next = id;
	s->chain.last = id;
	s->chain.pages++;
	return 1;
}

/* The side's own slots are full: they move to its first page. 1 when there was one. */
__noinline int rtt_first_page(struct side *s)
{
	struct page *page;
	__u32 id, head;

	if (!s)
		return 0;
	id = take_page();
	page = id ? page_at(id) : NULL;
	if (!page)
		return 0;
	head = s->head;
#pragma unroll
	for (__u32 k = 0; k < SLOTS; k++)
		page->slot[k] = s->slot[(head + k) & (SLOTS - 1)];
	s->page = id;
	s->chain.head = 0;
	s->chain.last = id;
	s->chain.pages = 1;
	return 1;
}

struct seek {
	struct side *s;
	__u32 to;        /* a TSval, an acknowledgement, or now */
	__u32 key, time; /* of the last slot that went */
};

static long drop_pages(__u64 i, struct seek *k)
{
	(void)i;
	if (k->s->chain.pages <= 1)
		return 1;
	rtt_drop_page(k->s);
	return 0;
}

/* Forgets all slots. One page stays: the sweep takes it if it remains empty. */
__noinline int rtt_void_slots(struct side *s, __u32 why)
{
	if (!s)
		return 0;
	if (why < COUNTERS)
		count_n(why, s->count);
	if (s->page) {
		struct seek k = { .s = s };

		if (s->chain.pages > 1)
			bpf_loop(MAX_PAGES, drop_pages, &k, 0);
		s->chain.head = 0;
	}
	s->count = 0;
	s->head = 0;
	return 0;
}

/* `why`: the counter of those that go; COUNTERS: none. */
static __always_inline void void_slots(struct side *s, enum counter why)
{
	if (s->count)
		rtt_void_slots(s, why);
}

/* Back to its own slots, which are empty. */
static __always_inline void give_page(struct side *s)
{
	__u32 i = s->page;

	if (!i)
		return;
	if (s->chain.pages > 1) {
		struct seek k = { .s = s };

		bpf_loop(MAX_PAGES, drop_pages, &k, 0);
		i = s->page;
	}
	i--;
	s->page = 0;
	s->head = 0;
	s->count = 0;
	bpf_map_push_elem(&free_pages, &i, 0);
	__sync_fetch_and_add(&pages_used, -1);
}

/* Ticks wrap after 137 s; the coarse clock shows whether they may have. One unit into the
 * future is allowed: it may differ by CPU.
 */
static __always_inline bool recent(__u16 now, __u16 then)
{
	return (__u16)(now - then + 1) <= RECENT + 1;
}

static __always_inline void expire(struct side *s, const struct rtt_packet *p)
{
	if (!recent(p->coarse, s->armed))
		void_slots(s, STALE);
}

/* The retransmitted or lost may be what is echoed next: no sequence number is sure. */
static __always_inline void void_sequence(struct side *s)
{
	if (s->mode == MODE_SEQ)
		void_slots(s, VOIDED);
}

/* The oldest slot. NULL: there is none. */
static __always_inline struct slot *oldest(struct side *s)
{
	if (!s->count)
		return NULL;
	return s->page ? slot_in(s->page, s->chain.head) : &s->slot[s->head];
}

/* The oldest slot goes. */
static __always_inline void pop(struct side *s)
{
	s->count--;
	if (!s->page) {
		s->head++;
		return;
	}
	s->chain.head = (s->chain.head + 1) & (PAGE_SLOTS - 1);
	if (s->chain.pages > 1 && --s->chain.left == 0)
		rtt_drop_page(s);
}

static long pop_old(__u64 i, struct seek *k)
{
	struct slot *at = oldest(k->s);

	(void)i;
	if (!at || ticks_between(at->time, k->to) <= MAX_RTT)
		return 1;
	pop(k->s);
	count(STALE);
	return 0;
}

static __always_inline void drop_old(struct side *s, struct rtt_packet *p)
{
	struct seek k = { .s = s, .to = tick_now(p) };
	struct slot *at;

	expire(s, p);
	at = oldest(s);
	if (at && ticks_between(at->time, k.to) > MAX_RTT)
		bpf_loop(s->count, pop_old, &k, 0);
}

/* Where in the last page slot `n` is, if it is there: the newest, or the next. */
static __always_inline __u32 in_last(const struct side *s, __u32 n)
{
	if (s->chain.pages == 1)
		return n;
	return n - s->chain.left - (s->chain.pages - 2) * PAGE_SLOTS;
}

static __always_inline struct slot *slot_in_last(const struct side *s, __u32 at)
{
	return slot_in(s->chain.last, s->chain.pages == 1 ? s->chain.head + at : at);
}

/* Where the next slot goes. NULL: nowhere. */
static __always_inline struct slot *next_slot(struct side *s)
{
	__u32 at;

	if (!s->page) {
		if (s->count < SLOTS)
			return &s->slot[(s->head + s->count) & (SLOTS - 1)];
		if (!rtt_first_page(s))
			return NULL;
	}
	at = in_last(s, s->count);
	if (at >= PAGE_SLOTS) {
		if (!rtt_add_page(s))
			return NULL;
		at = 0;
	}
	return slot_in_last(s, at);
}

/* The newest slot. NULL: there is none. */
static __always_inline struct slot *newest(struct side *s)
{
	if (!s->count)
		return NULL;
	if (!s->page)
		return &s->slot[(s->head + s->count - 1) & (SLOTS - 1)];
	return slot_in_last(s, in_last(s, s->count - 1));
}

__noinline int rtt_arm(struct flow *f, struct rtt_packet *p, __u32 mode, __u32 key)
{
	if (!f || !p)
		return 0;
	struct side *s = SIDE(f, p->d);
	__u32 now = tick_now(p), n;
	struct slot *at;

	if (s->mode != mode) {
		void_slots(s, VOIDED);
		s->mode = mode;
	}
	drop_old(s, p);
	n = s->count;
	if (!s->page && n >= 2 && n < SLOTS &&
	    *(volatile __u32 *)&pages_used >= page_count &&
	    ticks_between(s->slot[(s->head + n - 1) & (SLOTS - 1)].time, now) < s->srtt / 4) {
		count(SPACED);
		return 0;
	}
	at = next_slot(s);
	if (!at) {
		count(SLOTS_FULL);
		return 0;
	}
	at->key = key;
	at->time = p->segs > 1 ? now | SPAN : now;
	s->count = n + 1;
	s->armed = p->coarse;
	return 0;
}

/* The time since `then`, at least 1. NOTHING when it is too long to be believed. */
static __always_inline __u32 age_of(struct rtt_packet *p, __u32 then)
{
	__u32 age = ticks_between(then, tick_now(p));

	if (age > MAX_RTT) {
		count(STALE);
		return NOTHING;
	}
	return age ?: 1;
}

static long pop_before(__u64 i, struct seek *k)
{
	struct slot *at = oldest(k->s);

	(void)i;
	if (!at || (__s32)(k->to - at->key) <= 0)
		return 1;
	pop(k->s);
	return 0;
}

/* The slot of exactly this TSval; older ones will never be echoed and go. */
static __always_inline __u32 match_ts(struct side *s, struct rtt_packet *p)
{
	struct slot *at;
	__u32 time;

	expire(s, p);
	at = oldest(s);
	if (at && (__s32)(p->tsecr - at->key) > 0) {
		struct seek k = { .s = s, .to = p->tsecr };

		bpf_loop(s->count, pop_before, &k, 0);
		at = oldest(s);
	}
	if (!at || at->key != p->tsecr)
		return NOTHING;
	time = at->time;
	pop(s);
	return age_of(p, time);
}

static long pop_covered(__u64 i, struct seek *k)
{
	struct slot *at = oldest(k->s);

	(void)i;
	if (!at || (__s32)(k->to - at->key) < 0)
		return 1;
	k->key = at->key;
	k->time = at->time;
	pop(k->s);
	return 0;
}

/* The newest slot that the acknowledgement covers, if it ends where the slot does. Also if the
 * slot's packet was several segments, of which any may have been acknowledged.
 */
static __always_inline __u32 match_seq(struct side *s, struct rtt_packet *p)
{
	struct seek k = { .s = s, .to = p->ack };
	__u32 n;

	expire(s, p);
	n = s->count;
	if (n == 1)
		pop_covered(0, &k);
	else
		bpf_loop(n, pop_covered, &k, 0);
	if (n == s->count || (k.key != p->ack && !(k.time & SPAN)))
		return NOTHING;
	return age_of(p, k.time);
}

/* NOTHING when there is no slot. */
static __always_inline __u32 slot_age(const struct slot *at, struct rtt_packet *p)
{
	return at ? ticks_between(at->time, tick_now(p)) : NOTHING;
}

#endif
