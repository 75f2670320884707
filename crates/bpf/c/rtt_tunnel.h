/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The packet that counts, where it is not what follows a plain Ethernet header: behind
 * VLAN tags, LLC and SNAP, PPPoE (RFC 2516) and MPLS (RFC 3032), and, by option, in one level of IP in IP,
 * GRE (RFC 2784, RFC 2890), VXLAN (RFC 7348) or GTP-U (3GPP TS 29.281).
 *
 * Functions that the verifier proves by themselves, and that read copies: their caller
 * has one more place where IP may begin, and not one for each way there.
 */
#ifndef SONDE_RTT_TUNNEL_H
#define SONDE_RTT_TUNNEL_H

#include "rtt_packet.h"

#define TAGS 4
#define LEAST_TYPE 0x600 /* below it is a length (IEEE 802.3, 3.2.6) */
#define VID 0x0fff
#define TAGGED 0x1000 /* there is a tag, even if its identifier is 0 */
#define LABELS 16
#define GTPU_EXTENSIONS 4
#define TPID_OLD 0x9100
#define TYPE_HSR 0x892f      /* IEC 62439-3 */
#define TYPE_VNTAG 0x8926    /* virtual interfaces of fabric extenders */
#define TYPE_FABRIC 0x8903   /* FabricPath: its tag, then the customer's addresses */
#define TYPE_BACKBONE 0x88e7 /* IEEE 802.1ah: the service instance, then the customer's addresses */
#define BRIDGED 0x6558 /* in GRE: an Ethernet frame */
#define VXLAN_PORT 4789
#define GTPU_PORT 2152

const volatile bool tunnels;

struct below {
	__u32 at;     /* where it begins */
	__u32 size;   /* of the frame; behind a tunnel, where that ends */
	__be16 proto; /* EtherType of what stands there */
	__u16 vlan;
	bool gso;     /* several segments: lengths are what is there */
	__u8 tags;    /* that were taken out already */
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

static __always_inline int load(void *ctx, bool xdp, __u32 at, void *to, __u32 n)
{
	return xdp ? bpf_xdp_load_bytes(ctx, at, to, n) : bpf_skb_load_bytes(ctx, at, to, n);
}

/* Copies the next octets and steps over them. */
static __always_inline bool take_octets(void *ctx, bool xdp, struct below *b, void *to, __u32 n)
{
	if (b->at + n > b->size || load(ctx, xdp, b->at, to, n))
		return false;
	b->at += n;
	return true;
}

static __always_inline bool is_tpid(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD) ||
	       proto == bpf_htons(TPID_OLD);
}

/* Octets from behind this EtherType up to behind the next one; 0: it begins no tag. */
static __always_inline __u32 tag_len(__be16 proto)
{
	return is_tpid(proto) ? 4 : proto == bpf_htons(TYPE_HSR) || proto == bpf_htons(TYPE_VNTAG) ? 6 :
	       proto == bpf_htons(TYPE_FABRIC) ? 16 : proto == bpf_htons(TYPE_BACKBONE) ? 18 : 0;
}

/* Nothing else says which IP follows. */
static __always_inline __be16 proto_of(__u8 first)
{
	return first >> 4 == 4 ? bpf_htons(ETH_P_IP) : first >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : 0;
}

static __always_inline enum parsed look_through(void *ctx, bool xdp, struct below *b)
{
	__u8 h[8];
	__u32 n;

	for (__u32 i = b->tags; (n = tag_len(b->proto)); i++) {
		if (i >= TAGS || b->at + n > b->size || load(ctx, xdp, b->at, h, 2) ||
		    load(ctx, xdp, b->at + n - 2, h + 2, 2))
			return BAD;
		b->at += n;
		/* Identifier 0 names no VLAN, only a priority (IEEE 802.1Q): the next tag's
		 * counts. The kernel strips such a tag too.
		 */
		if (b->vlan == 0 && n == 4)
			b->vlan = (h[0] << 8 | h[1]) & VID;
		b->proto = h[3] << 8 | h[2];
	}
	/* SNAP (RFC 1042, IEEE 802.1H), or IP's own LSAP. */
	if (b->proto && bpf_ntohs(b->proto) < LEAST_TYPE) {
		if (b->at + 8 > b->size || load(ctx, xdp, b->at, h, 8))
			return BAD;
		if (h[0] == 0xaa && h[1] == 0xaa && h[2] == 3 && !h[3] && !h[4] &&
		    (!h[5] || h[5] == 0xf8)) {
			b->at += 8;
			b->proto = h[7] << 8 | h[6];
		} else if (h[0] == 6 && h[1] == 6 && h[2] == 3) {
			b->at += 3;
			b->proto = bpf_htons(ETH_P_IP);
		} else {
			return NO_IP;
		}
	}
	if (b->proto == bpf_htons(ETH_P_PPP_SES)) {
		if (!take_octets(ctx, xdp, b, h, 8) || h[0] != 0x11)
			return BAD;
		if (h[1] != 0)
			return OTHER;
		b->proto = h[6] != 0 ? 0 : h[7] == 0x21 ? bpf_htons(ETH_P_IP) :
			   h[7] == 0x57 ? bpf_htons(ETH_P_IPV6) : 0;
	} else if (b->proto == bpf_htons(ETH_P_MPLS_UC)) {
		h[2] = 0;
		for (__u32 i = 0; i < LABELS && !(h[2] & 1); i++)
			if (!take_octets(ctx, xdp, b, h, 4))
				return BAD;
		if (!(h[2] & 1) || b->at >= b->size || load(ctx, xdp, b->at, h, 1))
			return BAD;
		b->proto = proto_of(h[0]);
	}
	if (b->proto != bpf_htons(ETH_P_IP) && b->proto != bpf_htons(ETH_P_IPV6))
		return NO_IP;
	return PARSED;
}

__noinline int rtt_link_skb(struct __sk_buff *ctx, struct below *b)
{
	return b ? look_through(ctx, false, b) : BAD;
}

__noinline int rtt_link_xdp(struct xdp_md *ctx, struct below *b)
{
	return b ? look_through(ctx, true, b) : BAD;
}

static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_FRAGMENT ||
	       protocol == IPPROTO_AH || protocol == IPPROTO_MH || protocol == 139 /* HIP */ ||
	       protocol == 140 /* Shim6 */;
}

/* IPv6 extension headers (RFC 8200, section 4). */
static __always_inline enum parsed walk_extensions(void *ctx, bool xdp, struct walk *w)
{
	for (__u32 i = 0; i < EXTENSIONS && is_extension(w->protocol); i++) {
		struct extension e;
		__u32 size;

		if (w->left < 8 || load(ctx, xdp, w->at, &e, sizeof(e)))
			return BAD;
		size = w->protocol == IPPROTO_AH ? (e.len + 2) * 4 : (e.len + 1) * 8;
		if (w->protocol == IPPROTO_FRAGMENT) {
			size = 8;
			if (e.fragment & bpf_htons(0xfff8))
				return FRAGMENT;
			/* The last fragment header counts. */
			w->fragment = bpf_ntohs(e.fragment) & 1;
		}
		if (size > w->left)
			return BAD;
		w->left -= size;
		w->at += size;
		w->protocol = e.next;
	}
	return is_extension(w->protocol) ? BAD : PARSED;
}

__noinline int rtt_extensions_skb(struct __sk_buff *ctx, struct walk *w)
{
	return w ? walk_extensions(ctx, false, w) : BAD;
}

__noinline int rtt_extensions_xdp(struct xdp_md *ctx, struct walk *w)
{
	return w ? walk_extensions(ctx, true, w) : BAD;
}

/* An Ethernet frame in a tunnel. */
static __always_inline enum parsed enter_frame(void *ctx, bool xdp, struct below *b)
{
	__be16 proto;

	if (b->at + ETH_HLEN > b->size || load(ctx, xdp, b->at + 12, &proto, 2))
		return BAD;
	b->proto = proto;
	b->at += ETH_HLEN;
	return PARSED;
}

/* NO_IP: no tunnel, and nothing wrong. */
static __always_inline enum parsed enter_gre(void *ctx, bool xdp, struct below *b)
{
	__u8 h[4];

	if (!take_octets(ctx, xdp, b, h, 4))
		return BAD;
	/* Another version is PPTP's; the routing of RFC 1701 nobody may use. */
	if (h[1] & 7 || h[0] & 0x40)
		return NO_IP;
	/* Checksum, key, sequence number. */
	b->at += (h[0] >> 7) * 4 + (h[0] >> 5 & 1) * 4 + (h[0] >> 4 & 1) * 4;
	if (b->at > b->size)
		return BAD;
	b->proto = h[3] << 8 | h[2];
	return b->proto == bpf_htons(BRIDGED) ? enter_frame(ctx, xdp, b) : PARSED;
}

/* Whether this is GTP-U with a user's packet; steps over its header. */
static __always_inline bool enter_gtpu(void *ctx, bool xdp, struct below *b)
{
	__u8 h[12], next;

	/* Version 1, not GTP'; a user's packet. */
	if (!take_octets(ctx, xdp, b, h, 8) || (h[0] & 0xf0) != 0x30)
		return false;
	if (h[0] & 7) {
		/* One flag is enough for all three fields to be there. */
		if (!take_octets(ctx, xdp, b, h + 8, 4))
			return false;
		next = h[0] & 4 ? h[11] : 0;
		for (__u32 i = 0; i < GTPU_EXTENSIONS && next; i++) {
			__u8 length;

			if (b->at >= b->size || load(ctx, xdp, b->at, &length, 1) || !length)
				return false;
			b->at += length * 4;
			if (b->at > b->size || load(ctx, xdp, b->at - 1, &next, 1))
				return false;
		}
		if (next)
			return false;
	}
	return h[1] == 255;
}

/* Moves `b` from an IP packet to the one in it, if there is. Whatever is wrong with the
 * outer one the caller finds, for then it stays where it is.
 */
static __always_inline enum parsed look_inside(void *ctx, bool xdp, struct below *b)
{
	struct below in = *b;
	enum parsed done;
	__u8 h[40], protocol;
	__u32 length;

	if (b->proto == bpf_htons(ETH_P_IP)) {
		if (!take_octets(ctx, xdp, &in, h, 20))
			return PARSED;
		length = h[2] << 8 | h[3];
		if (b->gso || length == 0)
			length = b->size - b->at;
		protocol = h[9];
		/* Of a fragment the rest is elsewhere. */
		if (h[0] >> 4 != 4 || (h[0] & 15) < 5 || length < (h[0] & 15) * 4 ||
		    (h[6] & 0x3f) || h[7])
			return PARSED;
		in.at = b->at + (h[0] & 15) * 4;
	} else {
		if (!take_octets(ctx, xdp, &in, h, 40) || h[0] >> 4 != 6)
			return PARSED;
		length = h[4] << 8 | h[5];
		protocol = h[6];
		if (b->gso || (length == 0 && (protocol == IPPROTO_HOPOPTS ||
					       b->size - in.at > 0xffff)))
			length = b->size - in.at;
		length += 40;
	}
	if (length < b->size - b->at)
		in.size = b->at + length;
	if (is_extension(protocol) && b->proto != bpf_htons(ETH_P_IP)) {
		struct walk w = { .at = in.at, .left = in.size - in.at, .protocol = protocol };

		if (in.size < in.at || walk_extensions(ctx, xdp, &w) != PARSED || w.fragment)
			return PARSED;
		in.at = w.at;
		protocol = w.protocol;
	}
	if (in.at > in.size)
		return PARSED;
	switch (protocol) {
	case IPPROTO_IPIP:
		in.proto = bpf_htons(ETH_P_IP);
		break;
	case IPPROTO_IPV6:
		in.proto = bpf_htons(ETH_P_IPV6);
		break;
	case IPPROTO_GRE:
		done = enter_gre(ctx, xdp, &in);
		if (done == NO_IP)
			return PARSED;
		if (done != PARSED)
			return done;
		break;
	case IPPROTO_UDP:
		if (!take_octets(ctx, xdp, &in, h, 8))
			return PARSED;
		length = h[2] << 8 | h[3];
		if (length == VXLAN_PORT) {
			/* The flag says that a network identifier is there. */
			if (!take_octets(ctx, xdp, &in, h, 8) || !(h[0] & 8))
				return PARSED;
			if (enter_frame(ctx, xdp, &in) != PARSED)
				return BAD;
			break;
		}
		if (length != GTPU_PORT || !enter_gtpu(ctx, xdp, &in))
			return PARSED;
		if (in.at >= in.size || load(ctx, xdp, in.at, h, 1))
			return BAD;
		in.proto = proto_of(h[0]);
		break;
	default:
		return PARSED;
	}
	in.vlan = in.tags = 0;
	done = look_through(ctx, xdp, &in);
	in.vlan = b->vlan;
	*b = in;
	return done;
}

__noinline int rtt_inside_skb(struct __sk_buff *ctx, struct below *b)
{
	return b ? look_inside(ctx, false, b) : BAD;
}

__noinline int rtt_inside_xdp(struct xdp_md *ctx, struct below *b)
{
	return b ? look_inside(ctx, true, b) : BAD;
}

#endif
