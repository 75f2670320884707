/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The load generator: what `BPF_PROG_TEST_RUN` with live frames runs again and again. Each
 * run is a slot, in which one frame leaves if one is due, and otherwise none (XDP_DROP).
 *
 * The frames' memory goes round: what a device has written into a frame that it has
 * forwarded stands in the next one. So the whole header is written anew every time.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "load_signature.h"

#define HEADER_WORDS 14
#define FRAME_MAX 4096
#define SPINS 24 /* readings of the clock in a slot in which nothing is due: under 1 us */

/* The headers of a flow, for the smallest of its frames. */
struct load_flow {
	__u64 header[HEADER_WORDS];
	__u32 ip_sum;  /* of the IPv4 header, without length and checksum */
	__u32 udp_sum; /* of pseudo-header and UDP header, without lengths and checksum */
	__u16 stream;
	__u16 unused[3];
};

/* A change of the load. */
struct load_change {
	__u64 at;   /* frame behind which it holds */
	__u64 step; /* between bursts, ns and in 2^-32 ns */
	__u64 step_part;
};

/* Shared with user space, which sets what is not counted here before the first slot. */
struct load_gen {
	__u64 stop;
	__u64 frames;
	__u64 counted_from; /* frames before this one are in none of the counts */
	__u64 next; /* sequence number: as many have left */
	__u64 due;  /* of the next burst, ns TAI, and in 2^-32 ns */
	__u64 due_part;
	__u64 step; /* between bursts, likewise */
	__u64 step_part;
	__u64 change_at; /* frame behind which the next change holds */
	__u64 change; /* which one that is */
	__u64 first; /* departures, ns TAI */
	__u64 last;
	__u64 slots;
	/* Indexes into what goes round. */
	__u64 in_burst;
	__u64 slot; /* of a batch */
	__u64 over; /* nothing more is due in this batch */
	__u64 flow;
	__u64 size;
	__u64 behind; /* by how much the schedule is put off, ns */
	struct load_hist gaps;
	struct load_hist late;
};

const volatile __u32 target;       /* interface */
const volatile __u32 batch;        /* slots after which the kernel hands over what has left */
const volatile __u32 batch_stamps; /* the clock is read once a batch: frames share a stamp */
const volatile __u64 burst;
const volatile __u64 catch_up; /* ns: after a longer stop the schedule is put off */
const volatile __u32 flow_count;
const volatile __u32 size_count;
const volatile __u32 header_words;
const volatile __u32 shortest; /* octets without the FCS, of every frame as a slot gets it */
const volatile __u32 l3_at;
const volatile __u32 l4_at;
const volatile __u32 ipv6;
const volatile __u32 tag; /* of the trial and direction */
const volatile __u64 secret0;
const volatile __u64 secret1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load_gen);
} load_gen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct load_flow);
} load_flows SEC(".maps");

/* Octets without the FCS, of frame after frame. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u64);
} load_sizes SEC(".maps");

/* In their order; behind the last one there is one that never comes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct load_change);
} load_changes SEC(".maps");

static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* When the frame that may leave in this slot does; 0: none does. */
static __always_inline __u64 departure(struct load_gen *gen)
{
	__u64 slot = 0, now;

	if (batch > 1) {
		slot = gen->slot;
		gen->slot = slot + 1 < batch ? slot + 1 : 0;
		/* What has left waits for the end of the batch: hurry. */
		if (slot && gen->over)
			return 0;
		gen->over = 0;
	}
	if (batch_stamps && slot) {
		now = gen->last;
	} else {
		now = bpf_ktime_get_tai_ns();
		if (!slot) {
			for (int i = 0; i < SPINS && now < gen->due; i++)
				now = bpf_ktime_get_tai_ns();
		}
	}
	if (now < gen->due) {
		gen->over = 1;
		return 0;
	}
	return now;
}

/* The load changes. */
static __always_inline void change(struct load_gen *gen)
{
	__u32 key = gen->change;
	struct load_change *now = bpf_map_lookup_elem(&load_changes, &key);

	if (now) {
		gen->step = now->step;
		gen->step_part = now->step_part;
	}
	key = ++gen->change;
	now = bpf_map_lookup_elem(&load_changes, &key);
	gen->change_at = now ? now->at : ~0ULL;
}

/* Notes a departure and sets when the next one is due. */
static __always_inline void departed(struct load_gen *gen, __u64 now)
{
	__u64 n = gen->next;

	if (n > gen->counted_from)
		hist_add(&gen->gaps, now - gen->last);
	else
		gen->first = now;
	gen->last = now;
	if (!gen->in_burst) {
		__u64 late = now - gen->due;

		if (n >= gen->counted_from)
			hist_add(&gen->late, late);
		if (late > catch_up) {
			gen->due = now;
			gen->behind += late;
		}
	}
	gen->next = ++n;
	if (++gen->in_burst < burst)
		return;
	gen->in_burst = 0;
	if (n > gen->change_at) {
		change(gen);
	}
	if (gen->behind) {
		__u64 made_up = gen->step >> 6;

		if (made_up > gen->behind)
			made_up = gen->behind;
		gen->behind -= made_up;
		gen->due -= made_up;
	}
	gen->due_part += gen->step_part;
	gen->due += gen->step + (gen->due_part >> 32);
	gen->due_part &= 0xffffffff;
}

SEC("xdp")
int sonde_load_tx(struct xdp_md *ctx)
{
	struct load_flow *flow;
	struct load_gen *gen;
	struct signature *s;
	__u32 key = 0, len = shortest, digest;
	__u64 now, who, sent, *words, *size;
	void *data, *end;

	gen = bpf_map_lookup_elem(&load_gen, &key);
	if (!gen || gen->stop || gen->next >= gen->frames)
		return XDP_DROP;
	gen->slots++;
	if (size_count > 1) {
		/* Before the clock is read: it may have to clear a thousand octets. */
		key = gen->size;
		size = bpf_map_lookup_elem(&load_sizes, &key);
		if (!size)
			return XDP_ABORTED;
		len = *size;
	}
	now = departure(gen);
	if (!now)
		return XDP_DROP;
	if (len != shortest && bpf_xdp_adjust_tail(ctx, len - shortest))
		return XDP_ABORTED;

	key = gen->flow;
	flow = bpf_map_lookup_elem(&load_flows, &key);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (!flow || data + header_words * 8 > end)
		return XDP_ABORTED;
	words = data;
#pragma unroll
	for (__u32 i = 0; i < HEADER_WORDS; i++) {
		if (i < header_words)
			words[i] = flow->header[i];
	}

	who = (__u64)SIGNATURE_MAGIC << 56 | (__u64)tag << 48 | (__u64)flow->stream << 32 |
	      (__u32)gen->next;
	sent = now & ((1ULL << TIME_BITS) - 1);
	digest = signature_digest(who, sent, len, secret0, secret1);
	if (len > FRAME_MAX || len < SIGNATURE_LEN)
		return XDP_ABORTED;
	s = data + (len - SIGNATURE_LEN);
	if ((void *)(s + 1) > end)
		return XDP_ABORTED;
	s->who = bpf_cpu_to_be64(who);
	s->sent_high = bpf_htons(sent >> 32);
	s->sent_low = bpf_htonl(sent);
	s->digest = bpf_htonl(digest);

	if (size_count > 1 || ipv6) {
		__be16 *udp = data + l4_at;
		__u32 l4_len = len - l4_at;

		if ((void *)(udp + 4) > end)
			return XDP_ABORTED;
		udp[2] = bpf_htons(l4_len);
		if (ipv6) {
			/* RFC 8200, section 8.1: never 0. The rest of the payload is zeros. */
			__be16 *ip = data + l3_at;
			__u32 sum = (who >> 48) + (who >> 32 & 0xffff) + (who >> 16 & 0xffff) +
				    (who & 0xffff) + (sent >> 32) + (sent >> 16 & 0xffff) +
				    (sent & 0xffff) + (digest >> 16) + (digest & 0xffff);

			if ((void *)(ip + 4) > end)
				return XDP_ABORTED;
			ip[2] = bpf_htons(l4_len);
			sum = folded(sum);
			if (len - l4_at & 1)
				sum = (sum & 0xff) << 8 | sum >> 8;
			sum = (__u16)~folded(flow->udp_sum + 2 * l4_len + sum);
			udp[3] = bpf_htons(sum ? sum : 0xffff);
		} else {
			__be16 *ip = data + l3_at;
			__u32 ip_len = len - l3_at;

			if ((void *)(ip + 10) > end)
				return XDP_ABORTED;
			ip[1] = bpf_htons(ip_len);
			ip[5] = bpf_htons((__u16)~folded(flow->ip_sum + ip_len));
		}
	}

	departed(gen, now);
	gen->flow = gen->flow + 1 < flow_count ? gen->flow + 1 : 0;
	if (size_count > 1)
		gen->size = gen->size + 1 < size_count ? gen->size + 1 : 0;
	return bpf_redirect(target, 0);
}

char LICENSE[] SEC("license") = "GPL";
