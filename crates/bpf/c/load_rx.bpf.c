/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The analyser of test frames at the port where they arrive: counts each frame once, and finds what
 * was lost, repeated, overtaken or changed. It keeps the distributions of latency and its
 * variation. What is no test frame goes on to the kernel.
 *
 * A receive queue is emptied by one processor at a time, and has a state of its own: so
 * nothing here waits for anybody. What the queues share is said where it is declared.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "load_signature.h"
#include "parse.h"

#define QUEUES 16
#define WORST 16
#define SLOTS 3600
#define RECENT 256
#define STREAMS 65536
#define WINDOW (1ULL << 26) /* frames that the bitmap holds */
#define FRAME_MAX 16383

struct load_worst {
	__s64 latency;
	__u64 sequence;
	__u64 received_ns;
	__u64 stream;
};

struct load_rx {
	__u64 received;
	__u64 bytes; /* without the FCS */
	__u64 duplicates;
	__u64 reordered;
	__u64 corrupted;
	__u64 stray;
	__u64 overrun; /* too far from the others for the bitmap */
	__u64 passed;
	__u64 first; /* arrivals, ns TAI */
	__u64 last;
	__u64 gap;   /* the longest time between two arrivals */
	__u64 after; /* one more than the greatest sequence number */
	__u64 jitter16; /* RFC 3550, section A.8: 16 times the jitter */
	__s64 before;   /* latency of the frame that arrived before */
	__u64 slot;     /* of the time series */
	__u64 slot_end; /* ns TAI */
	__u64 worst_count;
	__s64 worst_least;
	struct load_worst worst[WORST];
	struct load_hist latency;
	struct load_hist ipdv;
	struct load_hist jitter;
};

/* What a trial is, set by user space while no frame can match. */
struct load_trial {
	__u64 tag; /* 256: none is under way */
	__u64 frames;
	__u64 counted_from; /* frames before this one are in none of the counts */
	__u64 start;	    /* ns TAI, of that one */
	__u64 slot_length; /* ns */
	__u64 floor; /* frames below are settled, and their bits are of others by now */
	__s64 length_change; /* octets by which a frame arrives longer than it left */
	__s64 clock_offset; /* ns by which the sender's clock is behind this host's */
};

struct load_slot {
	__u64 received;
	__s64 min;
	__s64 max;
};

struct load_stream {
	__u64 received;
	__u64 after; /* one more than its greatest sequence number */
};

struct load_recent {
	__u64 after; /* the frame's sequence number and 1 */
	__s64 latency;
};

const volatile __u64 secret0;
const volatile __u64 secret1;
const volatile __u32 queues;	/* of the interface: at most QUEUES */
const volatile __u32 long_frames; /* a frame may lie in several buffers */
const volatile __u32 tagged;	/* the kernel may have taken a VLAN tag out of a frame */
const volatile __u32 check_mac;
const volatile __u32 mac_high; /* as they lie in a frame */
const volatile __u16 mac_low;

#define SHARED(name, of, count)                         \
	struct {                                        \
		__uint(type, BPF_MAP_TYPE_ARRAY);       \
		__uint(map_flags, BPF_F_MMAPABLE);      \
		__uint(max_entries, count);             \
		__type(key, __u32);                     \
		__type(value, of);                      \
	} name SEC(".maps")

SHARED(load_rx, struct load_rx, QUEUES);
SHARED(load_trial, struct load_trial, 1);
SHARED(load_slots, struct load_slot, QUEUES * SLOTS);
/* A bit a frame, set by an atomic operation where there are several queues. */
SHARED(load_seen, __u64, WINDOW / 64);
/* A stream comes by one queue (receive side scaling), or its counts are too low. */
SHARED(load_streams, struct load_stream, STREAMS);
/* Two queues can overwrite each other's entries: then a difference is missing. */
SHARED(load_recent, struct load_recent, RECENT);

/* A frame with the mark and a wrong digest is one of ours that was changed if it looks like one.
 * One in 256 of all others has that octet, too.
 */
static __always_inline bool looks_like_ours(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct packet p;
	enum parsed what;

	if ((void *)(eth + 1) > end)
		return false;
	if (eth->h_proto == bpf_htons(ETH_P_MPLS_UC))
		return true;
	what = parse(data, end, &p);
	return what == PARSED_UDP || what == PARSED_EXTENSION;
}

static __always_inline void note_worst(struct load_rx *rx, __s64 latency, __u64 sequence, __u64 now,
				       __u16 stream)
{
	struct load_worst *entry = &rx->worst[0];
	__s64 least;

	if (rx->worst_count < WORST) {
		entry = &rx->worst[rx->worst_count & (WORST - 1)];
		rx->worst_count++;
	} else {
#pragma unroll
		for (int i = 1; i < WORST; i++) {
			if (rx->worst[i].latency < entry->latency)
				entry = &rx->worst[i];
		}
	}
	entry->latency = latency;
	entry->sequence = sequence;
	entry->received_ns = now;
	entry->stream = stream;
	if (rx->worst_count < WORST)
		return;
	least = rx->worst[0].latency;
#pragma unroll
	for (int i = 1; i < WORST; i++) {
		if (rx->worst[i].latency < least)
			least = rx->worst[i].latency;
	}
	rx->worst_least = least;
}

static __always_inline void note_slot(struct load_rx *rx, const struct load_trial *trial,
				      __u32 queue, __s64 latency, __u64 now)
{
	struct load_slot *slot;
	__u64 index;
	__u32 key;

	if (now >= rx->slot_end) {
		index = now > trial->start ? (now - trial->start) / trial->slot_length : 0;
		rx->slot = index < SLOTS ? index : SLOTS - 1;
		rx->slot_end = index < SLOTS - 1 ?
				       trial->start + (index + 1) * trial->slot_length : ~0ULL;
	}
	key = queue * SLOTS + rx->slot;
	slot = bpf_map_lookup_elem(&load_slots, &key);
	if (!slot)
		return;
	if (!slot->received || latency < slot->min)
		slot->min = latency;
	if (!slot->received || latency > slot->max)
		slot->max = latency;
	slot->received++;
}

/* RFC 3393 in the order of sending, for frames no further apart in arrival than RECENT. */
static __always_inline void note_ipdv(struct load_rx *rx, __u64 sequence, __s64 latency)
{
	struct load_recent *r;
	__u32 key = (sequence - 1) & (RECENT - 1);

	r = bpf_map_lookup_elem(&load_recent, &key);
	if (r && sequence && r->after == sequence)
		hist_add(&rx->ipdv, latency - r->latency);
	/* Only of this queue's own frames is it known which was the last. */
	if (queues > 1 || sequence + 1 < rx->after) {
		/* It was overtaken: the one sent after it may have been here. */
		key = (sequence + 1) & (RECENT - 1);
		r = bpf_map_lookup_elem(&load_recent, &key);
		if (r && r->after == sequence + 2)
			hist_add(&rx->ipdv, r->latency - latency);
	}
	key = sequence & (RECENT - 1);
	r = bpf_map_lookup_elem(&load_recent, &key);
	if (r) {
		r->after = sequence + 1;
		r->latency = latency;
	}
}

static __always_inline void note_delays(struct load_rx *rx, const struct load_trial *trial,
					__u32 queue, __u64 sequence, __s64 latency, __u64 now,
					__u16 stream)
{
	__s64 change;

	hist_add(&rx->latency, latency);
	note_ipdv(rx, sequence, latency);
	if (rx->received > 1) {
		/* RFC 4689, section 3.2.5; and RFC 3550, section A.8. */
		change = latency - rx->before;
		if (change < 0)
			change = -change;
		hist_add(&rx->jitter, change);
		rx->jitter16 += change - ((rx->jitter16 + 8) >> 4);
	}
	rx->before = latency;
	note_slot(rx, trial, queue, latency, now);
	if (rx->worst_count < WORST || latency > rx->worst_least)
		note_worst(rx, latency, sequence, now, stream);
}

/* One of this trial's frames, whole. */
static __always_inline void arrived(struct load_rx *rx, const struct load_trial *trial, __u32 queue,
				    __u64 who, __u64 sent, __u32 len, __u64 now)
{
	__u64 sequence, *seen, old, bit;
	struct load_stream *stream;
	__u32 key;

	/* The low 32 bits of it are known, and a sequence number within 2^31 of it. */
	sequence = rx->after + (__s32)((__u32)who - (__u32)rx->after);
	if (sequence >= trial->frames) {
		rx->stray++;
		return;
	}
	if (sequence < trial->counted_from)
		return;
	if (sequence - trial->floor >= WINDOW) {
		rx->overrun++;
		return;
	}
	key = (sequence & (WINDOW - 1)) / 64;
	seen = bpf_map_lookup_elem(&load_seen, &key);
	if (!seen)
		return;
	bit = 1ULL << (sequence & 63);
	if (queues > 1) {
		old = __sync_fetch_and_or(seen, bit);
	} else {
		old = *seen;
		*seen = old | bit;
	}
	if (old & bit) {
		rx->duplicates++;
		return;
	}
	if (!rx->received)
		rx->first = now;
	else if (now - rx->last > rx->gap)
		rx->gap = now - rx->last;
	rx->last = now;
	rx->received++;
	rx->bytes += len;

	key = who >> 32 & (STREAMS - 1);
	stream = bpf_map_lookup_elem(&load_streams, &key);
	if (stream) {
		stream->received++;
		/* RFC 4737, section 3.3. */
		if (sequence >= stream->after)
			stream->after = sequence + 1;
		else
			rx->reordered++;
	}
	note_delays(rx, trial, queue, sequence,
		    (__s64)((now - trial->clock_offset - sent) << (64 - TIME_BITS)) >>
			    (64 - TIME_BITS), now, key);
	if (sequence >= rx->after)
		rx->after = sequence + 1;
}

SEC("xdp.frags")
int sonde_load_rx(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 key = 0, queue = 0, len = end - data, sent_len, digest;
	struct signature copy, *s;
	struct load_trial *trial;
	struct load_rx *rx;
	__u64 now, who, sent;
	bool whole;

	now = bpf_ktime_get_tai_ns();
	if (queues > 1)
		queue = ctx->rx_queue_index & (QUEUES - 1);
	rx = bpf_map_lookup_elem(&load_rx, &queue);
	trial = bpf_map_lookup_elem(&load_trial, &key);
	if (!rx || !trial)
		return XDP_PASS;
	if (long_frames && (key = bpf_xdp_get_buff_len(ctx)) != len) {
		len = key;
		if (len < SIGNATURE_LEN ||
		    bpf_xdp_load_bytes(ctx, len - SIGNATURE_LEN, &copy, SIGNATURE_LEN))
			goto pass;
	} else {
		key = len - SIGNATURE_LEN;
		if (key > FRAME_MAX - SIGNATURE_LEN)
			goto pass;
		s = data + key;
		if ((void *)(s + 1) > end)
			goto pass;
		copy = *s;
	}
	who = bpf_be64_to_cpu(copy.who);
	if (who >> 56 != SIGNATURE_MAGIC)
		goto pass;
	sent = (__u64)bpf_ntohs(copy.sent_high) << 32 | bpf_ntohl(copy.sent_low);
	digest = bpf_ntohl(copy.digest);
	sent_len = len - trial->length_change;
	whole = signature_digest(who, sent, sent_len, secret0, secret1) == digest;
	/* The kernel keeps a tag that a driver or VLAN device set beside the frame. */
	if (!whole && tagged)
		whole = signature_digest(who, sent, sent_len + 4, secret0, secret1) == digest;
	if (!whole) {
		if (!looks_like_ours(ctx))
			goto pass;
		rx->corrupted++;
		return XDP_DROP;
	}
	if ((who >> 48 & 0xff) != trial->tag) {
		rx->stray++;
		return XDP_DROP;
	}
	if (check_mac) {
		data = (void *)(long)ctx->data;
		if (data + ETH_HLEN > (void *)(long)ctx->data_end)
			goto pass;
		if (*(__u32 *)data != mac_high || *(__u16 *)(data + 4) != mac_low) {
			rx->stray++;
			return XDP_DROP;
		}
	}
	arrived(rx, trial, queue, who, sent, len, now);
	return XDP_DROP;
pass:
	rx->passed++;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
