/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The unified header, and the rings that take it to user space. */
#ifndef SONDE_FLOW_FEATURE_H
#define SONDE_FLOW_FEATURE_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SHAPE_IPV6 1
#define SHAPE_FRAGMENT 2
#define SHAPE_LATER_FRAGMENT 4
#define SHAPE_INNER 8
#define SHAPE_NO_TRANSPORT 16

/* `wire::feature::Feature`, which says what each field is. Integers are in this machine's
 * byte order, addresses as they are on the wire.
 */
struct feature {
	__u64 at_ns; /* 0: not written yet */
	__u64 source[2];
	__u64 destination[2];
	__u16 source_port, destination_port;
	__u32 ip_len;
	__u32 sequence;
	__u16 tcp_flags;
	__u16 vlan;
	__u8 protocol, tos, ttl, shape;
	__u16 window;
	__u8 headers;
	__u8 point;
};

_Static_assert(sizeof(struct feature) == 64, "one cache line");

/* One worker's ring. Any processor puts records in, one thread takes them out. Each side
 * writes to a cache line of its own.
 */
struct flow_ring {
	__u64 head; /* slots taken so far */
	__u64 __head[7];
	__u64 tail; /* slots given back so far: user space */
	__u64 __tail[7];
	__u64 lost_packets; /* for want of a slot */
	__u64 lost_bytes;   /* of IP */
	__u64 __lost[6];
};

const volatile __u32 workers;
const volatile __u32 ring_order; /* a ring has 2^ring_order slots */
/* Slots that may be taken: one less than there are for each processor. Each may take one more
 * between its look at the ring and its step.
 */
const volatile __u32 ring_room;
const volatile __u64 seed[4]; /* the last two odd */
const volatile __u64 time_base; /* steady time less CLOCK_MONOTONIC, ns */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct flow_ring);
} flow_rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct feature);
} flow_records SEC(".maps");

static __always_inline __u64 fold(__u64 x, __u64 odd)
{
	x *= odd;
	return x ^ x >> 32;
}

static __always_inline __u64 address_hash(__u64 a0, __u64 a1)
{
	return fold(fold(a0 ^ seed[0], seed[2]) + (a1 ^ seed[1]), seed[3]);
}

/* The worker of a pair of addresses, whichever of them sends. Ports are left out on
 * purpose: later fragments have none, and belong where the rest of their flow is.
 */
static __always_inline __u32 worker_of(__u64 s0, __u64 s1, __u64 d0, __u64 d1)
{
	__u64 hash;

	if (workers == 1)
		return 0;
	hash = fold(address_hash(s0, s1) + address_hash(d0, d1), seed[2]);
	return (hash & 0xffffffff) * workers >> 32;
}

/* A slot for one record, or NULL and it is counted as lost. */
static __always_inline struct feature *take_slot(__u32 worker, __u32 ip_len)
{
	struct flow_ring *ring = bpf_map_lookup_elem(&flow_rings, &worker);
	__u64 head, tail;
	__u32 slot;

	if (!ring)
		return NULL;
	head = *(volatile __u64 *)&ring->head;
	tail = *(volatile __u64 *)&ring->tail;
	if (head - tail >= ring_room) {
		__sync_fetch_and_add(&ring->lost_packets, 1);
		__sync_fetch_and_add(&ring->lost_bytes, ip_len);
		return NULL;
	}
	slot = __sync_fetch_and_add(&ring->head, 1);
	slot = worker << ring_order | (slot & ((1U << ring_order) - 1));
	return bpf_map_lookup_elem(&flow_records, &slot);
}

/* The rest is there when the time is: an exchange is a full barrier on every machine. */
static __always_inline void publish(struct feature *f, __u64 now)
{
	__sync_lock_test_and_set(&f->at_ns, now);
}

#endif
