/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What the matcher needs of a packet, and the tools that parsing takes: copies of what is
 * walked octet by octet, the filter, the key.
 */
#ifndef SONDE_RTT_PACKET_H
#define SONDE_RTT_PACKET_H

#include "mix.h"
#include "rtt.h"
#include "tunnel.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define ECN_CE 3
#define MAX_OPTIONS 40
#define MAX_HEADERS 2048
#define OPTIONS 10 /* TCP options that are looked at, padding included */
#define NO_DNS (~0U)
#define DNS_PORT 53
#define DNS_NAME 64
#define HEARTBEAT_OCTETS 16

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
	__u32 moment; /* 2^14 ns, by the coarse clock */
	__u32 index;  /* of its flow */
	__u32 identity; /* IPv4's identification, and the checksum of what it carries */
	__u32 ip_len;
	__u32 segs;
	union { __u32 seq; __u32 id; }; /* of TCP; of a request or its answer */
	__u32 ack, tsval, tsecr;
	__u32 len; /* of the TCP payload */
	__u16 win;
	__u16 dns_id; /* over TCP; over UDP what stands for the name, 0: none */
	__u8 d; /* the side that sent it */
	__u8 what;
	__u8 flags;
	__u8 tos;
	__u8 bits;
	__u8 elsewhere; /* neither address is in the filter's networks */
	__u8 bad_options; /* of TCP: malformed, and not used */
	union {
		struct noted_syn syn; /* which the packet confirms */
		/* While it is parsed: matching, which comes after it, leaves no stack to spare. */
		struct below below;
		struct walk walk;
	};
};

enum parsed {
	PARSED,
	NO_IP,
	SHORT,    /* the linear part ends inside a header: pull it, or give up */
	FRAGMENT, /* not the first */
	OTHER,    /* PPPoE, but of no session */
	BAD,
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
	union {
		__u8 b[DNS_NAME];
		__u64 w[DNS_NAME / 8];
	};
	__u32 length;
};

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

#define EACH_OCTET 0x0101010101010101ULL

/* The letters among eight octets in lower case. */
static __always_inline __u64 lower_case(__u64 w)
{
	__u64 seven = w & 0x7f * EACH_OCTET, from_a, after_z;

	from_a = seven + (0x80 - 'A') * EACH_OCTET;
	after_z = seven + (0x7f - 'Z') * EACH_OCTET;
	return w | ((from_a ^ after_z) & ~w & 0x80 * EACH_OCTET) >> 2;
}

/* Eight octets at a time; of a name up to its end, its letters in lower case. */
__noinline __u32 rtt_hash(struct octets *o, bool name)
{
	__u64 hash = 0;

	if (!o)
		return 0;
	for (__u32 i = 0; i < DNS_NAME / 8; i++) {
		__u64 w, zeros = 0;
		__u32 left = o->length - 8 * i;

		if (8 * i >= o->length)
			break;
		w = o->w[i];
		if (left < 8)
			w &= (1ULL << 8 * left) - 1;
		if (name) {
			/* The lowest bit is that of the first octet that is 0. */
			zeros = (w - EACH_OCTET) & ~w & 0x80 * EACH_OCTET;
			if (zeros)
				w &= ((zeros & -zeros) >> 7) - 1;
			if (w == 0)
				break;
			w = lower_case(w);
		}
		hash = mix(hash ^ w) + 1;
		if (zeros)
			break;
	}
	return hash >> 32;
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
		a[0] = h << 32;                   /* octets 4 to 7: its lower half */
		a[1] &= 0x00ffffffffffffffULL;    /* the host octet is the last */
	} else {
		a[0] &= 0x0000ffffffffffffULL;
		a[1] = h;
	}
}

static __always_inline bool in_nets(__u64 a0, __u64 a1, bool ipv4)
{
	for (__u32 i = 0; i < MAX_NETS; i++) {
		if (i >= net_count)
			break;
		/* ::/0 and its like hold no IPv4 address. */
		if (net_ipv4[i] != ipv4)
			continue;
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

static __always_inline bool is_answer(const struct rtt_packet *p)
{
	return p->what == W_ECHO_REPLY || p->what == W_DNS_RESPONSE || p->what == W_HEARTBEAT_ACK;
}

/* Puts both ends into the key, the smaller one first, and says which of them sent. */
static __always_inline void set_ends(struct rtt_packet *p, __u64 s0, __u64 s1, __u64 d0, __u64 d1,
				     __be16 sport, __be16 dport)
{
	bool swap;

	/* By the full addresses: hidden ones could not be distinguished. */
	if (net_count)
		p->elsewhere = !in_nets(s0, s1, p->bits & P_IPV4) &&
			       !in_nets(d0, d1, p->bits & P_IPV4);
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
	else if (sport != dport)
		swap = bpf_ntohs(sport) > bpf_ntohs(dport);
	else /* a host that asks itself at one port: its answers have the other side */
		swap = is_answer(p);
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

#endif
