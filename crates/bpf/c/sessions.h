/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The table of sessions: open addressing in a plain array.
 *
 * The kernel's LRU hash costs a call and a hash of its own in every packet. The JIT makes an array
 * lookup a handful of instructions. What a packet then pays for is the cache line, so slots are
 * small, two in a line. A session is known by a keyed 64-bit hash of its identity (RFC 8972,
 * section 3). Among a million sessions the chance that any two are taken for one is 1 in 30
 * million; they would share a sequence number.
 *
 * A session is in one of the WINDOW slots that begin at its hash. A slot once used never becomes
 * empty again, so a search stops at the first empty slot. Insertions are serialised by one lock;
 * lookups take none.
 *
 * A sender that has asked once is a newcomer and becomes a session by its second request. Newcomers
 * make room for newcomers, the oldest first. A session is never taken from its sender, so that a
 * flood of invented sources cannot restart anyone's sequence numbers.
 */
#ifndef SONDE_SESSIONS_H
#define SONDE_SESSIONS_H

#include "mix.h"
#include "parse.h"

#define WINDOW 128     /* slots; few are looked at: see `session_slots` in src/reflect.rs */
#define LOCK_TRIES 256 /* an insertion takes less than a microsecond */
#define NO_SLOT (~0ULL)
#define NEW_SLOT (1ULL << 32) /* set beside the index of a slot that was filled just now */
#define USED_SHIFT 30  /* the unit of `used`: 2^30 ns, about a second */
#define BEGINNING 64   /* as in `Order` of crates/meter/src/stamp/reflector/loops.rs */
#define LATER 64

struct session {
	__u64 id;          /* 0: empty */
	__u32 sent;        /* replies, the sequence number of the next */
	__u32 sequence;    /* the sender's own greatest sequence number, */
	__u32 sender_time; /* and the middle half of the time stamp beside it */
	__u32 used;        /* when, in units of 2^USED_SHIFT ns */
	__u32 established; /* it has asked again */
	__u16 generation;  /* of the local addresses when it was admitted */
	__u16 unused;
};

const volatile __u32 session_mask;    /* slots - 1 */
const volatile __u64 session_seed[2]; /* secret: nobody can aim at another's slot */
const volatile __u32 session_timeout; /* of silence, in units of 2^USED_SHIFT ns */
__u32 session_lock;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct session);
} sessions SEC(".maps");

/* Of the 4-tuple and the SSID; our own port is the same for all and left out. */
static __always_inline __u64 session_id4(__be32 source, __be32 destination, __u32 port_ssid)
{
	__u64 hash = mix(port_ssid ^ session_seed[0]);

	return mix(hash ^ mix(((__u64)source << 32 | destination) ^ session_seed[1])) ?: 1;
}

/* `a`: the source address, then the destination. */
static __always_inline __u64 session_id6(const __u32 *a, __u32 port_ssid)
{
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

/* Gives a slot to a session that was not found: the empty one of its window or, before that, the
 * first one whose session has ended. Failing both, that of the oldest newcomer. Returns the slot,
 * with NEW_SLOT unless another CPU has made the session meanwhile. NO_SLOT: all are taken, or the
 * lock could not be had.
 *
 * A global function: rarely called, and proved by itself.
 */
__noinline __u64 add_session(__u64 id, __u32 now, __u16 generation, __u32 sequence,
			     __u32 sender_time)
{
	__u64 slot = NO_SLOT, fresh = NEW_SLOT;
	__u32 oldest = 0;
	struct session *s;
	bool held = false, ended = false;

	for (__u32 i = 0; i < LOCK_TRIES && !held; i++)
		held = __sync_val_compare_and_swap(&session_lock, 0, 1) == 0;
	if (!held)
		return NO_SLOT;

	for (__u32 i = 0; i < WINDOW; i++) {
		__u32 age, index = ((__u32)id + i) & session_mask;

		s = session_at(index);
		if (!s)
			break;
		if (s->id == id) {
			fresh = 0;
			slot = index;
			break;
		}
		if (s->id == 0) {
			if (!ended)
				slot = index;
			break;
		}
		if (ended)
			continue;
		age = now - s->used;
		if ((__s32)age > (__s32)session_timeout) {
			ended = true;
			slot = index;
		} else if (!s->established && (slot == NO_SLOT || age > oldest)) {
			oldest = age;
			slot = index;
		}
	}
	if (slot != NO_SLOT && fresh) {
		s = session_at(slot);
		if (s) {
			s->sent = 0;
			s->sequence = sequence;
			s->sender_time = sender_time;
			s->established = 0;
			s->generation = generation;
			s->used = now;
			__sync_lock_test_and_set(&s->id, id); /* a barrier: the rest is there first */
		}
	}
	__sync_lock_test_and_set(&session_lock, 0);
	return slot == NO_SLOT ? NO_SLOT : slot | fresh;
}

/* Files the sequence number and time of a session's next request. Whether its sender has begun anew
 * (RFC 8762, 4.3): its sequence numbers have, and this is later than its last request. So it is no
 * late or doubled one of the beginning. Where time stamps never change, sequence number 0 has to
 * do. As `Order::next` of crates/meter/src/stamp/reflector/loops.rs.
 */
static __always_inline bool begins_anew(struct session *s, __u32 sequence, __u32 sender_time)
{
	__s32 ahead = sequence - s->sequence, later = sender_time - s->sender_time;

	if (ahead <= 0 && (ahead == 0 || sequence >= BEGINNING ||
			   !(later > LATER || (later == 0 && sequence == 0))))
		return false;
	s->sequence = sequence;
	s->sender_time = sender_time;
	return ahead < 0;
}

#endif
