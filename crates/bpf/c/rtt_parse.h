/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* From a frame to what the matcher needs of it. Each header is looked at once. */
#ifndef SONDE_RTT_PARSE_H
#define SONDE_RTT_PARSE_H

#include "rtt_packet.h"

static __always_inline enum parsed parse_options(struct frame *f, struct rtt_packet *p,
						 void *at, __u32 length)
{
	__be32 *w = at;
	__u32 payload;

	/* What nearly every segment has, and nothing else. */
	if (length == 12) {
		if ((void *)(w + 3) > f->end)
			return SHORT;
		if (w[0] == bpf_htonl(0x0101080a)) {
			p->tsval = bpf_ntohl(w[1]);
			p->tsecr = bpf_ntohl(w[2]);
			p->bits |= P_TS;
			return PARSED;
		}
	}
	payload = p->len;
	p->len = length; /* a function has five arguments at most */
	if (copied_options(f->ctx, f->xdp, f->len, offset(f, at), p))
		count(MALFORMED);
	p->len = payload;
	return PARSED;
}

static __always_inline enum parsed parse_tcp(struct frame *f, struct rtt_packet *p, __u32 length)
{
	struct tcphdr *tcp = f->next;
	__u32 header;
	enum parsed done;

	if (length < sizeof(*tcp))
		return BAD;
	if ((void *)(tcp + 1) > f->end)
		return SHORT;
	header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > length)
		return BAD;
	p->what = W_TCP;
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->flags = ((__u8 *)tcp)[13];
	p->win = bpf_ntohs(tcp->window);
	p->len = length - header;
	if (header > sizeof(*tcp)) {
		done = parse_options(f, p, tcp + 1, header - sizeof(*tcp));
		if (done != PARSED)
			return done;
	}
	/* DNS over TCP (RFC 1035, 4.2.2): two octets of length, then the message. */
	if ((tcp->source == bpf_htons(DNS_PORT) || tcp->dest == bpf_htons(DNS_PORT)) && p->len >= 6) {
		__u32 dns = copied_dns(f->ctx, f->xdp, f->len, offset(f, (void *)tcp + header));
		bool response = dns & 0x10000;

		if (dns != NO_DNS &&
		    (response ? tcp->source : tcp->dest) == bpf_htons(DNS_PORT)) {
			p->dns_id = dns;
			p->bits |= response ? P_DNS | P_DNS_RESPONSE : P_DNS;
		}
	}
	return PARSED;
}

/* A long header (RFC 9000, 17.2; RFC 9369, 3.2), with `size` octets of UDP payload. */
static __always_inline enum parsed parse_quic(struct frame *f, struct rtt_packet *p, __u8 *b,
					      __u32 size)
{
	__u32 version, to, type;

	if (!(b[0] & 0x40) || size < 7)
		return PARSED;
	if ((void *)(b + 7) > f->end)
		return SHORT;
	version = bpf_ntohl(*(__be32 *)(b + 1));
	type = b[0] >> 4 & 3;
	if (version == 0x6b3343cf)
		type = (type - 1) & 3;
	else if (version > 1)
		return PARSED;
	/* Both connection identifiers have at most 20 octets and lie within. */
	to = b[5];
	if (to > 20 || size < 7 + to)
		return PARSED;
	b += to;
	if ((void *)(b + 7) > f->end)
		return SHORT;
	if (b[6] > 20 || size < 7 + to + b[6])
		return PARSED;
	p->what = version == 0 ? W_QUIC_RESTART : type == 0 ? W_QUIC_INITIAL :
		  type == 1 ? W_QUIC_0RTT : type == 2 ? W_QUIC_HANDSHAKE : W_QUIC_RESTART;
	return PARSED;
}

static __always_inline enum parsed parse_udp(struct frame *f, struct rtt_packet *p, __u32 length)
{
	struct udphdr *udp = f->next;
	__u8 *b = (void *)(udp + 1);
	__u32 size;

	if (length < sizeof(*udp))
		return BAD;
	if ((void *)(udp + 1) > f->end)
		return SHORT;
	size = bpf_ntohs(udp->len);
	/* 0: a jumbogram (RFC 2675). Of several segments in one frame it is that of one. */
	if (size == 0 || p->segs > 1)
		size = length;
	if (size < sizeof(*udp) || size > length)
		return BAD;
	if (udp->source == bpf_htons(DNS_PORT) || udp->dest == bpf_htons(DNS_PORT)) {
		__u32 hash, name = size - sizeof(*udp) - 12;
		bool response;

		if (size < sizeof(*udp) + 12)
			return PARSED;
		if ((void *)(b + 12) > f->end)
			return SHORT;
		response = b[2] & 0x80;
		if ((response ? udp->source : udp->dest) != bpf_htons(DNS_PORT))
			return PARSED;
		hash = copied_hash(f->ctx, f->xdp, f->len, offset(f, b + 12),
				   name < DNS_NAME ? name : DNS_NAME);
		p->id = (__u32)(b[0] << 8 | b[1]) << 16 | ((hash >> 16 ^ hash) & 0xffff);
		p->what = response ? W_DNS_RESPONSE : W_DNS;
		return PARSED;
	}
	if (size < sizeof(*udp) + 1)
		return PARSED;
	if ((void *)(b + 1) > f->end)
		return SHORT;
	if ((b[0] & 0xc0) == 0x40) {
		p->what = W_QUIC_SHORT;
		if (b[0] & 0x20)
			p->bits |= P_SPIN;
	} else if (b[0] & 0x80) {
		return parse_quic(f, p, b, size - sizeof(*udp));
	}
	return PARSED;
}

static __always_inline enum parsed parse_sctp(struct frame *f, struct rtt_packet *p, __u32 length)
{
	__u8 *b = f->next;
	__u32 chunk, info;

	if (length < 12)
		return BAD;
	if (length < 20)
		return PARSED;
	if ((void *)(b + 20) > f->end)
		return SHORT;
	/* Chunk header, parameter header, and what only the sender understands. */
	if ((b[12] != 4 && b[12] != 5) || *(__be16 *)(b + 16) != bpf_htons(1))
		return PARSED;
	chunk = bpf_ntohs(*(__be16 *)(b + 14));
	info = bpf_ntohs(*(__be16 *)(b + 18));
	if (info < 4 || chunk < info + 4)
		return PARSED;
	info -= 4;
	if (info > length - 20)
		info = length - 20;
	p->id = copied_hash(f->ctx, f->xdp, f->len, offset(f, b + 20),
			    0x100 | (info < HEARTBEAT_OCTETS ? info : HEARTBEAT_OCTETS));
	p->what = b[12] == 4 ? W_HEARTBEAT : W_HEARTBEAT_ACK;
	return PARSED;
}

/* What stands above IP. `length` is that of the IP payload. */
static __always_inline enum parsed parse_transport(struct frame *f, struct rtt_packet *p,
						   __u8 protocol, __u32 length, __be16 *ports)
{
	__be16 *at = f->next;

	p->key.protocol = protocol;
	ports[0] = ports[1] = 0;
	switch (protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		if (length < 8)
			return BAD;
		if ((void *)(at + 2) > f->end)
			return SHORT;
		ports[0] = at[0];
		ports[1] = at[1];
		/* How long a fragment's payload is, the rest of it does not say. */
		if (p->bits & P_FRAGMENT)
			return PARSED;
		if (protocol == IPPROTO_TCP)
			return parse_tcp(f, p, length);
		if (protocol == IPPROTO_UDP)
			return parse_udp(f, p, length);
		return parse_sctp(f, p, length);
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6: {
		__u8 *b = f->next;

		if (length < 8)
			return BAD;
		if ((void *)(b + 8) > f->end)
			return SHORT;
		if (protocol == IPPROTO_ICMP ? b[0] != 8 && b[0] != 0 : b[0] != 128 && b[0] != 129)
			return PARSED;
		if (protocol == IPPROTO_ICMP && !(p->bits & P_IPV4))
			return PARSED;
		ports[0] = ports[1] = at[2];
		p->id = bpf_ntohs(at[3]);
		p->what = b[0] == 8 || b[0] == 128 ? W_ECHO : W_ECHO_REPLY;
		return PARSED;
	}
	}
	return PARSED;
}

static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_AH;
}

/* IPv6 extension headers (RFC 8200, section 4), likewise as copies. */
#define EXTENSIONS_OF(name, context, load)                                            \
	__noinline int name(struct context *ctx, struct walk *w)                      \
	{                                                                             \
		if (!w)                                                               \
			return BAD;                                                   \
		for (__u32 i = 0; i < EXTENSIONS && is_extension(w->protocol); i++) { \
			struct extension e;                                           \
			__u32 size;                                                   \
                                                                                      \
			if (w->left < 8 || load(ctx, w->at, &e, sizeof(e)))           \
				return BAD;                                           \
			size = w->protocol == IPPROTO_AH ? (e.len + 2) * 4            \
							 : (e.len + 1) * 8;           \
			if (w->protocol == IPPROTO_FRAGMENT) {                        \
				size = 8;                                             \
				if (e.fragment & bpf_htons(0xfff8))                   \
					return FRAGMENT;                              \
				if (e.fragment & bpf_htons(1))                        \
					w->fragment = 1;                              \
			}                                                             \
			if (size > w->left)                                           \
				return BAD;                                           \
			w->left -= size;                                              \
			w->at += size;                                                \
			w->protocol = e.next;                                         \
		}                                                                     \
		return PARSED;                                                        \
	}

EXTENSIONS_OF(rtt_extensions_skb, __sk_buff, bpf_skb_load_bytes)
EXTENSIONS_OF(rtt_extensions_xdp, xdp_md, bpf_xdp_load_bytes)

/* `gso`: the skb is several segments, and IP's length may be that of one or of all. */
static __always_inline enum parsed parse_ipv4(struct frame *f, struct rtt_packet *p, bool gso)
{
	struct iphdr *ip = f->next;
	__u32 header, length, room, fragment;
	__be16 ports[2];
	enum parsed done;

	if ((void *)(ip + 1) > f->end)
		return SHORT;
	header = ip->ihl * 4;
	length = bpf_ntohs(ip->tot_len);
	room = f->len - offset(f, f->next);
	if (length == 0 || gso)
		length = room;
	if (ip->version != 4 || header < sizeof(*ip) || length < header)
		return BAD;
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & IP_OFFSET)
		return FRAGMENT;
	p->bits |= fragment & IP_MF ? P_IPV4 | P_FRAGMENT : P_IPV4;
	p->ip_len = length;
	p->tos = ip->tos;
	f->next += header;
	done = parse_transport(f, p, ip->protocol, length - header, ports);
	if (done == PARSED)
		set_ends(p, 0, (__u64)ip->saddr << 32 | 0xffff0000, 0,
			 (__u64)ip->daddr << 32 | 0xffff0000, ports[0], ports[1]);
	return done;
}

static __always_inline enum parsed parse_ipv6(struct frame *f, struct rtt_packet *p, bool gso)
{
	struct ipv6hdr *ip = f->next;
	__u64 *address = (void *)&ip->saddr;
	__u32 length, room;
	__be16 ports[2];
	enum parsed done;
	__u8 protocol;

	if ((void *)(ip + 1) > f->end)
		return SHORT;
	length = bpf_ntohs(ip->payload_len);
	room = f->len - offset(f, f->next);
	if (ip->version != 6 || room < sizeof(*ip))
		return BAD;
	room -= sizeof(*ip);
	if (length == 0 || gso)
		length = room;
	p->ip_len = length + sizeof(*ip);
	p->tos = bpf_ntohl(*(__be32 *)ip) >> 20;
	protocol = ip->nexthdr;
	f->next = ip + 1;
	if (is_extension(protocol)) {
		struct walk w = {
			.at = offset(f, f->next), .left = length, .protocol = protocol,
		};

		done = f->xdp ? rtt_extensions_xdp(f->ctx, &w) : rtt_extensions_skb(f->ctx, &w);
		if (done != PARSED)
			return done;
		if (w.at > MAX_HEADERS || w.left > length)
			return BAD;
		if (w.fragment)
			p->bits |= P_FRAGMENT;
		protocol = w.protocol;
		length = w.left;
		f->next = f->data + w.at;
	}
	done = parse_transport(f, p, protocol, length, ports);
	if (done == PARSED)
		set_ends(p, address[0], address[1], address[2], address[3], ports[0], ports[1]);
	return done;
}

/* The layers below IP. `vlan` is the tag that the kernel keeps beside the packet, or 0. */
static __always_inline enum parsed parse_link(struct frame *f, struct rtt_packet *p, bool l3,
					      __u16 vlan)
{
	__be16 proto;

	p->key.vlan = vlan;
	if (l3) {
		__u8 *b = f->data;

		if ((void *)(b + 1) > f->end)
			return SHORT;
		f->next = b;
		f->proto = b[0] >> 4 == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
		return PARSED;
	}
	{
		struct ethhdr *eth = f->data;

		if ((void *)(eth + 1) > f->end)
			return SHORT;
		proto = eth->h_proto;
		f->next = eth + 1;
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		struct vlan_header *tag = f->next;

		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > f->end)
			return SHORT;
		if (p->key.vlan == 0)
			p->key.vlan = bpf_ntohs(tag->tci) & 0xfff;
		proto = tag->proto;
		f->next = tag + 1;
	}
	if (proto == bpf_htons(ETH_P_PPP_SES)) {
		struct pppoe_header *ppp = f->next;

		if ((void *)(ppp + 1) > f->end)
			return SHORT;
		proto = ppp->protocol == bpf_htons(0x21) ? bpf_htons(ETH_P_IP) :
			ppp->protocol == bpf_htons(0x57) ? bpf_htons(ETH_P_IPV6) : 0;
		f->next = ppp + 1;
	} else if (proto == bpf_htons(ETH_P_MPLS_UC)) {
		proto = 0;
		for (int i = 0; i < LABELS; i++) {
			__u8 *label = f->next;

			if ((void *)(label + 5) > f->end)
				return SHORT;
			f->next = label + 4;
			if (label[2] & 1) { /* the last one: what follows says what it is */
				proto = label[4] >> 4 == 4 ? bpf_htons(ETH_P_IP) :
					label[4] >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : 0;
				break;
			}
		}
	}
	f->proto = proto;
	return PARSED;
}

static __always_inline enum parsed parse_ip(struct frame *f, struct rtt_packet *p, bool gso)
{
	if (f->proto == bpf_htons(ETH_P_IP))
		return parse_ipv4(f, p, gso);
	if (f->proto == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(f, p, gso);
	return NO_IP;
}

#endif
