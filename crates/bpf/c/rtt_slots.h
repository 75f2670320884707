/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What waits for its echo: the ring of slots of a side, and what a found echo does.
 *
 * All of it runs under the lock of the flow's bucket. An unmatched slot is never
 * overwritten: the packets that find no room are left out, and counted.
 */
#ifndef SONDE_RTT_SLOTS_H
#define SONDE_RTT_SLOTS_H

#include "rtt_groups.h"

#define WEIGH_EVERY 15         /* coarse units: 1 s */
#define WAKE_AT (256U << 10)   /* octets: a quarter of the ring of samples, an eighth of the other */

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

static __always_inline struct page *page_at(__u32 number)
{
	number--;
	return bpf_map_lookup_elem(&rtt_pages, &number);
}

static __always_inline void give_page(struct side *s)
{
	__u32 i = s->page;

	if (!i)
		return;
	i--;
	s->page = 0;
	s->head = 0;
	s->count = 0;
	bpf_map_push_elem(&free_pages, &i, 0);
	__sync_fetch_and_add(&pages_used, -1);
}

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

static __always_inline void void_slots(struct side *s, enum counter why)
{
	if (s->count)
		count_n(why, s->count);
	s->count = 0;
	s->head = 0;
}

/* Ticks wrap after 137 s; the coarse clock tells whether they may have. One unit into the
 * future is allowed: it may differ by CPU.
 */
static __always_inline bool recent(__u16 now, __u16 then)
{
	return (__u16)(now - then + 1) <= RECENT + 1;
}

static __always_inline void expire(struct side *s, const struct rtt_packet *p)
{
	if (s->count && !recent(p->coarse, s->armed))
		void_slots(s, STALE);
}

/* The slots of a ring, and the mask of their indices: in the entry, or in its page. */
static __always_inline struct slot *ring_of(struct side *s, __u32 *mask)
{
	struct page *page;

	*mask = SLOTS - 1;
	if (!s->page)
		return s->slot;
	page = page_at(s->page);
	if (!page)
		return NULL;
	*mask = PAGE_SLOTS - 1;
	return page->slot;
}

/* The retransmitted or lost may be what is echoed next: no sequence number is sure. */
static __always_inline void void_sequence(struct side *s)
{
	if (s->mode == MODE_SEQ)
		void_slots(s, VOIDED);
}

static __always_inline void drop_old(struct side *s, const struct slot *slots, __u32 mask,
				     struct rtt_packet *p)
{
	__u32 now = tick_now(p);

	expire(s, p);
	for (__u32 i = 0; i < PAGE_SLOTS; i++) {
		if (s->count == 0 || ticks_between(slots[s->head & mask].time, now) <= MAX_RTT)
			break;
		s->head = (s->head + 1) & mask;
		s->count--;
		count(STALE);
	}
}

__noinline int rtt_arm(struct flow *f, struct rtt_packet *p, __u32 mode, __u32 key)
{
	if (!f || !p)
		return 0;
	struct side *s = SIDE(f, p->d);
	__u32 now = tick_now(p), mask = SLOTS - 1, head, n;
	struct slot *slots = s->slot;
	struct page *page = NULL;

	if (s->mode != mode) {
		void_slots(s, VOIDED);
		s->mode = mode;
	}
	if (s->page) {
		page = page_at(s->page);
		if (!page)
			return 0;
		slots = page->slot;
		mask = PAGE_SLOTS - 1;
	}
	drop_old(s, slots, mask, p);
	head = s->head;
	n = s->count;

	if (n > mask) {
		__u32 i;

		if (page || mode == MODE_ID) {
			count(SLOTS_FULL);
			return 0;
		}
		i = take_from(&free_pages, &pages_fresh, page_count);
		if (i != NOTHING)
			page = bpf_map_lookup_elem(&rtt_pages, &i);
		if (!page) {
			count(SLOTS_FULL);
			return 0;
		}
		__sync_fetch_and_add(&pages_used, 1);
		s->page = i + 1;
#pragma unroll
		for (__u32 k = 0; k < SLOTS; k++)
			page->slot[k] = s->slot[(head + k) & (SLOTS - 1)];
		slots = page->slot;
		mask = PAGE_SLOTS - 1;
		head = 0;
		s->head = 0;
	} else if (!page && n >= 2 && mode != MODE_ID &&
		   *(volatile __u32 *)&pages_used >= page_count &&
		   ticks_between(slots[(head + n - 1) & mask].time, now) < s->srtt / 4) {
		count(SPACED);
		return 0;
	}
	slots[(head + n) & mask].key = key;
	slots[(head + n) & mask].time = p->segs > 1 && mode != MODE_ID ? now | SPAN : now;
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

/* The slot of exactly this TSval; older ones will never be echoed and go. */
static __always_inline __u32 match_ts(struct side *s, struct rtt_packet *p)
{
	__u32 mask, head, n, tsecr = p->tsecr;
	struct slot *slots = ring_of(s, &mask);

	if (!slots)
		return NOTHING;
	expire(s, p);
	head = s->head;
	n = s->count;
	for (__u32 i = 0; i < PAGE_SLOTS; i++) {
		if (n == 0 || (__s32)(tsecr - slots[head & mask].key) <= 0)
			break;
		head++;
		n--;
	}
	s->head = head & mask;
	s->count = n;
	if (n == 0 || slots[head & mask].key != tsecr)
		return NOTHING;
	s->head = (head + 1) & mask;
	s->count = n - 1;
	return age_of(p, slots[head & mask].time);
}

/* The age of the oldest or newest slot that is left. NOTHING when none is. */
static __always_inline __u32 slot_age(const struct side *s, struct rtt_packet *p, bool newest)
{
	__u32 at = s->head + (newest ? s->count - 1 : 0), time;

	if (s->count == 0)
		return NOTHING;
	if (s->page) {
		struct page *page = page_at(s->page);

		if (!page)
			return NOTHING;
		time = page->slot[at & (PAGE_SLOTS - 1)].time;
	} else {
		time = s->slot[at & (SLOTS - 1)].time;
	}
	return ticks_between(time, tick_now(p));
}

/* The newest slot that the acknowledgement covers, if it ends where the slot does or
 * the slot's packet was several segments, of which any may have been acknowledged.
 */
static __always_inline __u32 match_seq(struct side *s, struct rtt_packet *p)
{
	__u32 mask, head, n, ack = p->ack, key = 0, time = 0;
	struct slot *slots = ring_of(s, &mask);

	if (!slots)
		return NOTHING;
	expire(s, p);
	head = s->head;
	n = s->count;
	for (__u32 i = 0; i < PAGE_SLOTS; i++) {
		if (n == 0 || (__s32)(ack - slots[head & mask].key) < 0)
			break;
		key = slots[head & mask].key;
		time = slots[head & mask].time;
		head++;
		n--;
	}
	if (n == s->count)
		return NOTHING;
	s->head = head & mask;
	s->count = n;
	if (key != ack && !(time & SPAN))
		return NOTHING;
	return age_of(p, time);
}

/* Takes the slot of this identifier out of the ring; the others keep their order. Its time,
 * or NOTHING.
 */
static __noinline __u32 take_id(struct side *s, __u32 id)
{
	__u32 n = s->count, time = NOTHING;

	for (__u32 i = 0; i < SLOTS; i++) {
		struct slot *at = &s->slot[(s->head + i) & (SLOTS - 1)];

		if (i >= n)
			break;
		if (time != NOTHING)
			s->slot[(s->head + i - 1) & (SLOTS - 1)] = *at;
		else if (at->key == id)
			time = at->time; /* below 2^31: SPAN is only for TCP */
	}
	if (time != NOTHING)
		s->count = n - 1;
	return time;
}

static __always_inline __u32 match_id(struct side *s, struct rtt_packet *p)
{
	__u32 time;

	if (s->mode != MODE_ID)
		return NOTHING;
	expire(s, p);
	time = take_id(s, p->id);
	return time == NOTHING ? NOTHING : age_of(p, time);
}

/* To wake the reader takes microseconds, and we hold a bucket's lock: it looks by itself
 * many times a second, unless the ring is filling up.
 */
static __always_inline __u64 wake(void *ring)
{
	return bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > WAKE_AT ? BPF_RB_FORCE_WAKEUP :
								      BPF_RB_NO_WAKEUP;
}

static __always_inline bool event_due(struct side *s, struct rtt_packet *p)
{
	__u64 limit = event_limit;
	__u32 now;

	if (event_mode == EVENTS_NONE)
		return false;
	if (event_mode == EVENTS_ALL)
		return true;
	if (event_mode == EVENTS_MULTIPLE)
		limit = s->srtt * limit >> 8;
	if (limit == 0)
		return true;
	now = now_ns(p) >> 10;
	if (s->flags & EVENT_SEEN && (__s32)(now - s->event_at) >= 0 && now - s->event_at < limit) {
		count(EVENTS_LIMITED);
		return false;
	}
	s->flags |= EVENT_SEEN;
	s->event_at = now;
	return true;
}

/* A round-trip time about the side that sent this packet: of what the other side sent. */
__noinline int rtt_sample(struct flow *f, struct rtt_packet *p, __u32 kind, __u32 class, __u32 rtt)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool counts = true;

	if (class >= CLASSES)
		return 0;
	count(SAMPLES_CLEAN + class);
	if (class == CLEAN) {
		/* The spin bit and DNS over TCP have the application's time in them. */
		if (kind != KIND_SPIN && (kind != KIND_DNS || p->what != W_TCP)) {
			if (!E->srtt) {
				E->rtt_min = rtt;
				E->srtt = rtt;
			} else {
				if (rtt < E->rtt_min)
					E->rtt_min = rtt;
				E->srtt += (__s64)((__s64)rtt - E->srtt) >> 3;
			}
		}
		E->samples++;
		add48(&E->rtt_sum, &E->rtt_sum_high, rtt);
		if (weigh_flows) {
			counts = !(E->flags & WEIGHED) ||
				 (__u16)(p->coarse - E->weighed) >= WEIGH_EVERY;
			if (counts) {
				E->flags |= WEIGHED;
				E->weighed = p->coarse;
			} else {
				count(UNWEIGHTED);
			}
		}
	} else {
		struct loss *l = loss_of(f);

		if (l) {
			struct loss_side *side = &l->side[(p->d ^ 1) & 1];

			if (class == RECOVERY)
				side->recovery++;
			else
				side->delayed_ack++;
		}
	}
	if (group_by != BY_NONE) {
		if (!D->group)
			D->group = rtt_join_group(f, p->d, 0);
		if (counts) {
			if (D->group == 1)
				count(GROUPS_FULL);
			add_to_group(D->group - 1, class, rtt);
		}
	}
	if (event_due(E, p)) {
		struct sample_event *e = bpf_ringbuf_reserve(&rtt_samples, sizeof(*e), 0);

		if (!e) {
			count(EVENTS_LOST);
			return 0;
		}
		e->key = f->key;
		e->at = now_ns(p);
		e->bytes = (__u64)D->bytes_high << 32 | D->bytes;
		e->packets = (__u64)D->packets_high << 32 | D->packets;
		e->peer_bytes = (__u64)E->bytes_high << 32 | E->bytes;
		e->peer_packets = (__u64)E->packets_high << 32 | E->packets;
		e->rtt = rtt;
		e->rtt_min = E->rtt_min;
		e->side = p->d;
		e->kind = kind;
		e->class = class;
		e->ipv4 = !!(f->flags & IPV4);
		e->unused = 0;
		bpf_ringbuf_submit(e, wake(&rtt_samples));
	}
	return 0;
}

#endif
