/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The AF_XDP tap: takes the packets of one instrument, stamps them, and leaves
 * all other traffic to the kernel, untouched.
 *
 * The stamps lie in the 24 octets before the frame (`struct stamp`). A reader of the AF_XDP buffer
 * finds them there without another map or ring.
 */
#include "meta.h"
#include "parse.h"

#define PORT_WORDS 1024

enum counter {
	MATCHED,
	PASSED,
	NO_META,
	NO_SOCKET,
	COUNTERS,
};

struct counters {
	__u64 n[COUNTERS];
};

const volatile __u64 local_ports[PORT_WORDS];
const volatile __u64 peer_ports[PORT_WORDS];
const volatile bool any_peer_port;
const volatile bool any_local_address;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1); /* set by the loader: queues of the interface */
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, LPM_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct lpm_key);
	__type(value, __u8);
} local_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym __weak;

static __always_inline void count(enum counter which)
{
	__u32 zero = 0;
	struct counters *c = bpf_map_lookup_elem(&counters, &zero);

	if (c)
		c->n[which]++;
}

static __always_inline bool has_port(const volatile __u64 *set, __be16 port)
{
	__u32 p = bpf_ntohs(port);

	return set[(p >> 6) & (PORT_WORDS - 1)] >> (p & 63) & 1;
}

static __always_inline bool wanted(struct xdp_md *ctx)
{
	struct packet p;
	struct lpm_key key;

	if (parse((void *)(long)ctx->data, (void *)(long)ctx->data_end, &p) != PARSED_UDP)
		return false;
	if (!has_port(local_ports, p.udp->dest))
		return false;
	if (!any_peer_port && !has_port(peer_ports, p.udp->source))
		return false;
	if (any_local_address)
		return true;
	if (p.v4) {
		lpm_key4(&key, p.ip4->daddr);
	} else {
		if (is_mapped(&p.ip6->daddr))
			return false;
		lpm_key6(&key, &p.ip6->daddr);
	}
	return bpf_map_lookup_elem(&local_addresses, &key) != NULL;
}

static __always_inline int hand_over(struct xdp_md *ctx, __u64 ns, __u64 card)
{
	bool stamped = bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct stamp)) == 0;
	int verdict;

	if (stamped) {
		struct stamp *s = (void *)(long)ctx->data_meta;

		if ((void *)(s + 1) > (void *)(long)ctx->data)
			return XDP_ABORTED; /* cannot be; the verifier wants to see it */
		s->magic = META_MAGIC;
		s->wire_len = 0;
		s->ns = ns;
		s->card = card;
	} else {
		count(NO_META);
	}

	verdict = bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
	if (verdict != XDP_REDIRECT) {
		/* No socket on this queue: on to the kernel. Metadata that differs from
		 * packet to packet would keep GRO from joining them, so take it back.
		 */
		if (stamped)
			bpf_xdp_adjust_meta(ctx, sizeof(struct stamp));
		count(NO_SOCKET);
		return verdict;
	}
	count(MATCHED);
	return verdict;
}

SEC("xdp")
int sonde_xsk(struct xdp_md *ctx)
{
	if (!wanted(ctx)) {
		count(PASSED);
		return XDP_PASS;
	}
	return hand_over(ctx, bpf_ktime_get_tai_ns(), 0);
}

/* For drivers that hand out the card's receive stamp. Bound to one device when
 * it is loaded. A driver without a stamp for this packet answers with an error,
 * or (veth) with success and zero. The clock is read all the same: user space
 * judges by it what it is to believe of the card's.
 */
SEC("xdp")
int sonde_xsk_hw(struct xdp_md *ctx)
{
	__u64 ns, card = 0;

	if (!wanted(ctx)) {
		count(PASSED);
		return XDP_PASS;
	}
	ns = bpf_ktime_get_tai_ns();
	if (bpf_xdp_metadata_rx_timestamp(ctx, &card) != 0)
		card = 0;
	return hand_over(ctx, ns, card);
}

char LICENSE[] SEC("license") = "GPL";
