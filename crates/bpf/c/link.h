/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What stands between Ethernet's header and IP's, as `wire/src/link/below.rs` steps over it:
 * tags, LLC and SNAP, PPPoE (RFC 2516), MPLS (RFC 3032) and pseudowires (RFC 4448).
 *
 * It reads copies, wherever in the packet the octets lie. Each program wraps it in functions of
 * its own that the verifier proves one by one; `xdp` says which kind of program it is.
 */
#ifndef SONDE_LINK_H
#define SONDE_LINK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TAGS 4
#define LEAST_TYPE 0x600 /* below it is a length (IEEE 802.3, 3.2.6) */
#define VID 0x0fff
#define LABELS 16
#define CONTROL_WORD 4
#define TPID_OLD 0x9100
#define TYPE_HSR 0x892f      /* IEC 62439-3 */
#define TYPE_VNTAG 0x8926    /* virtual interfaces of fabric extenders */
#define TYPE_FABRIC 0x8903   /* FabricPath: its tag, then the customer's addresses */
#define TYPE_BACKBONE 0x88e7 /* IEEE 802.1ah: the service instance, then the customer's addresses */

/* 1 more than `wire::Error::index`; 0: nothing is wrong. */
enum wire_error {
	WIRE_TRUNCATED = 1,
	WIRE_LENGTH,
	WIRE_VERSION,
	WIRE_ETHERTYPE,
	WIRE_VLAN_DEPTH,
	WIRE_FRAGMENT = 7,
	WIRE_EXTENSION_DEPTH,
	WIRE_TYPE = 10,
};

/* Where we are between two headers. */
struct below {
	__u32 at;
	__u32 end;  /* of the packet; in a tunnel, of the one outside */
	__u16 type; /* EtherType of what stands here; in IP its protocol */
	__u16 vlan; /* of the outermost tag that names one */
	bool gso;   /* several segments: lengths are what is there */
	__u8 tags;  /* that were taken out already */
};

static __always_inline bool load(void *ctx, bool xdp, const struct below *b, __u32 at, void *to,
				 __u32 n)
{
	return at + n <= b->end &&
	       (xdp ? bpf_xdp_load_bytes(ctx, at, to, n) : bpf_skb_load_bytes(ctx, at, to, n)) == 0;
}

/* Nothing else says which IP follows. */
static __always_inline __u16 type_of(__u8 first)
{
	return first >> 4 == 4 ? ETH_P_IP : first >> 4 == 6 ? ETH_P_IPV6 : 0;
}

static __always_inline bool is_tpid(__u16 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD || type == TPID_OLD;
}

/* Octets from behind this EtherType up to behind the next one; 0: it begins no tag. */
static __always_inline __u32 tag_len(__u16 type)
{
	return is_tpid(type) ? 4 : type == TYPE_HSR || type == TYPE_VNTAG ? 6 :
	       type == TYPE_FABRIC ? 16 : type == TYPE_BACKBONE ? 18 : 0;
}

static __always_inline int step_over_tags(void *ctx, bool xdp, struct below *b)
{
	__be16 tag[2];
	__u32 n;

	for (__u32 i = b->tags; (n = tag_len(b->type)); i++) {
		if (i >= TAGS)
			return WIRE_VLAN_DEPTH;
		if (!load(ctx, xdp, b, b->at, &tag[0], 2) ||
		    !load(ctx, xdp, b, b->at + n - 2, &tag[1], 2))
			return WIRE_TRUNCATED;
		/* Identifier 0 names no VLAN, only a priority (IEEE 802.1Q): the next tag's
		 * counts. The kernel strips such a tag too.
		 */
		if (b->vlan == 0 && n == 4)
			b->vlan = bpf_ntohs(tag[0]) & VID;
		b->type = bpf_ntohs(tag[1]);
		b->at += n;
	}
	return 0;
}

/* SNAP (RFC 1042, IEEE 802.1H), or IP's own LSAP. */
static __always_inline int step_over_llc(void *ctx, bool xdp, struct below *b)
{
	__u8 h[8];

	if (b->type == 0 || b->type >= LEAST_TYPE)
		return 0;
	if (!load(ctx, xdp, b, b->at, h, 8))
		return WIRE_TRUNCATED;
	if (h[0] == 0xaa && h[1] == 0xaa && h[2] == 3 && !h[3] && !h[4] && (!h[5] || h[5] == 0xf8)) {
		b->at += 8;
		b->type = h[6] << 8 | h[7];
		return 0;
	}
	if (h[0] != 6 || h[1] != 6 || h[2] != 3)
		return WIRE_ETHERTYPE;
	b->at += 3;
	b->type = ETH_P_IP;
	return 0;
}

/* An Ethernet frame in a pseudowire at `at`, if IP stands where it should. */
static __always_inline bool is_frame(void *ctx, bool xdp, const struct below *b, __u32 at,
				     struct below *in)
{
	__be16 type;
	__u8 first;

	*in = *b;
	in->vlan = in->tags = 0;
	in->at = at + ETH_HLEN;
	if (!load(ctx, xdp, b, at + 12, &type, 2))
		return false;
	in->type = bpf_ntohs(type);
	return step_over_tags(ctx, xdp, in) == 0 &&
	       (in->type == ETH_P_IP || in->type == ETH_P_IPV6) &&
	       load(ctx, xdp, in, in->at, &first, 1) && type_of(first) == in->type;
}

/* What an MPLS stack carries, by its first octets (RFC 4928). */
static __always_inline int labelled(void *ctx, bool xdp, struct below *b)
{
	bool fits = false, control_word;
	struct below in;
	__u32 room;
	__u8 h[6];

	if (!load(ctx, xdp, b, b->at, h, 1))
		return WIRE_TRUNCATED;
	room = b->end - b->at;
	control_word = h[0] >> 4 == 0;
	b->type = type_of(h[0]);
	if (b->type == ETH_P_IP)
		fits = load(ctx, xdp, b, b->at, h, 4) && (h[0] & 15) >= 5 &&
		       (__u32)(h[2] << 8 | h[3]) <= room;
	else if (b->type == ETH_P_IPV6)
		fits = load(ctx, xdp, b, b->at, h, 6) &&
		       sizeof(struct ipv6hdr) + (h[4] << 8 | h[5]) <= room;
	if (fits)
		return 0;
	/* A control word begins with four bits of 0, and so do many MAC addresses. */
	if (!is_frame(ctx, xdp, b, b->at, &in) &&
	    (!control_word || !is_frame(ctx, xdp, b, b->at + CONTROL_WORD, &in)))
		return b->type ? 0 : WIRE_ETHERTYPE;
	b->at = in.at;
	b->type = in.type;
	if (b->vlan == 0)
		b->vlan = in.vlan;
	return 0;
}

/* Tags, then LLC, then PPPoE or MPLS. */
static __always_inline int look_through(void *ctx, bool xdp, struct below *b)
{
	__u8 h[8];
	int error;

	error = step_over_tags(ctx, xdp, b);
	if (!error)
		error = step_over_llc(ctx, xdp, b);
	if (error)
		return error;
	if (b->type == ETH_P_PPP_SES) {
		if (!load(ctx, xdp, b, b->at, h, 8))
			return WIRE_TRUNCATED;
		if (h[0] != 0x11)
			return WIRE_VERSION;
		if (h[1] != 0) /* discovery, and no session */
			return WIRE_TYPE;
		b->at += 8;
		b->type = h[6] != 0 ? 0 : h[7] == 0x21 ? ETH_P_IP : h[7] == 0x57 ? ETH_P_IPV6 : 0;
	} else if (b->type == ETH_P_MPLS_UC || b->type == ETH_P_MPLS_MC) {
		h[2] = 0;
		for (__u32 i = 0; i < LABELS && !(h[2] & 1); i++) {
			if (!load(ctx, xdp, b, b->at, h, 4))
				return WIRE_TRUNCATED;
			b->at += 4;
		}
		return h[2] & 1 ? labelled(ctx, xdp, b) : WIRE_LENGTH;
	}
	return 0;
}

#endif
