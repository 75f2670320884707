/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The table of sessions: open addressing in a plain array.
 *
 * The kernel's LRU hash costs a call and a hash of its own in every packet; the JIT
 * makes an array lookup a handful of instructions. What a packet then pays for is the
 * cache line, so slots are small: a session is known by a keyed 64-bit hash of what
 * RFC 8972, section 3, makes its identity. Among a million sessions the chance that any
 * two are taken for one is 1 in 30 million; they would share a sequence number.
 *
 * A session stands in one of the WINDOW slots that begin at its hash, and a slot once
 * used never becomes empty again: who looks for a session stops at the first empty
 * slot. Insertions are serialised by one lock; lookups take none.
 */
#ifndef SONDE_SESSIONS_H
#define SONDE_SESSIONS_H

#include "parse.h"

#define WINDOW 128     /* slots; few are looked at: see `session_slots` in src/reflect.rs */
#define LOCK_TRIES 256 /* an insertion takes less than a microsecond */
#define NO_SLOT (~0ULL)
#define NEW_SLOT (1ULL << 32) /* set beside the number of a slot that was filled just now */
#define USED_SHIFT 30  /* the unit of `used`: 2^30 ns, about a second */
#define STALE 840      /* of these: 15 minutes, after which RFC 5357, 4.2, lets a session end */

struct session {
	__u64 id;         /* 0: empty */
	__u32 sent;       /* replies, the sequence number of the next */
	__u16 generation; /* of the local addresses when it was admitted */
	__u16 used;       /* when, in units of 2^USED_SHIFT ns */
};

const volatile __u32 session_mask;    /* slots - 1 */
const volatile __u64 session_seed[2]; /* secret: nobody can aim at another's slot */
__u32 session_lock;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct session);
} sessions SEC(".maps");

static __always_inline __u64 mix(__u64 hash)
{
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

/* Of the 4-tuple and the SSID; our own port is the same for all and left out. */
static __always_inline __u64 session_id4(__be32 source, __be32 destination, __u32 port_ssid)
{
	__u64 hash = mix(port_ssid ^ session_seed[0]);

	return mix(hash ^ mix(((__u64)source << 32 | destination) ^ session_seed[1])) ?: 1;
}

static __always_inline __u64 session_id6(const struct ipv6hdr *ip, __u32 port_ssid)
{
	const __u32 *a = (const __u32 *)&ip->saddr;
	__u64 hash = mix(port_ssid ^ session_seed[0]);

#pragma unroll
	for (int i = 0; i < 8; i += 2)
		hash = mix(hash ^ mix(((__u64)a[i] << 32 | a[i + 1]) ^ session_seed[1])) + i + 1;
	return hash ?: 1;
}

static __always_inline struct session *session_at(__u32 slot)
{
	slot &= session_mask;
	return bpf_map_lookup_elem(&sessions, &slot);
}

static __always_inline struct session *find_session(__u64 id)
{
	for (__u32 i = 0; i < WINDOW; i++) {
		struct session *s = session_at(id + i);

		if (!s || s->id == 0)
			break;
		if (s->id == id)
			return s;
	}
	return NULL;
}

/* Gives a session that was not found the slot of its window that is empty or, before
 * that, the first one whose session has ended; failing both, the one used longest ago.
 * Returns the slot, with NEW_SLOT unless another CPU has made the session meanwhile, or
 * NO_SLOT when the lock could not be had.
 *
 * A global function: rarely called, and proved by itself.
 */
__noinline __u64 add_session(__u64 id, __u16 now, __u16 generation)
{
	__u32 slot = id, oldest = 0;
	__u64 fresh = NEW_SLOT;
	struct session *s;
	bool held = false;

	for (__u32 i = 0; i < LOCK_TRIES && !held; i++)
		held = __sync_val_compare_and_swap(&session_lock, 0, 1) == 0;
	if (!held)
		return NO_SLOT;

	for (__u32 i = 0; i < WINDOW; i++) {
		__u16 age;

		s = session_at(id + i);
		if (!s)
			break;
		if (s->id == id) {
			fresh = 0;
			slot = id + i;
			break;
		}
		if (s->id == 0) {
			if (oldest < STALE)
				slot = id + i;
			break;
		}
		age = now - s->used;
		if (age > oldest && oldest < STALE) {
			oldest = age;
			slot = id + i;
		}
	}
	slot &= session_mask;
	s = session_at(slot);
	if (s && fresh) {
		s->sent = 0;
		s->generation = generation;
		s->used = now;
		__sync_lock_test_and_set(&s->id, id); /* a barrier: the rest is there first */
	}
	__sync_lock_test_and_set(&session_lock, 0);
	return slot | fresh;
}

#endif
