/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What stands between Ethernet and IP, and between two IP headers: `look_through` and
 * `inner` of `wire/src/feature/slow.rs`. Functions that the verifier proves one by one, and
 * that read copies, wherever in the frame what they read may lie.
 */
#ifndef SONDE_FLOW_TUNNEL_H
#define SONDE_FLOW_TUNNEL_H

#include "flow_feature.h"

#define TAGS 4
#define LEAST_TYPE 0x600 /* below it is a length (IEEE 802.3, 3.2.6) */
#define LABELS 16
#define EXTENSIONS 8
#define GTPU_EXTENSIONS 4
#define TPID_OLD 0x9100
#define BRIDGED 0x6558 /* in GRE and GENEVE: an Ethernet frame */
#define CONTROL_WORD 4
#define VXLAN_PORT 4789
#define GTPU_PORT 2152
#define GENEVE_PORT 6081
#define TYPE_HSR 0x892f      /* IEC 62439-3 */
#define TYPE_VNTAG 0x8926    /* virtual interfaces of fabric extenders */
#define TYPE_FABRIC 0x8903   /* FabricPath: its tag, then the customer's addresses */
#define TYPE_BACKBONE 0x88e7 /* IEEE 802.1ah: the service instance, then the customer's addresses */
#define IP_MF_OR_OFFSET 0x3fff
#define IP_OFFSET 0x1fff

const volatile bool inner; /* the key is that inside a tunnel */

/* Why there is no record: 1 more than `wire::Error::index`. */
enum refused {
	RECORD,
	TRUNCATED,
	BAD_LENGTH,
	BAD_VERSION,
	NOT_IP,
	VLAN_DEPTH,
	UNKNOWN_TYPE = 10,
};

/* Where we are between two headers. */
struct below {
	__u32 at;
	__u32 end;      /* of what there is to read */
	__u32 wire_end; /* of the layer below by its own length */
	__u16 type;     /* EtherType of what stands here; in IP its protocol */
	__u16 vlan;     /* of the outermost tag that names one */
};

static __always_inline bool load(struct xdp_md *ctx, const struct below *b, __u32 at, void *to,
				 __u32 n)
{
	return at + n <= b->end && bpf_xdp_load_bytes(ctx, at, to, n) == 0;
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

static __always_inline int step_over_tags(struct xdp_md *ctx, struct below *b)
{
	__be16 tag[2];
	__u32 n;

	for (__u32 i = 0; (n = tag_len(b->type)); i++) {
		if (i == TAGS)
			return VLAN_DEPTH;
		if (!load(ctx, b, b->at, &tag[0], 2) || !load(ctx, b, b->at + n - 2, &tag[1], 2))
			return TRUNCATED;
		if (b->vlan == 0 && n == 4)
			b->vlan = bpf_ntohs(tag[0]) & 0xfff;
		b->type = bpf_ntohs(tag[1]);
		b->at += n;
	}
	return RECORD;
}

/* `step_over_llc` of `wire/src/link.rs`: SNAP (RFC 1042, IEEE 802.1H), or IP's own LSAP. */
static __always_inline int step_over_llc(struct xdp_md *ctx, struct below *b)
{
	__u8 h[8];

	if (b->type == 0 || b->type >= LEAST_TYPE)
		return RECORD;
	if (!load(ctx, b, b->at, h, 8))
		return TRUNCATED;
	if (h[0] == 0xaa && h[1] == 0xaa && h[2] == 3 && !h[3] && !h[4] && (!h[5] || h[5] == 0xf8)) {
		b->at += 8;
		b->type = h[6] << 8 | h[7];
		return RECORD;
	}
	if (h[0] != 6 || h[1] != 6 || h[2] != 3)
		return NOT_IP;
	b->at += 3;
	b->type = ETH_P_IP;
	return RECORD;
}

/* An Ethernet frame in a pseudowire at `at`, if IP stands where it should. */
static __always_inline bool is_frame(struct xdp_md *ctx, const struct below *b, __u32 at,
				     struct below *in)
{
	__be16 type;
	__u8 first;

	*in = *b;
	in->vlan = 0;
	in->at = at + ETH_HLEN;
	if (!load(ctx, b, at + 12, &type, 2))
		return false;
	in->type = bpf_ntohs(type);
	return step_over_tags(ctx, in) == RECORD &&
	       (in->type == ETH_P_IP || in->type == ETH_P_IPV6) &&
	       load(ctx, in, in->at, &first, 1) && type_of(first) == in->type;
}

/* What an MPLS stack carries, which only its first octets tell (RFC 4928). */
static __always_inline int labelled(struct xdp_md *ctx, struct below *b)
{
	__u32 room = b->wire_end > b->at ? b->wire_end - b->at : 0;
	bool fits = false;
	struct below in;
	__u8 h[6];

	if (!load(ctx, b, b->at, h, 1))
		return TRUNCATED;
	b->type = type_of(h[0]);
	if (b->type == ETH_P_IP)
		fits = load(ctx, b, b->at, h, 4) && (h[0] & 15) >= 5 &&
		       (__u32)(h[2] << 8 | h[3]) <= room;
	else if (b->type == ETH_P_IPV6)
		fits = load(ctx, b, b->at, h, 6) &&
		       sizeof(struct ipv6hdr) + (h[4] << 8 | h[5]) <= room;
	if (fits)
		return RECORD;
	/* A control word begins with four bits of 0, and so do many MAC addresses. */
	if (!is_frame(ctx, b, b->at, &in) &&
	    (h[0] >> 4 != 0 || !is_frame(ctx, b, b->at + CONTROL_WORD, &in)))
		return b->type ? RECORD : NOT_IP;
	b->at = in.at;
	b->type = in.type;
	if (b->vlan == 0)
		b->vlan = in.vlan;
	return RECORD;
}

/* VLAN tags, then LLC, then PPPoE or MPLS. */
__noinline int flow_link(struct xdp_md *ctx, struct below *b)
{
	__u8 h[8];
	int done;

	if (!b)
		return UNKNOWN_TYPE;
	done = step_over_tags(ctx, b);
	if (!done)
		done = step_over_llc(ctx, b);
	if (done)
		return done;
	if (b->type == ETH_P_PPP_SES) {
		if (!load(ctx, b, b->at, h, 8))
			return TRUNCATED;
		if (h[0] != 0x11)
			return BAD_VERSION;
		if (h[1] != 0) /* discovery, and no session */
			return UNKNOWN_TYPE;
		b->at += 8;
		b->type = h[6] != 0 ? 0 : h[7] == 0x21 ? ETH_P_IP : h[7] == 0x57 ? ETH_P_IPV6 : 0;
	} else if (b->type == ETH_P_MPLS_UC || b->type == ETH_P_MPLS_MC) {
		h[2] = 0;
		for (__u32 i = 0; i < LABELS && !(h[2] & 1); i++) {
			if (!load(ctx, b, b->at, h, 4))
				return TRUNCATED;
			b->at += 4;
		}
		return h[2] & 1 ? labelled(ctx, b) : BAD_LENGTH;
	}
	return RECORD;
}

static __always_inline int enter_frame(struct xdp_md *ctx, struct below *b)
{
	__be16 type;

	if (b->at + ETH_HLEN > b->end || !load(ctx, b, b->at + 12, &type, 2))
		return UNKNOWN_TYPE;
	b->type = bpf_ntohs(type);
	b->at += ETH_HLEN;
	return RECORD;
}

/* RFC 2784, RFC 2890. */
static __always_inline int enter_gre(struct xdp_md *ctx, struct below *b)
{
	__u8 h[4];

	/* Another version is PPTP's; the routing of RFC 1701 nobody may use. */
	if (!load(ctx, b, b->at, h, 4) || h[1] & 7 || h[0] & 0x40)
		return UNKNOWN_TYPE;
	/* Checksum, key, sequence number. */
	b->at += 4 + (h[0] >> 7) * 4 + (h[0] >> 5 & 1) * 4 + (h[0] >> 4 & 1) * 4;
	if (b->at > b->end)
		return UNKNOWN_TYPE;
	b->type = h[2] << 8 | h[3];
	return b->type == BRIDGED ? enter_frame(ctx, b) : RECORD;
}

/* RFC 7348. */
static __always_inline int enter_vxlan(struct xdp_md *ctx, struct below *b)
{
	__u8 h[8];

	/* The flag says that a network identifier is there. */
	if (!load(ctx, b, b->at, h, 8) || !(h[0] & 8))
		return UNKNOWN_TYPE;
	b->at += 8;
	return enter_frame(ctx, b);
}

/* RFC 8926, section 3.4. */
static __always_inline int enter_geneve(struct xdp_md *ctx, struct below *b)
{
	__u8 h[8];

	/* Version 0; not for the tunnel's own endpoints. */
	if (!load(ctx, b, b->at, h, 8) || h[0] & 0xc0 || h[1] & 0x80)
		return UNKNOWN_TYPE;
	b->at += 8 + h[0] * 4;
	if (b->at > b->end)
		return UNKNOWN_TYPE;
	b->type = h[2] << 8 | h[3];
	return b->type == BRIDGED ? enter_frame(ctx, b) : RECORD;
}

/* 3GPP TS 29.281, section 5.1. */
static __always_inline int enter_gtpu(struct xdp_md *ctx, struct below *b)
{
	__u8 h[12], next = 0;

	/* Version 1, not GTP'; a user's packet. */
	if (!load(ctx, b, b->at, h, 8) || (h[0] & 0xf0) != 0x30 || h[1] != 255)
		return UNKNOWN_TYPE;
	b->at += 8;
	if (h[0] & 7) {
		/* One flag is enough for all three fields to be there. */
		if (!load(ctx, b, b->at, h + 8, 4))
			return UNKNOWN_TYPE;
		b->at += 4;
		next = h[0] & 4 ? h[11] : 0;
		for (__u32 i = 0; i < GTPU_EXTENSIONS && next; i++) {
			__u8 length;

			if (!load(ctx, b, b->at, &length, 1) || !length)
				return UNKNOWN_TYPE;
			b->at += length * 4;
			if (!load(ctx, b, b->at - 1, &next, 1))
				return UNKNOWN_TYPE;
		}
		if (next)
			return UNKNOWN_TYPE;
	}
	if (!load(ctx, b, b->at, h, 1))
		return UNKNOWN_TYPE;
	b->type = type_of(h[0]);
	return RECORD;
}

/* From an IP packet's payload to what it carries in a tunnel. Anything but RECORD: no
 * tunnel, or none that could be looked into.
 */
__noinline int flow_tunnel(struct xdp_md *ctx, struct below *b)
{
	__be16 h[4];

	if (!b)
		return UNKNOWN_TYPE;
	switch (b->type) {
	case IPPROTO_IPIP:
		b->type = ETH_P_IP;
		return RECORD;
	case IPPROTO_IPV6:
		b->type = ETH_P_IPV6;
		return RECORD;
	case IPPROTO_GRE:
		return enter_gre(ctx, b);
	case IPPROTO_UDP:
		if (!load(ctx, b, b->at, h, 8))
			return UNKNOWN_TYPE;
		b->at += 8;
		switch (bpf_ntohs(h[1])) {
		case VXLAN_PORT:
			return enter_vxlan(ctx, b);
		case GENEVE_PORT:
			return enter_geneve(ctx, b);
		case GTPU_PORT:
			return enter_gtpu(ctx, b);
		}
	}
	return UNKNOWN_TYPE;
}

#endif
