/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* From a frame to what the matcher needs of it. Each header is looked at once. */
#ifndef SONDE_RTT_PARSE_H
#define SONDE_RTT_PARSE_H

#include "rtt.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#define ECN_CE 3
#define MAX_OPTIONS 40
#define MAX_HEADERS 2048
#define OPTIONS 10 /* TCP options that are looked at, padding included */
#define EXTENSIONS 8
#define LABELS 4
#define NO_DNS (~0U)
#define DNS_PORT 53
#define DNS_NAME 64
#define HEARTBEAT_OCTETS 16
#define GTP_PORT 2152
#define VXLAN_PORT 4789

enum what { /* a packet is */
	W_OTHER, W_TCP, W_ECHO, W_ECHO_REPLY, W_DNS, W_DNS_RESPONSE, W_HEARTBEAT, W_HEARTBEAT_ACK,
	W_QUIC_INITIAL, W_QUIC_0RTT, W_QUIC_HANDSHAKE, W_QUIC_RESTART,
	W_QUIC_SHORT,
};

/* Bits of rtt_packet.bits. */
#define P_TS 0x01
#define P_SACK 0x02
#define P_FRAGMENT 0x04
#define P_IPV4 0x08
#define P_DNS 0x10          /* a DNS message begins in this TCP segment: dns_id */
#define P_DNS_RESPONSE 0x20
#define P_SPIN 0x40
#define P_EGRESS 0x80

struct rtt_packet {
	struct key key;
	__u64 now; /* 0 until the clock is read */
	__u32 coarse;
	__u32 ip_len;
	__u32 segs;
	__u32 seq, ack, tsval, tsecr;
	__u32 id;
	__u32 len; /* of the TCP payload */
	__u16 win;
	__u16 dns_id;
	__u8 d; /* the side that sent it */
	__u8 what;
	__u8 flags;
	__u8 tos;
	__u8 bits;
};

enum parsed {
	PARSED,
	NO_IP,
	SHORT,    /* the linear part ends inside a header: pull it, or give up */
	FRAGMENT, /* not the first */
	BAD,
	TUNNEL,   /* holds another IP packet, at `struct frame`.next */
};

/* Where in the frame we are; the verifier follows each member by itself. */
struct frame {
	void *ctx;
	void *data, *end, *next;
	__u32 len; /* of the whole packet, linear or not */
	__be16 proto;
	bool xdp;
};

/* Octets that are walked one by one: a copy, so that the verifier need not follow where
 * in the packet they stand.
 */
struct octets {
	__u8 b[DNS_NAME];
	__u32 length;
};

struct vlan_header {
	__be16 tci;
	__be16 proto;
};

struct pppoe_header {
	__u8 version_type, code;
	__be16 session, length, protocol;
};

struct extension {
	__u8 next, len;
	__be16 fragment;
};

struct walk {
	__u32 at; /* in the frame */
	__u32 left; /* of IP's payload */
	__u8 protocol;
	__u8 fragment;
};

static __always_inline __u64 mix(__u64 hash)
{
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

static __always_inline bool wanted(__u32 transport)
{
	return transports & transport;
}

/* Copies up to `length` octets of the packet, also from beyond its linear part. Returns
 * how many it has of them.
 */
static __always_inline __u32 copy(void *ctx, bool xdp, __u32 size, __u32 from, struct octets *o,
				  __u32 length)
{
	o->length = 0;
	if (from >= size)
		return 0;
	if (length > size - from)
		length = size - from;
	if (length == 0 || length > sizeof(o->b))
		return 0;
	if (xdp ? bpf_xdp_load_bytes(ctx, from, o->b, length)
		: bpf_skb_load_bytes(ctx, from, o->b, length))
		return 0;
	o->length = length;
	return length;
}

/* Where in the frame something stands. */
static __always_inline __u32 offset(const struct frame *f, const void *at)
{
	__u64 difference;

	/* The verifier wants pointers in 64 bits, and clang has no reason to keep them so. */
	asm volatile("" : "+r"(at));
	difference = at - f->data;
	asm volatile("" : "+r"(difference));
	return difference;
}

/* FNV-1a (RFC 9923); of a name up to its end, its letters in lower case. */
__noinline __u32 rtt_hash(struct octets *o, bool name)
{
	__u32 hash = 0x811c9dc5;

	if (!o)
		return 0;
	for (__u32 i = 0; i < DNS_NAME; i++) {
		__u8 octet;

		if (i >= o->length)
			break;
		octet = o->b[i];
		if (name) {
			if (octet == 0)
				break;
			if ((__u8)(octet - 'A') < 26)
				octet |= 0x20;
		}
		hash = (hash ^ octet) * 0x01000193;
	}
	return hash;
}

/* Options that are not just NOP, NOP, timestamps. 1: malformed, and none is used. */
__noinline int rtt_options(struct octets *o, struct rtt_packet *p)
{
	__u32 off = 0;

	if (!o || !p)
		return 0;
	for (__u32 i = 0; i < OPTIONS; i++) {
		__u32 kind, size;

		if (off >= o->length || off >= MAX_OPTIONS)
			break;
		kind = o->b[off];
		if (kind == 0)
			break;
		if (kind == 1) {
			off++;
			continue;
		}
		if (off + 1 >= o->length)
			goto bad;
		size = o->b[off + 1];
		if (size < 2 || off + size > o->length)
			goto bad;
		if (kind == 8 && size == 10) {
			__u8 *v = &o->b[off + 2];

			p->tsval = (__u32)v[0] << 24 | v[1] << 16 | v[2] << 8 | v[3];
			p->tsecr = (__u32)v[4] << 24 | v[5] << 16 | v[6] << 8 | v[7];
			p->bits |= P_TS;
		} else if (kind == 5 && size >= 10 && size <= 34 && (size & 7) == 2) {
			p->bits |= P_SACK;
		}
		off += size;
	}
	return 0;
bad:
	p->bits &= ~(P_TS | P_SACK);
	return 1;
}

/* What needs a copy has it in a frame of its own, which is gone when matching begins. */
static __noinline __u32 copied_hash(void *ctx, __u32 xdp, __u32 size, __u32 from, __u32 length)
{
	struct octets o;
	bool name = !(length & 0x100);

	copy(ctx, xdp, size, from, &o, length & 0xff);
	return rtt_hash(&o, name);
}

static __noinline int copied_options(void *ctx, __u32 xdp, __u32 size, __u32 from,
				     struct rtt_packet *p)
{
	__u32 length = p->len; /* lent: see parse_options */
	struct octets o;

	return copy(ctx, xdp, size, from, &o, length) != length || rtt_options(&o, p);
}

/* The identifier, and the octet that says whether it is a response, in bit 16. */
static __noinline __u32 copied_dns(void *ctx, __u32 xdp, __u32 size, __u32 from)
{
	struct octets o;

	if (copy(ctx, xdp, size, from, &o, 6) != 6 || (o.b[0] == 0 && o.b[1] < 12))
		return NO_DNS;
	return (__u32)(o.b[4] & 0x80) << 9 | o.b[2] << 8 | o.b[3];
}

/* An address of which only the prefix may be kept: the rest becomes a keyed hash. */
static __always_inline void hide(__u64 a[2], bool v4)
{
	__u64 h = seed[0];

	h = mix(h ^ mix(a[0] ^ seed[1])) + 1;
	h = mix(h ^ mix(a[1] ^ seed[1])) + 1;
	if (v4) {
		a[0] = h & 0xffffffff00000000ULL; /* octets 4 to 7 */
		a[1] &= 0x00ffffffffffffffULL;    /* the host octet is the last */
	} else {
		a[0] &= 0x0000ffffffffffffULL;
		a[1] = h;
	}
}

static __always_inline bool in_nets(__u64 a0, __u64 a1)
{
	for (__u32 i = 0; i < MAX_NETS; i++) {
		if (i >= net_count)
			break;
		if ((((a0 & net_mask[i][0]) ^ net_address[i][0]) |
		     ((a1 & net_mask[i][1]) ^ net_address[i][1])) == 0)
			return true;
	}
	return false;
}

static __always_inline bool in_ports(__be16 a, __be16 b)
{
	for (__u32 i = 0; i < MAX_PORTS; i++) {
		if (i >= port_count)
			break;
		if (a == port_list[i] || b == port_list[i])
			return true;
	}
	return false;
}

/* Puts both ends into the key, the smaller one first, and says which of them sent. */
static __always_inline void set_ends(struct rtt_packet *p, __u64 s0, __u64 s1, __u64 d0, __u64 d1,
				     __be16 sport, __be16 dport)
{
	bool swap;

	if (hide_addresses) {
		__u64 s[2] = { s0, s1 }, d[2] = { d0, d1 };

		hide(s, p->bits & P_IPV4);
		hide(d, p->bits & P_IPV4);
		s0 = s[0];
		s1 = s[1];
		d0 = d[0];
		d1 = d[1];
	}
	if (s0 != d0)
		swap = bpf_be64_to_cpu(s0) > bpf_be64_to_cpu(d0);
	else if (s1 != d1)
		swap = bpf_be64_to_cpu(s1) > bpf_be64_to_cpu(d1);
	else
		swap = bpf_ntohs(sport) > bpf_ntohs(dport);
	p->d = swap;
	if (swap) {
		p->key.w[0] = d0;
		p->key.w[1] = d1;
		p->key.w[2] = s0;
		p->key.w[3] = s1;
		p->key.port[0] = dport;
		p->key.port[1] = sport;
	} else {
		p->key.w[0] = s0;
		p->key.w[1] = s1;
		p->key.w[2] = d0;
		p->key.w[3] = d1;
		p->key.port[0] = sport;
		p->key.port[1] = dport;
	}
}

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
	if (tunnels && (udp->dest == bpf_htons(GTP_PORT) || udp->dest == bpf_htons(VXLAN_PORT)))
		return TUNNEL;
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
	case IPPROTO_GRE:
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		return tunnels && !(p->bits & P_FRAGMENT) ? TUNNEL : PARSED;
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
