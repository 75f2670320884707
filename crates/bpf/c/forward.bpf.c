/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* An IPv4 and IPv6 router in XDP, by the kernel's own routes and neighbours: a device under
 * test (docs/lab.md). What it cannot do goes up to the kernel's router, which can: options,
 * VLAN tags, packets that end here or whose time is up, next hops not yet resolved. What
 * must not be forwarded (RFC 1812, section 5.2.2) is dropped. Each end has a counter.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORTS 2
/* Of <sys/socket.h>, which is not for programs without a C library. */
#define AF_INET 2
#define AF_INET6 10
/* RFC 8200, section 3: version, then traffic class and flow label. */
#define FLOWINFO_MASK bpf_htonl(0x0fffffff)

enum counter {
	FORWARDED,
	TO_KERNEL, /* not for XDP */
	MALFORMED, /* shorter than it says, or a wrong header checksum */
	REFUSED,   /* a route that says so: blackhole, unreachable, prohibit */
	COUNTERS,
};

struct counts {
	__u64 of[COUNTERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counters SEC(".maps");

/* The ports, as the loader finds them. */
struct port {
	__u32 ifindex;
	__u8 mac[8]; /* the last two are padding */
};

const volatile struct port ports[PORTS];

static __always_inline int end(enum counter counter, int verdict)
{
	__u32 zero = 0;
	struct counts *c = bpf_map_lookup_elem(&counters, &zero);

	if (c)
		c->of[counter]++;
	return verdict;
}

/* A router takes frames sent to it, and no others. */
static __always_inline bool is_ours(const struct ethhdr *eth, __u32 ifindex)
{
	const volatile struct port *p = &ports[ports[0].ifindex == ifindex ? 0 : 1];
	bool same = true;

	for (int i = 0; i < ETH_ALEN; i++)
		same &= eth->h_dest[i] == p->mac[i];
	return same;
}

/* RFC 1071, over a header without options. */
static __always_inline bool is_intact(const struct iphdr *ip)
{
	const __u16 *word = (const void *)ip;
	__u32 sum = 0;

	for (int i = 0; i < (int)sizeof(*ip) / 2; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* Whether the frame has room for that many octets after the Ethernet header. Most do in
 * their first buffer.
 */
static __always_inline bool holds(struct xdp_md *ctx, __u32 octets)
{
	__u32 needed = sizeof(struct ethhdr) + octets;

	return needed <= ctx->data_end - ctx->data || needed <= bpf_xdp_get_buff_len(ctx);
}

/* The TTL shares a 16-bit word with the protocol (RFC 1141). */
static __always_inline void decrease_ttl(struct iphdr *ip)
{
	__u32 check = ip->check;

	check += bpf_htons(0x0100);
	ip->check = (__u16)(check + (check >= 0xffff));
	ip->ttl--;
}

SEC("xdp.frags")
int sonde_forward(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct bpf_fib_lookup fib = {};
	struct ipv6hdr *ip6 = NULL;
	struct iphdr *ip4 = NULL;

	if ((void *)(eth + 1) > data_end || !is_ours(eth, ctx->ingress_ifindex))
		return end(TO_KERNEL, XDP_PASS);
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		ip4 = (void *)(eth + 1);
		if ((void *)(ip4 + 1) > data_end || ip4->version != 4 ||
		    bpf_ntohs(ip4->tot_len) < sizeof(*ip4))
			return end(MALFORMED, XDP_DROP);
		if (ip4->ihl != 5)
			return end(TO_KERNEL, XDP_PASS);
		if (!is_intact(ip4) || !holds(ctx, bpf_ntohs(ip4->tot_len)))
			return end(MALFORMED, XDP_DROP);
		if (ip4->ttl <= 1)
			return end(TO_KERNEL, XDP_PASS);
		fib.family = AF_INET;
		fib.tos = ip4->tos;
		fib.l4_protocol = ip4->protocol;
		fib.tot_len = bpf_ntohs(ip4->tot_len);
		fib.ipv4_src = ip4->saddr;
		fib.ipv4_dst = ip4->daddr;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		ip6 = (void *)(eth + 1);
		if ((void *)(ip6 + 1) > data_end || ip6->version != 6 ||
		    !holds(ctx, sizeof(*ip6) + bpf_ntohs(ip6->payload_len)))
			return end(MALFORMED, XDP_DROP);
		if (ip6->hop_limit <= 1)
			return end(TO_KERNEL, XDP_PASS);
		fib.family = AF_INET6;
		fib.flowinfo = *(__be32 *)ip6 & FLOWINFO_MASK;
		fib.l4_protocol = ip6->nexthdr;
		fib.tot_len = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
		__builtin_memcpy(fib.ipv6_src, &ip6->saddr, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &ip6->daddr, sizeof(fib.ipv6_dst));
	} else {
		return end(TO_KERNEL, XDP_PASS);
	}

	fib.ifindex = ctx->ingress_ifindex;
	switch (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		break;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return end(REFUSED, XDP_DROP);
	default: /* for this host, forwarding off, no neighbour yet, too long for the link */
		return end(TO_KERNEL, XDP_PASS);
	}
	if (ip4)
		decrease_ttl(ip4);
	else if (ip6)
		ip6->hop_limit--;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	return end(FORWARDED, bpf_redirect(fib.ifindex, 0));
}

char LICENSE[] SEC("license") = "GPL";
