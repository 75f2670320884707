/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Groups: what many samples have in common, and their histograms, made on demand.
 *
 * Everybody writes them, so each count is changed by atomic operations; user space takes
 * them by exchange. A group is known by hashing and probing in a plain array.
 */
#ifndef SONDE_RTT_GROUPS_H
#define SONDE_RTT_GROUPS_H

#include "rtt_packet.h"

#define NOTHING (~0U) /* instead of an index or a round-trip time */
#define TRIES 4       /* to change a minimum or maximum that others change too */

/* From the free list, or one that was never used. NOTHING when there is none. */
static __always_inline __u32 take_from(void *free, __u32 *fresh, __u32 size)
{
	__u32 i;

	if (bpf_map_pop_elem(free, &i) == 0)
		return i;
	if (*(volatile __u32 *)fresh < size) {
		i = __sync_fetch_and_add(fresh, 1);
		if (i < size)
			return i;
	}
	return NOTHING;
}

struct group_key {
	__u64 w[5];
	__u32 kind;
	__u32 hash;
};

/* Joins the group of this key if there is one: its index + 1, or 0. */
__noinline __u32 rtt_find_group(const struct group_key *key)
{
	if (!key)
		return 0;
	for (__u32 i = 0; i < GROUP_PROBES; i++) {
		__u32 at = (key->hash + i) & group_mask, state;
		struct group *g = bpf_map_lookup_elem(&rtt_groups, &at);

		if (!g || at == 0)
			continue;
		state = *(volatile __u32 *)&g->state;
		if (state == GROUP_EMPTY)
			return 0;
		if (!(state & GROUP_LIVE) ||
		    ((g->hash ^ key->hash) | (g->kind ^ key->kind) | (g->key[0] ^ key->w[0]) |
		     (g->key[1] ^ key->w[1]) | (g->key[2] ^ key->w[2]) | (g->key[3] ^ key->w[3]) |
		     (g->key[4] ^ key->w[4])))
			continue;
		/* User space may free it in this moment, and another key may take it. */
		__sync_fetch_and_add(&g->state, 1);
		if (*(volatile __u32 *)&g->state & GROUP_LIVE && g->hash == key->hash)
			return at + 1;
		__sync_fetch_and_add(&g->state, -1);
	}
	return 0;
}

/* Makes it: its index + 1; 1, the common group, when there is no room. Two CPUs may make
 * the same; user space adds them up.
 */
__noinline __u32 rtt_make_group(const struct group_key *key)
{
	if (!key)
		return 1;
	if (__sync_fetch_and_add(&groups_used, 1) >= group_limit)
		goto none;
	for (__u32 i = 0; i < GROUP_PROBES; i++) {
		__u32 at = (key->hash + i) & group_mask, state;
		struct group *g = bpf_map_lookup_elem(&rtt_groups, &at);

		if (!g || at == 0)
			continue;
		state = *(volatile __u32 *)&g->state;
		if (state > GROUP_FREED ||
		    __sync_val_compare_and_swap(&g->state, state, GROUP_BUSY) != state)
			continue;
		g->hash = key->hash;
		g->kind = key->kind;
#pragma unroll
		for (int k = 0; k < 5; k++)
			g->key[k] = key->w[k];
		/* Not a store: a search that came too late may have its one in there. */
		__sync_fetch_and_add(&g->state, (GROUP_LIVE | 1) - GROUP_BUSY);
		return at + 1;
	}
none:
	__sync_fetch_and_add(&groups_used, -1);
	return 1;
}

/* The prefix that holds an end of the flow, as the key. */
static __noinline int prefix_key(const struct flow *f, __u32 side, struct group_key *key)
{
	const __be32 *a = f->key.addr[side & 1];
	bool v4 = f->flags & IPV4;
	struct prefix_key at = {
		.length = 128,
		/* Where a hidden address has its hash. */
		.addr = { a[0], v4 ? 0 : a[1], a[2], a[3] },
	};
	__u32 length = v4 ? prefix_v4 + 96 : prefix_v6;
	struct prefix *found = NULL;
	__u64 high, low;

	if (!v4 && hide_addresses)
		at.addr[2] = at.addr[3] = 0;
	if (have_prefixes)
		found = bpf_map_lookup_elem(&rtt_prefixes, &at);
	if (group_by == BY_AS) {
		key->w[0] = found ? found->as : 0;
		return 0;
	}
	if (found)
		length = found->length & 0xff;
	high = bpf_be64_to_cpu((__u64)at.addr[1] << 32 | at.addr[0]);
	low = bpf_be64_to_cpu((__u64)at.addr[3] << 32 | at.addr[2]);
	key->w[0] = bpf_cpu_to_be64(length >= 64 ? high : length ? high >> (64 - length) << (64 - length) : 0);
	key->w[1] = bpf_cpu_to_be64(length >= 128 ? low : length > 64 ? low >> (128 - length) << (128 - length) : 0);
	key->kind |= length << 8;
	return 0;
}

/* The group of one end of a flow, with one more that points at it: its index + 1. Asked for
 * with the first sample, so that flows without any (a flood) take no entry; the entry keeps
 * the answer.
 */
__noinline __u32 rtt_join_group(const struct flow *f, __u32 side, __u32 dscp)
{
	struct group_key key = { .kind = group_by };
	__u32 found;
	__u64 h;

	if (!f)
		return 0;
	switch (group_by) {
	case BY_PREFIX:
	case BY_AS:
		prefix_key(f, side, &key);
		break;
	case BY_INTERFACE:
		key.w[0] = f->key.point;
		break;
	case BY_VLAN:
		key.w[0] = f->key.vlan;
		break;
	case BY_DSCP:
		key.w[0] = dscp;
		break;
	case BY_FLOW:
#pragma unroll
		for (int i = 0; i < 5; i++)
			key.w[i] = f->key.w[i];
		key.kind |= (side & 1) << 8;
		break;
	}
	if (f->flags & IPV4 && (group_by == BY_PREFIX || group_by == BY_FLOW))
		key.kind |= GROUP_IPV4;
	h = seed[1] ^ key.kind;
#pragma unroll
	for (int i = 0; i < 5; i++)
		h = mix(h ^ key.w[i]) + 1;
	key.hash = h >> 32; /* its best half */
	found = rtt_find_group(&key);
	return found ?: rtt_make_group(&key);
}

static __always_inline __u32 hist_bucket(__u64 ns)
{
	__u32 e = 0;
	__u64 v = ns;

	if (ns < 1024)
		return 0;
	if (ns >= 1ULL << 36)
		return BUCKETS_OF_HIST - 1;
	if (v >> 32)
		e += 32, v >>= 32;
	if (v >> 16)
		e += 16, v >>= 16;
	if (v >> 8)
		e += 8, v >>= 8;
	if (v >> 4)
		e += 4, v >>= 4;
	if (v >> 2)
		e += 2, v >>= 2;
	e += v >> 1;
	return 1 + (e - 10) * 8 + (ns >> (e - 3) & 7);
}

/* Moves a minimum (0: none yet) or maximum. One that many others move just then may stay
 * behind: it is as good as theirs.
 */
static __always_inline void extreme(__u32 *at, __u32 value, bool max)
{
#pragma unroll
	for (int i = 0; i < TRIES; i++) {
		__u32 old = *(volatile __u32 *)at;

		if (max ? old >= value : old && old <= value)
			break;
		if (__sync_val_compare_and_swap(at, old, value) == old)
			break;
	}
}

/* Counts a sample in its group's histogram. */
static __always_inline void add_to_group(__u32 index, __u32 class, __u32 rtt)
{
	struct group *g = bpf_map_lookup_elem(&rtt_groups, &index);
	struct group_class *c;
	struct hist *h = NULL;
	__u32 i, old;

	if (!g || class >= CLASSES)
		return;
	c = &g->class[class];
	i = *(volatile __u32 *)&c->hist;
	if (!i) {
		i = take_from(&free_hists, &hists_fresh, hist_count);
		if (i != NOTHING) {
			old = __sync_val_compare_and_swap(&c->hist, 0, i + 1);
			if (old) { /* another CPU made one at the same time */
				bpf_map_push_elem(&free_hists, &i, 0);
				i = old - 1;
			}
			i++;
		} else {
			count(HISTS_FULL);
			i = 0;
		}
	}
	if (i) {
		i--;
		h = bpf_map_lookup_elem(&rtt_hists, &i);
	}
	if (h) {
		__u32 b = hist_bucket((__u64)rtt << TICK_SHIFT);

		if (b < BUCKETS_OF_HIST)
			__sync_fetch_and_add(&h->bucket[b], 1);
	} else {
		__sync_fetch_and_add(&c->loose, 1);
	}
	__sync_fetch_and_add(&c->sum, rtt);
	extreme(&c->min, rtt + 1, false);
	extreme(&c->max, rtt, true);
}

#endif
