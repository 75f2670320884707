/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Independent stamps of STAMP packets at one interface: what the time stamps that an
 * engine reports are held against (see docs/stamps.md). It reads, and changes nothing.
 *
 * Five points, since no single one sees every engine:
 *   tc egress    before the stack hands a packet to the driver. What bypasses the queueing
 *                layer (af_packet here, all of AF_XDP) never comes by.
 *   handed over  veth has put a packet into its peer's queue and asks for somebody to
 *                empty it: the tracepoint softirq_raise. It does not get the packet; the
 *                next one that is released on this processor is it.
 *   released     the driver lets go of a packet, whoever sent it: the tracepoint
 *                consume_skb.
 *   tc ingress   after the packet sockets, before IP. What XDP takes never comes by.
 *   redirected   XDP has put a packet into an AF_XDP socket's ring: the tracepoint
 *                xdp_redirect. It does not get the packet; the ring's last entry is it.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_xdp.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Octets of a STAMP packet up to the end of the sequence number that a reply repeats. */
#define STAMP_HEAD 28
#define NO_MAC_HEADER 0xffff
#define NETDEV_ALIGN 32ULL
#define NET_RX_SOFTIRQ 3

enum point {
	TC_EGRESS,
	HANDED_OVER,
	RELEASED,
	TC_INGRESS,
	REDIRECTED,
};

/* 32 octets; `ns` is 0 until all else is written. */
struct event {
	__u64 ns;
	__be32 far[4]; /* IPv4 as ::ffff:a.b.c.d */
	__be32 sequence;
	__be16 near_port;
	__u8 point;
	__u8 unused;
};

/* As far as we read. The first two octets put IP on a multiple of four. */
struct frame {
	__u16 unused;
	struct ethhdr eth;
	union {
		struct {
			struct iphdr ip;
			struct udphdr udp;
			__u8 stamp[STAMP_HEAD];
		} v4;
		struct {
			struct ipv6hdr ip;
			struct udphdr udp;
			__u8 stamp[STAMP_HEAD];
		} v6;
	};
};

#define V4_LEN (sizeof(struct ethhdr) + sizeof(((struct frame *)0)->v4))
#define V6_LEN (sizeof(struct ethhdr) + sizeof(((struct frame *)0)->v6))

/* Of the kernel's own structures, the members that are read here: they are found by
 * name when the program is loaded.
 */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	__u16 mac_header;
	unsigned char *head;
};

struct xdp_ring;

struct xdp_rxtx_ring {
	struct xdp_desc desc[0];
};

struct xsk_queue {
	__u32 ring_mask;
	__u32 cached_prod;
	struct xdp_ring *ring;
};

struct xsk_buff_pool {
	void *addrs;
};

struct xdp_sock {
	struct xsk_queue *rx;
	struct xsk_buff_pool *pool;
};

#pragma clang attribute pop

const volatile __be16 port;
const volatile __u32 ifindex;
const volatile __u64 netns; /* cookie of the interface's network namespace */

/* Events so far, those without an entry in the log included. */
__u64 taken;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

/* When the receiving softirq was last asked for on this processor; 0: has been used. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} raised SEC(".maps");

static __always_inline __u64 *last_raised(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&raised, &zero);
}

static __always_inline bool is_near(const struct net_device *dev)
{
	return BPF_CORE_READ(dev, ifindex) == (int)ifindex &&
	       BPF_CORE_READ(dev, nd_net.net, net_cookie) == netns;
}

/* Virtual Ethernet gives a packet its peer's name before it lets go of it. The pointer to the other
 * end is the first thing in the driver's own part of a device. In a device of another kind it leads
 * nowhere, and the reads below survive that.
 */
static __always_inline const struct net_device *veth_peer(const struct net_device *dev)
{
	const struct net_device *peer = NULL;
	__u64 own = (bpf_core_type_size(struct net_device) + NETDEV_ALIGN - 1) & -NETDEV_ALIGN;

	bpf_probe_read_kernel(&peer, sizeof(peer), (const void *)dev + own);
	return peer;
}

static __always_inline bool is_outgoing(enum point point)
{
	return point <= RELEASED;
}

static __always_inline bool load(struct __sk_buff *skb, const void *kernel, __u32 at, void *to,
				 __u32 len)
{
	if (skb)
		return bpf_skb_load_bytes(skb, at, to, len) == 0;
	return bpf_probe_read_kernel(to, len, kernel + at) == 0;
}

/* Of the UDP header and the payload: whether it is a probe on its way out or a reply on
 * its way in, and which.
 */
static __always_inline bool identify(enum point point, const struct udphdr *udp,
				     const __u8 *stamp, struct event *e)
{
	bool out = is_outgoing(point);

	if ((out ? udp->dest : udp->source) != port)
		return false;
	e->near_port = out ? udp->source : udp->dest;
	/* The base packet, RFC 8762, section 4.2.1: the sequence number comes first; in
	 * section 4.3.1 the sender's stands in octets 24 to 27.
	 */
	e->sequence = *(const __be32 *)(out ? stamp : stamp + 24);
	return true;
}

/* The frame is in `skb`, or else at `kernel`. Untagged, no IPv4 options or IPv6 extension
 * headers: the senders that are measured use none.
 */
static __always_inline bool read_frame(enum point point, struct __sk_buff *skb,
				       const void *kernel, struct event *e)
{
	struct frame f;
	bool out = is_outgoing(point);

	if (!load(skb, kernel, 0, &f.eth, V4_LEN))
		return false;
	if (f.eth.h_proto == bpf_htons(ETH_P_IP)) {
		if (f.v4.ip.version != 4 || f.v4.ip.ihl != 5 || f.v4.ip.protocol != IPPROTO_UDP)
			return false;
		e->far[0] = 0;
		e->far[1] = 0;
		e->far[2] = bpf_htonl(0xffff);
		e->far[3] = out ? f.v4.ip.daddr : f.v4.ip.saddr;
		return identify(point, &f.v4.udp, f.v4.stamp, e);
	}
	if (f.eth.h_proto == bpf_htons(ETH_P_IPV6)) {
		const struct in6_addr *far = out ? &f.v6.ip.daddr : &f.v6.ip.saddr;

		if (f.v6.ip.nexthdr != IPPROTO_UDP)
			return false;
		if (!load(skb, kernel, V4_LEN, (void *)&f.eth + V4_LEN, V6_LEN - V4_LEN))
			return false;
		for (int i = 0; i < 4; i++)
			e->far[i] = far->in6_u.u6_addr32[i];
		return identify(point, &f.v6.udp, f.v6.stamp, e);
	}
	return false;
}

static __always_inline void keep(enum point point, __u64 ns, const struct event *seen)
{
	__u64 index = __sync_fetch_and_add(&taken, 1);
	__u32 key = index;
	struct event *e;

	if (index >> 32)
		return;
	e = bpf_map_lookup_elem(&events, &key);
	if (!e)
		return; /* full; the loader sees it by `taken` */
	__builtin_memcpy(e->far, seen->far, sizeof(e->far));
	e->sequence = seen->sequence;
	e->near_port = seen->near_port;
	e->point = point;
	/* A locked operation: nobody sees the time before the rest. */
	__sync_fetch_and_add(&e->ns, ns);
}

/* Stamped as late as can be, since T1 comes after it. */
SEC("tcx/egress")
int sonde_tc_egress(struct __sk_buff *skb)
{
	struct event e;

	if (read_frame(TC_EGRESS, skb, NULL, &e))
		keep(TC_EGRESS, bpf_ktime_get_tai_ns(), &e);
	return TC_ACT_UNSPEC; /* TCX_NEXT */
}

SEC("tcx/ingress")
int sonde_tc_ingress(struct __sk_buff *skb)
{
	__u64 ns = bpf_ktime_get_tai_ns();
	struct event e;

	if (read_frame(TC_INGRESS, skb, NULL, &e))
		keep(TC_INGRESS, ns, &e);
	return TC_ACT_UNSPEC; /* TCX_NEXT */
}

SEC("tp_btf/softirq_raise")
int sonde_raised(__u64 *args)
{
	__u64 *last = last_raised();

	if (last && (__u32)args[0] == NET_RX_SOFTIRQ)
		*last = bpf_ktime_get_tai_ns();
	return 0;
}

/* Runs for every buffer that anybody frees; the port distinguishes most of them from ours. Those
 * that bring a transmit stamp to the error queue have no packet inside.
 */
SEC("tp_btf/consume_skb")
int sonde_released(__u64 *args)
{
	struct sk_buff *skb = (void *)args[0];
	struct event e;
	__u64 *last;
	__u64 ns;

	if (skb->len < V4_LEN || skb->mac_header == NO_MAC_HEADER)
		return 0;
	ns = bpf_ktime_get_tai_ns();
	if (!read_frame(RELEASED, NULL, skb->head + skb->mac_header, &e))
		return 0;
	if (!is_near(skb->dev) && !is_near(veth_peer(skb->dev)))
		return 0;
	/* Used once: further packets of the same round of the softirq have none. */
	last = last_raised();
	if (last && *last) {
		keep(HANDED_OVER, *last, &e);
		*last = 0;
	}
	keep(RELEASED, ns, &e);
	return 0;
}

SEC("tp_btf/xdp_redirect")
int sonde_redirected(__u64 *args)
{
	const struct net_device *dev = (void *)args[0];
	const struct xdp_sock *to = (void *)args[2];
	__u32 map_type = args[4];
	const struct xdp_rxtx_ring *ring;
	const struct xsk_queue *rx;
	struct xdp_desc desc;
	struct event e;
	void *memory;
	__u32 last;
	__u64 ns;

	if (map_type != BPF_MAP_TYPE_XSKMAP || !is_near(dev))
		return 0;
	ns = bpf_ktime_get_tai_ns();
	rx = BPF_CORE_READ(to, rx);
	ring = (const void *)BPF_CORE_READ(rx, ring);
	last = (BPF_CORE_READ(rx, cached_prod) - 1) & BPF_CORE_READ(rx, ring_mask);
	if (bpf_core_read(&desc, sizeof(desc), &ring->desc[last]))
		return 0;
	memory = BPF_CORE_READ(to, pool, addrs);
	if (read_frame(REDIRECTED, NULL, memory + desc.addr, &e))
		keep(REDIRECTED, ns, &e);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
