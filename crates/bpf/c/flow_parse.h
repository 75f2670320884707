/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* From a frame to the unified header, as `wire::feature::parse` makes it: `quick` is its
 * `plain`, and the rest is its `slow.rs`, function by function.
 */
#ifndef SONDE_FLOW_PARSE_H
#define SONDE_FLOW_PARSE_H

#include "flow_tunnel.h"

#define LONGEST_UNSTATED (1 << 19) /* as in `slow.rs` */

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

/* An IP header, and what stands between it and the transport. */
struct ip_layer {
	__u64 source[2], destination[2];
	__u32 start, transport, end; /* in the frame; `end` may be beyond what there is */
	__u32 identification;
	__u8 protocol, tos, ttl, shape;
	__u8 broken;
};

static __always_inline int parse_ipv4(struct xdp_md *ctx, const struct below *b,
				      struct ip_layer *ip)
{
	struct iphdr h;
	__u32 header, total, fragment;

	if (!load(ctx, b, b->at, &h, sizeof(h)))
		return TRUNCATED;
	if (h.version != 4)
		return BAD_VERSION;
	header = h.ihl * 4;
	total = bpf_ntohs(h.tot_len);
	if (total == 0) /* as segmentation offload leaves it */
		total = b->wire_end > b->at ? b->wire_end - b->at : 0;
	if (header < sizeof(h) || total < header || total > LONGEST_UNSTATED)
		return BAD_LENGTH;
	ip->source[0] = 0;
	ip->source[1] = (__u64)h.saddr << 32 | 0xffff0000;
	ip->destination[0] = 0;
	ip->destination[1] = (__u64)h.daddr << 32 | 0xffff0000;
	ip->protocol = h.protocol;
	ip->tos = h.tos;
	ip->ttl = h.ttl;
	ip->start = b->at;
	ip->transport = b->at + header;
	ip->end = b->at + total;
	fragment = bpf_ntohs(h.frag_off);
	if (fragment & IP_MF_OR_OFFSET) {
		ip->shape = SHAPE_FRAGMENT;
		ip->identification = bpf_ntohs(h.id);
	}
	if (fragment & IP_OFFSET) {
		ip->shape |= SHAPE_LATER_FRAGMENT;
		return 0;
	}
	/* Authentication headers (RFC 4302). */
	for (__u32 i = 0; i < EXTENSIONS && ip->protocol == IPPROTO_AH; i++) {
		__u32 end = ip->end < b->end ? ip->end : b->end, length;
		__u8 e[2];

		if (ip->transport + 2 > end || !load(ctx, b, ip->transport, e, 2))
			break;
		length = (e[1] + 2) * 4;
		if (ip->transport + length > end)
			break;
		ip->protocol = e[0];
		ip->transport += length;
	}
	ip->broken = ip->protocol == IPPROTO_AH;
	return 0;
}

static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_AH ||
	       protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_MH || protocol == 139 /* HIP */ ||
	       protocol == 140 /* Shim6 */;
}

static __always_inline int parse_ipv6(struct xdp_md *ctx, const struct below *b,
				      struct ip_layer *ip)
{
	struct ipv6hdr h;
	__u32 length, room, end;
	__u64 *address = (void *)&h.saddr;

	if (!load(ctx, b, b->at, &h, sizeof(h)))
		return TRUNCATED;
	if (h.version != 6)
		return BAD_VERSION;
	length = bpf_ntohs(h.payload_len);
	if (length == 0) {
		end = b->at + sizeof(h);
		room = b->wire_end > end ? b->wire_end - end : 0;
		/* A jumbogram (RFC 2675; no frame here is as long as one says it is), or as
		 * segmentation offload leaves it.
		 */
		if (room > 0xffff || h.nexthdr == IPPROTO_HOPOPTS)
			length = room;
		if (length > LONGEST_UNSTATED)
			return BAD_LENGTH;
	}
	ip->source[0] = address[0];
	ip->source[1] = address[1];
	ip->destination[0] = address[2];
	ip->destination[1] = address[3];
	ip->protocol = h.nexthdr;
	ip->tos = bpf_ntohl(*(__be32 *)&h) >> 20;
	ip->ttl = h.hop_limit;
	ip->shape = SHAPE_IPV6;
	ip->start = b->at;
	ip->transport = b->at + sizeof(h);
	ip->end = ip->transport + length;
	end = ip->end < b->end ? ip->end : b->end;
	for (__u32 i = 0; i <= EXTENSIONS && is_extension(ip->protocol); i++) {
		__u8 e[8], kind = ip->protocol;

		/* Each is 8 octets or more. */
		if (i == EXTENSIONS || ip->transport + 8 > end ||
		    !load(ctx, b, ip->transport, e, sizeof(e))) {
			ip->broken = true;
			break;
		}
		length = kind == IPPROTO_FRAGMENT ? 8 :
			 kind == IPPROTO_AH ? (e[1] + 2) * 4 : (e[1] + 1) * 8;
		if (ip->transport + length > end) {
			ip->broken = true;
			break;
		}
		ip->transport += length;
		ip->protocol = e[0];
		if (kind != IPPROTO_FRAGMENT)
			continue;
		/* The last one counts; an atomic fragment (RFC 6946) is none. */
		ip->shape = SHAPE_IPV6;
		ip->identification = 0;
		if (e[2] || e[3] & 0xf9) {
			ip->shape |= SHAPE_FRAGMENT;
			ip->identification = (__u32)e[4] << 24 | e[5] << 16 | e[6] << 8 | e[7];
		}
		if (e[2] || e[3] & 0xf8) {
			ip->shape |= SHAPE_LATER_FRAGMENT;
			break;
		}
	}
	return 0;
}

__noinline int flow_ip(struct xdp_md *ctx, struct below *b, struct ip_layer *ip)
{
	if (!b || !ip)
		return BAD_LENGTH;
	if (b->type == ETH_P_IP)
		return parse_ipv4(ctx, b, ip);
	if (b->type == ETH_P_IPV6)
		return parse_ipv6(ctx, b, ip);
	return NOT_IP;
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

	if (ip->transport + 4 > end || !load(ctx, b, ip->transport, h, 4))
		return -1;
	f->destination_port = bpf_ntohs(h[1]);
	if (ip->protocol == IPPROTO_ICMP || ip->protocol == IPPROTO_ICMPV6)
		f->destination_port = bpf_ntohs(h[0]); /* type and code */
	else
		f->source_port = bpf_ntohs(h[0]);
	if (ip->transport + fixed > end)
		return -1;
	if (ip->protocol == IPPROTO_TCP) {
		if (!load(ctx, b, ip->transport, h, 20))
			return -1;
		length = bpf_ntohs(h[6]) >> 12 << 2;
	} else if (ip->protocol == IPPROTO_DCCP) {
		if (!load(ctx, b, ip->transport, h, 12))
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
	int done, length = 0;
	__u8 first;

	if (!f)
		return BAD_LENGTH;
	b.end = b.wire_end = bpf_xdp_get_buff_len(ctx);
	if (raw) {
		if (!load(ctx, &b, 0, &first, 1))
			return TRUNCATED;
		b.type = type_of(first);
	} else {
		__be16 type;

		if (b.end < ETH_HLEN || !load(ctx, &b, 12, &type, 2))
			return TRUNCATED;
		b.type = bpf_ntohs(type);
		b.at = ETH_HLEN;
	}
	done = flow_link(ctx, &b);
	if (!done)
		done = flow_ip(ctx, &b, &ip);
	if (done)
		return done;
	f->vlan = b.vlan;
	if (inner && !ip.broken && !(ip.shape & SHAPE_FRAGMENT)) {
		struct below in = {
			.at = ip.transport, .wire_end = ip.end,
			.end = ip.end < b.end ? ip.end : b.end,
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
	f->shape |= ip.shape;
	if (!(ip.shape & SHAPE_LATER_FRAGMENT)) {
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
	if (ip.shape & SHAPE_FRAGMENT)
		f->sequence = ip.identification;
	headers = (ip.transport + length - ip.start + 3) / 4;
	f->headers = headers > 255 ? 255 : headers;
	return 0;
}

static __always_inline bool is_tunnel(__be16 port)
{
	return port == bpf_htons(VXLAN_PORT) || port == bpf_htons(GTPU_PORT) ||
	       port == bpf_htons(GENEVE_PORT);
}

/* What nearly every packet is: Ethernet with one tag at most, IPv4 or IPv6 without options
 * or fragments, TCP or UDP, in one piece and without a contradiction. It goes from the
 * frame to its place in one step. False: for `flow_parse`.
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
		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(IP_MF_OR_OFFSET))
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
		if (inner && is_tunnel(udp->dest))
			return false;
		header += sizeof(*udp);
	} else {
		return false;
	}
	if (ip_len < header)
		return false;

	f = take_place(worker_of(s0, s1, d0, d1), ip_len);
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
