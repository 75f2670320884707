/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* From a frame to the unified header, as `wire::feature::parse` makes it: `quick` is its
 * `plain`, and the rest is its `slow.rs`.
 */
#ifndef SONDE_FLOW_PARSE_H
#define SONDE_FLOW_PARSE_H

#include "flow_feature.h"
#include "tunnel.h"

const volatile bool inner; /* the key is that inside a tunnel */

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

__noinline int flow_link(struct xdp_md *ctx, struct below *b)
{
	return b ? look_through(ctx, true, b) : WIRE_TYPE;
}

__noinline int flow_ip(struct xdp_md *ctx, struct below *b, struct ip_layer *ip)
{
	return b && ip ? read_ip(ctx, true, b, ip) : WIRE_TYPE;
}

__noinline int flow_tunnel(struct xdp_md *ctx, struct below *b)
{
	return b ? enter_tunnel(ctx, true, b) : WIRE_TYPE;
}

/* Length of the part of a transport header that is always there; 0: it is not read. */
static __always_inline __u32 fixed_length(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return 20;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return 8;
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		return 12;
	}
	return 0;
}

/* The transport's header of a packet that has one; its length, or -1. */
static __always_inline int read_transport(struct xdp_md *ctx, const struct below *b,
					  const struct ip_layer *ip, struct feature *f,
					  __u32 fixed)
{
	__u32 end = ip->end < b->end ? ip->end : b->end, length = fixed;
	__be16 h[10];

	if (ip->transport + 4 > end || !load(ctx, true, b, ip->transport, h, 4))
		return -1;
	f->destination_port = bpf_ntohs(h[1]);
	if (ip->protocol == IPPROTO_ICMP || ip->protocol == IPPROTO_ICMPV6)
		f->destination_port = bpf_ntohs(h[0]); /* type and code */
	else
		f->source_port = bpf_ntohs(h[0]);
	if (ip->transport + fixed > end)
		return -1;
	if (ip->protocol == IPPROTO_TCP) {
		if (!load(ctx, true, b, ip->transport, h, 20))
			return -1;
		length = bpf_ntohs(h[6]) >> 12 << 2;
	} else if (ip->protocol == IPPROTO_DCCP) {
		if (!load(ctx, true, b, ip->transport, h, 12))
			return -1;
		length = (bpf_ntohs(h[2]) >> 8) * 4;
	}
	if (length < fixed || length > ip->end - ip->transport)
		return -1;
	if (ip->protocol == IPPROTO_TCP) {
		f->sequence = (__u32)bpf_ntohs(h[2]) << 16 | bpf_ntohs(h[3]);
		f->tcp_flags = bpf_ntohs(h[6]) & 0xfff;
		f->window = bpf_ntohs(h[7]);
	}
	return length;
}

/* All that is not `quick`. 0, or why there is no record. */
__noinline int flow_parse(struct xdp_md *ctx, struct feature *f, bool raw)
{
	struct below b = {};
	struct ip_layer ip = {};
	__u32 fixed, headers;
	int error, length = 0;
	__u8 first;

	if (!f)
		return WIRE_TYPE;
	b.end = bpf_xdp_get_buff_len(ctx);
	if (raw) {
		if (!load(ctx, true, &b, 0, &first, 1))
			return WIRE_TRUNCATED;
		b.type = type_of(first);
	} else {
		__be16 type;

		if (b.end < ETH_HLEN || !load(ctx, true, &b, 12, &type, 2))
			return WIRE_TRUNCATED;
		b.type = bpf_ntohs(type);
		b.at = ETH_HLEN;
	}
	error = flow_link(ctx, &b);
	if (!error)
		error = flow_ip(ctx, &b, &ip);
	if (error)
		return error;
	f->vlan = b.vlan;
	if (inner && may_be_tunnel(&ip)) {
		struct below in = {
			.at = ip.transport, .end = ip.end < b.end ? ip.end : b.end,
			.type = ip.protocol,
		};
		struct ip_layer inside = {};

		/* What does not fit into this packet was not its tunnel's. */
		if (!flow_tunnel(ctx, &in) && !flow_link(ctx, &in) &&
		    !flow_ip(ctx, &in, &inside) && inside.end <= ip.end) {
			ip = inside;
			f->shape = SHAPE_INNER;
		}
	}
	f->source[0] = ip.source[0];
	f->source[1] = ip.source[1];
	f->destination[0] = ip.destination[0];
	f->destination[1] = ip.destination[1];
	f->ip_len = ip.end - ip.start;
	f->protocol = ip.protocol;
	f->tos = ip.tos;
	f->ttl = ip.ttl;
	f->shape |= (ip.v6 ? SHAPE_IPV6 : 0) | (ip.part & PART ? SHAPE_FRAGMENT : 0) |
		    (ip.part & LATER_PART ? SHAPE_LATER_FRAGMENT : 0);
	if (!(ip.part & LATER_PART)) {
		fixed = fixed_length(ip.protocol);
		if (ip.broken)
			length = -1;
		else if (fixed)
			length = read_transport(ctx, &b, &ip, f, fixed);
		if (length < 0) {
			f->shape |= SHAPE_NO_TRANSPORT;
			length = 0;
		}
	}
	if (ip.part)
		f->sequence = ip.identification;
	headers = (ip.transport + length - ip.start + 3) / 4;
	f->headers = headers > 255 ? 255 : headers;
	return 0;
}

/* What nearly every packet is: Ethernet with one tag at most, IPv4 or IPv6 without options or
 * fragments, TCP or UDP. It is in one piece and without a contradiction. It goes from the frame to
 * its slot in one step. False: for `flow_parse`.
 */
static __always_inline bool quick(struct xdp_md *ctx, __u32 point)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 s0 = 0, s1, d0 = 0, d1;
	struct ethhdr *eth = data;
	void *next = eth + 1;
	__u32 vlan = 0, header, ip_len;
	__u8 protocol, tos, ttl, shape = 0;
	struct feature *f;
	struct tcphdr *tcp;
	struct udphdr *udp;
	__be16 proto;

	if (next > end)
		return false;
	proto = eth->h_proto;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		struct vlan_tag *tag = next;

		next = tag + 1;
		if (next > end)
			return false;
		vlan = bpf_ntohs(tag->tci) & 0xfff;
		proto = tag->proto;
	}
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = next;

		header = sizeof(*ip);
		next = ip + 1;
		if (next + sizeof(*udp) > end)
			return false;
		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
			return false;
		ip_len = bpf_ntohs(ip->tot_len);
		protocol = ip->protocol;
		tos = ip->tos;
		ttl = ip->ttl;
		s1 = (__u64)ip->saddr << 32 | 0xffff0000;
		d1 = (__u64)ip->daddr << 32 | 0xffff0000;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = next;
		__u64 *address = (void *)&ip->saddr;

		header = sizeof(*ip);
		next = ip + 1;
		if (next + sizeof(*udp) > end)
			return false;
		if (ip->version != 6)
			return false;
		ip_len = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		protocol = ip->nexthdr;
		tos = bpf_ntohl(*(__be32 *)ip) >> 20;
		ttl = ip->hop_limit;
		shape = SHAPE_IPV6;
		s0 = address[0];
		s1 = address[1];
		d0 = address[2];
		d1 = address[3];
	} else {
		return false;
	}
	udp = next;
	tcp = next;
	if (protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end || tcp->doff * 4 < sizeof(*tcp))
			return false;
		header += tcp->doff * 4;
	} else if (protocol == IPPROTO_UDP) {
		if (inner && is_tunnel_port(udp->dest))
			return false;
		header += sizeof(*udp);
	} else {
		return false;
	}
	if (ip_len < header)
		return false;

	f = take_slot(worker_of(s0, s1, d0, d1), ip_len);
	if (!f)
		return true;
	f->source[0] = s0;
	f->source[1] = s1;
	f->destination[0] = d0;
	f->destination[1] = d1;
	f->source_port = bpf_ntohs(udp->source);
	f->destination_port = bpf_ntohs(udp->dest);
	f->ip_len = ip_len;
	f->vlan = vlan;
	f->protocol = protocol;
	f->tos = tos;
	f->ttl = ttl;
	f->shape = shape;
	f->headers = header / 4;
	f->point = point;
	if (protocol == IPPROTO_TCP) {
		f->sequence = bpf_ntohl(tcp->seq);
		f->tcp_flags = bpf_ntohs(*((__be16 *)tcp + 6)) & 0xfff;
		f->window = bpf_ntohs(tcp->window);
	} else {
		f->sequence = 0;
		f->tcp_flags = 0;
		f->window = 0;
	}
	publish(f, bpf_ktime_get_ns() + time_base);
	return true;
}

#endif
