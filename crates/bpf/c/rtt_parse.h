/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* From a frame to what the matcher needs of it. Each header is looked at once. */
#ifndef SONDE_RTT_PARSE_H
#define SONDE_RTT_PARSE_H

#include "rtt_packet.h"

#define TAGGED 0x1000 /* beside VID: there is a tag, even if its identifier is 0 */

const volatile bool tunnels;

static __always_inline enum parsed parsed_of(int error)
{
	switch (error) {
	case 0:
		return PARSED;
	case WIRE_ETHERTYPE:
		return NO_IP;
	case WIRE_TYPE:
		return OTHER;
	}
	return BAD;
}

/* From IP to the packet in it, if there is. Whatever is wrong with the outer one the caller
 * finds, for then `b` stays where it is.
 */
static __always_inline int look_inside(void *ctx, bool xdp, struct below *b)
{
	struct ip_layer ip = {};
	struct below in = {};
	int error;

	if (read_ip(ctx, xdp, b, &ip) || !may_be_tunnel(&ip))
		return 0;
	in.at = ip.transport;
	in.end = ip.end < b->end ? ip.end : b->end;
	in.type = ip.protocol;
	in.gso = b->gso;
	if (in.at > in.end)
		return 0;
	error = enter_tunnel(ctx, xdp, &in);
	if (error == NO_TUNNEL)
		return 0;
	if (!error)
		error = look_through(ctx, xdp, &in);
	in.vlan = b->vlan;
	*b = in;
	return error;
}

/* Functions that the verifier proves by themselves: their caller has one more path on which IP
 * may begin, and not one for each way there.
 */
__noinline int rtt_link_skb(struct __sk_buff *ctx, struct below *b)
{
	return b ? look_through(ctx, false, b) : WIRE_TYPE;
}

__noinline int rtt_link_xdp(struct xdp_md *ctx, struct below *b)
{
	return b ? look_through(ctx, true, b) : WIRE_TYPE;
}

__noinline int rtt_inside_skb(struct __sk_buff *ctx, struct below *b)
{
	return b ? look_inside(ctx, false, b) : WIRE_TYPE;
}

__noinline int rtt_inside_xdp(struct xdp_md *ctx, struct below *b)
{
	return b ? look_inside(ctx, true, b) : WIRE_TYPE;
}

__noinline int rtt_extensions_skb(struct __sk_buff *ctx, struct walk *w)
{
	return w ? walk_extensions(ctx, false, w) : WIRE_TYPE;
}

__noinline int rtt_extensions_xdp(struct xdp_md *ctx, struct walk *w)
{
	return w ? walk_extensions(ctx, true, w) : WIRE_TYPE;
}

/* Not in the frame's linear part, or behind the end of the tunnel's packet. */
static __always_inline bool lacks(const struct frame *f, const void *upto)
{
	return upto > f->end || (tunnels && offset(f, upto) > f->len);
}

/* Then: nowhere, and the packet is what is known of it without; or to be pulled. */
static __always_inline enum parsed without(const struct frame *f, const void *upto)
{
	return offset(f, upto) > f->len ? PARSED : SHORT;
}

static __always_inline enum parsed parse_options(struct frame *f, struct rtt_packet *p,
						 void *at, __u32 length)
{
	__be32 *w = at;
	__u32 payload;

	/* What nearly every segment has, and nothing else. */
	if (length == 12) {
		if (lacks(f, w + 3))
			return SHORT;
		if (w[0] == bpf_htonl(0x0101080a)) {
			p->tsval = bpf_ntohl(w[1]);
			p->tsecr = bpf_ntohl(w[2]);
			p->bits |= P_TS;
			return PARSED;
		}
	}
	if (offset(f, at) + length > f->len)
		return BAD;
	payload = p->len;
	p->len = length; /* a function has five arguments at most */
	p->bad_options = copied_options(f->ctx, f->xdp, f->len, offset(f, at), p);
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
	if (lacks(f, tcp + 1))
		return SHORT;
	header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > length)
		return BAD;
	/* How long a fragment's payload is, the rest of it does not say. */
	p->what = p->bits & P_FRAGMENT ? W_OTHER : W_TCP;
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->flags = ((__u8 *)tcp)[13];
	p->win = bpf_ntohs(tcp->window);
	p->len = length - header;
	p->tsval = 0; /* residence takes it with or without P_TS */
	p->identity |= bpf_ntohs(tcp->check);
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

	/* Whatever the fixed bit is: it may be greased (RFC 9287). */
	if (size < 7)
		return PARSED;
	if (lacks(f, b + 7))
		return without(f, b + 7);
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
	if (lacks(f, b + 7))
		return without(f, b + 7);
	if (b[6] > 20 || size < 7 + to + b[6])
		return PARSED;
	/* And within what a capture or a cut frame has left of the datagram. */
	if (offset(f, b + 7) + b[6] > f->len)
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
	if (lacks(f, udp + 1))
		return SHORT;
	p->identity |= bpf_ntohs(udp->check);
	size = bpf_ntohs(udp->len);
	/* Of several segments in one frame it is that of one, of a first fragment that of all. */
	if (p->segs > 1 || p->bits & P_FRAGMENT)
		size = length;
	if (size < sizeof(*udp) || size > length)
		return BAD;
	if (udp->source == bpf_htons(DNS_PORT) || udp->dest == bpf_htons(DNS_PORT)) {
		__u32 hash, name = size - sizeof(*udp) - 12;
		bool response;

		if (size < sizeof(*udp) + 12)
			return PARSED;
		if (lacks(f, b + 12))
			return without(f, b + 12);
		response = b[2] & 0x80;
		if ((response ? udp->source : udp->dest) != bpf_htons(DNS_PORT))
			return PARSED;
		hash = copied_hash(f->ctx, f->xdp, f->len, offset(f, b + 12),
				   name < DNS_NAME ? name : DNS_NAME);
		p->id = b[0] << 8 | b[1];
		/* Without a question there is no name. */
		p->dns_id = b[4] | b[5] ? hash >> 16 : 0;
		p->what = response ? W_DNS_RESPONSE : W_DNS;
		return PARSED;
	}
	if (size < sizeof(*udp) + 1 || p->bits & P_FRAGMENT)
		return PARSED;
	if (lacks(f, b + 1))
		return without(f, b + 1);
	if (b[0] & 0x80)
		return parse_quic(f, p, b, size - sizeof(*udp));
	p->what = W_QUIC_SHORT;
	if (b[0] & 0x20)
		p->bits |= P_SPIN;
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
	if (lacks(f, b + 20))
		return without(f, b + 20);
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
	p->dns_id = 0;
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
		if (length < (protocol == IPPROTO_SCTP ? 12 : 8))
			return BAD;
		if (lacks(f, at + 4) || (protocol == IPPROTO_SCTP && lacks(f, at + 6)))
			return SHORT;
		ports[0] = at[0];
		ports[1] = at[1];
		if (protocol == IPPROTO_TCP)
			return parse_tcp(f, p, length);
		if (protocol == IPPROTO_UDP)
			return parse_udp(f, p, length);
		if (p->bits & P_FRAGMENT)
			return PARSED;
		return parse_sctp(f, p, length);
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6: {
		__u8 *b = f->next;

		if (length < 8)
			return BAD;
		if (lacks(f, b + 8))
			return SHORT;
		if (protocol == IPPROTO_ICMP ? b[0] != 8 && b[0] != 0 : b[0] != 128 && b[0] != 129)
			return PARSED;
		ports[0] = ports[1] = at[2];
		p->identity |= bpf_ntohs(at[1]);
		p->id = bpf_ntohs(at[3]);
		p->dns_id = 0;
		p->what = b[0] == 8 || b[0] == 128 ? W_ECHO : W_ECHO_REPLY;
		return PARSED;
	}
	}
	return PARSED;
}

/* Moves from behind IP's fixed header to the transport, of which `length` octets are left. */
static __always_inline enum parsed step_over_extensions(struct frame *f, struct rtt_packet *p,
							__u8 *protocol, __u32 *length)
{
	__u32 at = offset(f, f->next), end = at + *length, to;
	struct walk *w = &p->walk;

	w->at = at;
	w->end = end < f->len ? end : f->len;
	w->protocol = *protocol;
	w->part = 0;
	w->v4 = p->bits & P_IPV4;
	if (f->xdp ? rtt_extensions_xdp(f->ctx, w) : rtt_extensions_skb(f->ctx, w))
		return BAD;
	if (w->part & LATER_PART)
		return FRAGMENT;
	to = w->at;
	if (to > MAX_HEADERS || to - at > *length)
		return BAD;
	if (w->part)
		p->bits |= P_FRAGMENT;
	*protocol = w->protocol;
	*length -= to - at;
	f->next = f->data + to;
	return PARSED;
}

/* IP a second time: `read_ip` of tunnel.h copies each header by a helper call, so that it may lie
 * behind the linear part. Every packet comes here, so here IP is read where it lies, without a call
 * and without a copy. What a length and an extension header mean is in tunnel.h for both.
 *
 * `gso`: the skb is several segments, and IP's length may be that of one or of all.
 */
static __always_inline enum parsed parse_ipv4(struct frame *f, struct rtt_packet *p, bool gso)
{
	struct iphdr *ip = f->next;
	__u32 header, length, room, fragment;
	__be16 ports[2];
	enum parsed done;
	__u8 protocol;

	if (lacks(f, ip + 1))
		return SHORT;
	header = ip->ihl * 4;
	room = f->len - offset(f, f->next);
	length = ipv4_length(ip, room, gso);
	if (ip->version != 4 || header < sizeof(*ip) || length < header || room < header)
		return BAD;
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & IP_OFFSET)
		return FRAGMENT;
	p->bits |= fragment & IP_MF ? P_IPV4 | P_FRAGMENT : P_IPV4;
	p->ip_len = length;
	p->identity = (__u32)bpf_ntohs(ip->id) << 16;
	p->tos = ip->tos;
	f->next += header;
	length -= header;
	protocol = ip->protocol;
	if (protocol == IPPROTO_AH) {
		done = step_over_extensions(f, p, &protocol, &length);
		if (done != PARSED)
			return done;
	}
	done = parse_transport(f, p, protocol, length, ports);
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

	if (lacks(f, ip + 1))
		return SHORT;
	room = f->len - offset(f, f->next);
	if (ip->version != 6 || room < sizeof(*ip))
		return BAD;
	length = ipv6_length(ip, room - sizeof(*ip), gso);
	p->ip_len = length + sizeof(*ip);
	p->identity = 0;
	p->tos = bpf_ntohl(*(__be32 *)ip) >> 20;
	protocol = ip->nexthdr;
	f->next = ip + 1;
	if (is_extension(protocol)) {
		done = step_over_extensions(f, p, &protocol, &length);
		if (done != PARSED)
			return done;
	}
	done = parse_transport(f, p, protocol, length, ports);
	if (done == PARSED)
		set_ends(p, address[0], address[1], address[2], address[3], ports[0], ports[1]);
	return done;
}

/* What stands between Ethernet's header and IP's; with `inside`, between two of IP. */
static __always_inline enum parsed step_over(struct frame *f, struct rtt_packet *p, bool inside,
					     bool gso, __u8 tags)
{
	struct below *b = &p->below;
	__u32 at;
	int error;

	b->at = offset(f, f->next);
	b->end = f->len;
	b->type = bpf_ntohs(f->proto);
	b->vlan = p->key.vlan;
	b->gso = gso;
	b->tags = tags;
	if (inside)
		error = f->xdp ? rtt_inside_xdp(f->ctx, b) : rtt_inside_skb(f->ctx, b);
	else
		error = f->xdp ? rtt_link_xdp(f->ctx, b) : rtt_link_skb(f->ctx, b);
	if (error)
		return parsed_of(error);
	at = b->at;
	if (at > MAX_HEADERS)
		return BAD;
	f->next = f->data + at;
	f->len = b->end;
	f->proto = bpf_htons(b->type);
	p->key.vlan = b->vlan;
	return PARSED;
}

/* The layers below IP. `vlan`: TAGGED and the identifier of the tag that the kernel keeps
 * beside the packet, or 0.
 */
static __always_inline enum parsed parse_link(struct frame *f, struct rtt_packet *p, bool l3,
					      __u16 vlan)
{
	p->key.vlan = vlan & VID;
	if (l3) {
		__u8 *b = f->data;

		if (lacks(f, b + 1))
			return SHORT;
		f->next = b;
		f->proto = bpf_htons(type_of(b[0]));
	} else {
		struct ethhdr *eth = f->data;

		if (lacks(f, eth + 1))
			return SHORT;
		f->next = eth + 1;
		f->proto = eth->h_proto;
		if (f->proto != bpf_htons(ETH_P_IP) && f->proto != bpf_htons(ETH_P_IPV6))
			return step_over(f, p, false, false, !!(vlan & TAGGED));
	}
	return PARSED;
}

/* What most packets are can hold no other, and that is soon seen. */
static __always_inline bool may_hold_another(const struct frame *f)
{
	bool v4 = f->proto == bpf_htons(ETH_P_IP);
	const __u8 *b = f->next;
	__u8 protocol;
	__be16 port;

	if (lacks(f, b + 44))
		return true;
	protocol = v4 ? b[9] : b[6];
	if (protocol != IPPROTO_UDP || (v4 && (b[0] & 15) != 5))
		return protocol != IPPROTO_TCP;
	port = v4 ? *(__be16 *)(b + 22) : *(__be16 *)(b + 42);
	return is_tunnel_port(port);
}

static __always_inline enum parsed parse_ip(struct frame *f, struct rtt_packet *p, bool gso)
{
	if (tunnels && may_hold_another(f)) {
		enum parsed done = step_over(f, p, true, gso, 0);

		if (done != PARSED)
			return done;
	}
	if (f->proto == bpf_htons(ETH_P_IP))
		return parse_ipv4(f, p, gso);
	if (f->proto == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(f, p, gso);
	return NO_IP;
}

#endif
