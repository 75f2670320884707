/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* IP's header with what stands between it and the transport, as `wire/src/ip.rs` reads it. Also the
 * packet that it carries in a tunnel, as `wire/src/tunnel.rs` finds it: IP in IP (RFC 2003, RFC
 * 2473, RFC 4213), GRE (RFC 2784, RFC 2890), VXLAN (RFC 7348), GENEVE (RFC 8926), GTP-U (3GPP TS
 * 29.281).
 */
#ifndef SONDE_TUNNEL_H
#define SONDE_TUNNEL_H

#include "link.h"
#include <linux/in.h>
#include <linux/ip.h>

#define EXTENSIONS 8
#define GTPU_EXTENSIONS 4
#define BRIDGED 0x6558 /* in GRE and GENEVE: an Ethernet frame */
#define VXLAN_PORT 4789
#define GTPU_PORT 2152
#define GENEVE_PORT 6081
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#define LONGEST_UNSTATED (1 << 19) /* as in `ip.rs` */
#define NO_TUNNEL 100 /* beside `enum wire_error`: and nothing is wrong */

/* Bits: of a fragment; of one that is not the first. */
#define PART 1
#define LATER_PART 2

/* Along the extension headers of IPv6 (RFC 8200, section 4), or the authentication headers of
 * IPv4 (RFC 4302).
 */
struct walk {
	__u32 at;
	__u32 end; /* of IP's payload */
	__u32 identification;
	__u8 protocol;
	__u8 part; /* by the last fragment header; an atomic fragment (RFC 6946) is none */
	bool v4;
};

/* An IP header, and what stands between it and the transport. */
struct ip_layer {
	__u64 source[2], destination[2];
	__u32 start, transport, end; /* in the packet; `end` may be beyond what there is */
	__u32 identification; /* of a fragment */
	__u8 protocol, tos, ttl;
	__u8 part;
	bool v6;
	__u8 broken; /* what stands before the transport: enum wire_error */
};

static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_AH ||
	       protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_MH || protocol == 139 /* HIP */ ||
	       protocol == 140 /* Shim6 */;
}

static __always_inline int walk_extensions(void *ctx, bool xdp, struct walk *w)
{
	struct below b = { .end = w->end };

	for (__u32 i = 0; w->v4 ? w->protocol == IPPROTO_AH : is_extension(w->protocol); i++) {
		__u8 e[8], kind = w->protocol;
		__u32 length;

		if (i >= EXTENSIONS)
			return WIRE_EXTENSION_DEPTH;
		/* Each is 8 octets or more. */
		if (!load(ctx, xdp, &b, w->at, e, sizeof(e)))
			return WIRE_TRUNCATED;
		length = kind == IPPROTO_FRAGMENT ? 8 :
			 kind == IPPROTO_AH ? (e[1] + 2) * 4 : (e[1] + 1) * 8;
		if (w->at + length > w->end)
			return WIRE_TRUNCATED;
		w->at += length;
		w->protocol = e[0];
		if (kind != IPPROTO_FRAGMENT)
			continue;
		w->part = e[2] || e[3] & 0xf9 ? PART : 0;
		w->identification = (__u32)e[4] << 24 | e[5] << 16 | e[6] << 8 | e[7];
		if (e[2] || e[3] & 0xf8) {
			w->part = PART | LATER_PART;
			break;
		}
	}
	return 0;
}

/* Octets of an IPv4 packet where `room` are left. 0: as segmentation offload leaves it. */
static __always_inline __u32 ipv4_length(const struct iphdr *ip, __u32 room, bool gso)
{
	__u32 total = bpf_ntohs(ip->tot_len);

	return gso || total == 0 ? room : total;
}

/* Octets behind IPv6's fixed header where `room` are left. 0: a jumbogram (RFC 2675; no packet here
 * is as long as one says it is), or as segmentation offload leaves it.
 */
static __always_inline __u32 ipv6_length(const struct ipv6hdr *ip, __u32 room, bool gso)
{
	__u32 length = bpf_ntohs(ip->payload_len);

	return gso || (length == 0 && (room > 0xffff || ip->nexthdr == IPPROTO_HOPOPTS)) ? room :
											   length;
}

static __always_inline int read_ipv4(void *ctx, bool xdp, const struct below *b,
				     struct ip_layer *ip)
{
	__u32 header, total, fragment;
	struct iphdr h;

	if (!load(ctx, xdp, b, b->at, &h, sizeof(h)))
		return WIRE_TRUNCATED;
	if (h.version != 4)
		return WIRE_VERSION;
	header = h.ihl * 4;
	total = ipv4_length(&h, b->end - b->at, b->gso);
	if (header < sizeof(h) || total < header || total > LONGEST_UNSTATED)
		return WIRE_LENGTH;
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
	if (fragment & (IP_MF | IP_OFFSET)) {
		ip->part = fragment & IP_OFFSET ? PART | LATER_PART : PART;
		ip->identification = bpf_ntohs(h.id);
	}
	return 0;
}

static __always_inline int read_ipv6(void *ctx, bool xdp, const struct below *b,
				     struct ip_layer *ip)
{
	struct ipv6hdr h;
	__u64 *address = (void *)&h.saddr;
	__u32 length;

	if (!load(ctx, xdp, b, b->at, &h, sizeof(h)))
		return WIRE_TRUNCATED;
	if (h.version != 6)
		return WIRE_VERSION;
	length = ipv6_length(&h, b->end - b->at - sizeof(h), b->gso);
	if (length > LONGEST_UNSTATED)
		return WIRE_LENGTH;
	ip->source[0] = address[0];
	ip->source[1] = address[1];
	ip->destination[0] = address[2];
	ip->destination[1] = address[3];
	ip->protocol = h.nexthdr;
	ip->tos = bpf_ntohl(*(__be32 *)&h) >> 20;
	ip->ttl = h.hop_limit;
	ip->v6 = true;
	ip->start = b->at;
	ip->transport = b->at + sizeof(h);
	ip->end = ip->transport + length;
	return 0;
}

/* `ip` must be empty. */
static __always_inline int read_ip(void *ctx, bool xdp, const struct below *b,
				   struct ip_layer *ip)
{
	int error = b->type == ETH_P_IP ? read_ipv4(ctx, xdp, b, ip) :
		    b->type == ETH_P_IPV6 ? read_ipv6(ctx, xdp, b, ip) : WIRE_ETHERTYPE;
	struct walk w = {
		.at = ip->transport, .end = ip->end < b->end ? ip->end : b->end,
		.identification = ip->identification, .protocol = ip->protocol,
		.part = ip->part, .v4 = !ip->v6,
	};

	if (error || ip->part & LATER_PART)
		return error;
	ip->broken = walk_extensions(ctx, xdp, &w);
	ip->transport = w.at;
	ip->protocol = w.protocol;
	ip->part = w.part;
	ip->identification = w.identification;
	return 0;
}

/* Before what an IP packet carries, where that may be a tunnel: no fragment, of which the rest
 * is elsewhere.
 */
static __always_inline bool may_be_tunnel(const struct ip_layer *ip)
{
	return !ip->broken && !ip->part;
}

static __always_inline bool is_tunnel_port(__be16 port)
{
	return port == bpf_htons(VXLAN_PORT) || port == bpf_htons(GENEVE_PORT) ||
	       port == bpf_htons(GTPU_PORT);
}

/* What the tunnel's header names: in an Ethernet frame what is behind its header. */
static __always_inline int enter(void *ctx, bool xdp, struct below *b, __u16 type)
{
	__be16 bridged;

	b->type = type;
	if (type != BRIDGED)
		return 0;
	if (b->at + ETH_HLEN > b->end || !load(ctx, xdp, b, b->at + 12, &bridged, 2))
		return WIRE_TRUNCATED;
	b->type = bpf_ntohs(bridged);
	b->at += ETH_HLEN;
	return 0;
}

static __always_inline int enter_gre(void *ctx, bool xdp, struct below *b)
{
	__u8 h[4];

	if (!load(ctx, xdp, b, b->at, h, 4))
		return WIRE_TRUNCATED;
	/* Another version is PPTP's; the routing of RFC 1701 nobody may use. */
	if (h[1] & 7 || h[0] & 0x40)
		return NO_TUNNEL;
	/* Checksum, key, sequence number. */
	b->at += 4 + (h[0] >> 7) * 4 + (h[0] >> 5 & 1) * 4 + (h[0] >> 4 & 1) * 4;
	if (b->at > b->end)
		return WIRE_TRUNCATED;
	return enter(ctx, xdp, b, h[2] << 8 | h[3]);
}

static __always_inline int enter_vxlan(void *ctx, bool xdp, struct below *b)
{
	__u8 h[8];

	/* The flag says that a network identifier is there. */
	if (!load(ctx, xdp, b, b->at, h, 8) || !(h[0] & 8))
		return NO_TUNNEL;
	b->at += 8;
	return enter(ctx, xdp, b, BRIDGED);
}

/* Section 3.4. */
static __always_inline int enter_geneve(void *ctx, bool xdp, struct below *b)
{
	__u8 h[8];

	/* Version 0; not for the tunnel's own endpoints. */
	if (!load(ctx, xdp, b, b->at, h, 8) || h[0] & 0xc0 || h[1] & 0x80)
		return NO_TUNNEL;
	b->at += 8 + h[0] * 4;
	if (b->at > b->end)
		return NO_TUNNEL;
	return enter(ctx, xdp, b, h[2] << 8 | h[3]);
}

/* Section 5.1. */
static __always_inline int enter_gtpu(void *ctx, bool xdp, struct below *b)
{
	__u8 h[12], next = 0;

	/* Version 1, not GTP'; a user's packet. */
	if (!load(ctx, xdp, b, b->at, h, 8) || (h[0] & 0xf0) != 0x30 || h[1] != 255)
		return NO_TUNNEL;
	b->at += 8;
	if (h[0] & 7) {
		/* One flag is enough for all three fields to be there. */
		if (!load(ctx, xdp, b, b->at, h + 8, 4))
			return NO_TUNNEL;
		b->at += 4;
		next = h[0] & 4 ? h[11] : 0;
		for (__u32 i = 0; i < GTPU_EXTENSIONS && next; i++) {
			__u8 length;

			if (!load(ctx, xdp, b, b->at, &length, 1) || !length)
				return NO_TUNNEL;
			b->at += length * 4;
			if (!load(ctx, xdp, b, b->at - 1, &next, 1))
				return NO_TUNNEL;
		}
		if (next)
			return NO_TUNNEL;
	}
	if (!load(ctx, xdp, b, b->at, h, 1))
		return WIRE_TRUNCATED;
	b->type = type_of(h[0]);
	return b->type ? 0 : WIRE_ETHERTYPE;
}

/* From an IP packet's payload, `type` being its protocol, to what it carries in a tunnel. */
static __always_inline int enter_tunnel(void *ctx, bool xdp, struct below *b)
{
	__be16 h[4];

	switch (b->type) {
	case IPPROTO_IPIP:
		b->type = ETH_P_IP;
		return 0;
	case IPPROTO_IPV6:
		b->type = ETH_P_IPV6;
		return 0;
	case IPPROTO_GRE:
		return enter_gre(ctx, xdp, b);
	case IPPROTO_UDP:
		/* A port is no proof: what does not begin with the header is no tunnel. */
		if (!load(ctx, xdp, b, b->at, h, 8))
			return NO_TUNNEL;
		b->at += 8;
		switch (bpf_ntohs(h[1])) {
		case VXLAN_PORT:
			return enter_vxlan(ctx, xdp, b);
		case GENEVE_PORT:
			return enter_geneve(ctx, xdp, b);
		case GTPU_PORT:
			return enter_gtpu(ctx, xdp, b);
		}
	}
	return NO_TUNNEL;
}

#endif
