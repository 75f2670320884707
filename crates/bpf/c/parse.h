/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The short parser of reflect, load_rx and xsk: Ethernet, up to two VLAN tags, IPv4 or
 * IPv6, UDP. It looks at each header once, writes nothing, and says in one word
 * why a packet is not for us.
 */
#ifndef SONDE_PARSE_H
#define SONDE_PARSE_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define VLAN_TAGS 2
#define IP_DF 0x4000
#define IP_MF_OR_OFFSET 0x3fff
#define LPM_MAX 4096

enum parsed {
	PARSED_UDP,       /* `struct packet` is filled in */
	PARSED_OTHER,     /* not UDP over IP, as far as we look */
	PARSED_FRAGMENT,  /* UDP, but a fragment of it */
	PARSED_EXTENSION, /* IPv6 with an extension header */
	PARSED_SHORT,     /* the frame ends inside a header */
};

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

struct packet {
	struct ethhdr *eth;
	struct udphdr *udp;
	bool v4; /* which of the two holds; for the verifier NULL would not do */
	struct iphdr *ip4;
	struct ipv6hdr *ip6;
};

/* Longest-prefix key. IPv4 addresses stand as ::ffff:a.b.c.d with a prefix of
 * 96 + n, so that one trie serves both families.
 */
struct lpm_key {
	__u32 prefixlen;
	__be32 addr[4];
};

static __always_inline void lpm_key4(struct lpm_key *key, __be32 addr)
{
	key->prefixlen = 128;
	key->addr[0] = 0;
	key->addr[1] = 0;
	key->addr[2] = bpf_htonl(0xffff);
	key->addr[3] = addr;
}

static __always_inline void lpm_key6(struct lpm_key *key, const struct in6_addr *addr)
{
	key->prefixlen = 128;
	key->addr[0] = addr->in6_u.u6_addr32[0];
	key->addr[1] = addr->in6_u.u6_addr32[1];
	key->addr[2] = addr->in6_u.u6_addr32[2];
	key->addr[3] = addr->in6_u.u6_addr32[3];
}

/* ::ffff:0:0/96 never belongs on a wire, and would look like IPv4 in the trie. */
static __always_inline int is_mapped(const struct in6_addr *addr)
{
	return (addr->in6_u.u6_addr32[0] | addr->in6_u.u6_addr32[1]) == 0 &&
	       addr->in6_u.u6_addr32[2] == bpf_htonl(0xffff);
}

static __always_inline int is_vlan(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

static __always_inline enum parsed parse(void *data, void *end, struct packet *p)
{
	struct ethhdr *eth = data;
	void *next = eth + 1;
	__be16 proto;
	__u8 protocol;

	if (next > end)
		return PARSED_SHORT;
	p->eth = eth;
	proto = eth->h_proto;

#pragma unroll
	for (int i = 0; i < VLAN_TAGS; i++) {
		struct vlan_tag *tag = next;

		if (!is_vlan(proto))
			break;
		next = tag + 1;
		if (next > end)
			return PARSED_SHORT;
		proto = tag->proto;
	}

	p->ip4 = NULL;
	p->ip6 = NULL;
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = next;

		if ((void *)(ip + 1) > end)
			return PARSED_SHORT;
		if (ip->version != 4 || ip->ihl < 5)
			return PARSED_OTHER;
		if (ip->protocol != IPPROTO_UDP)
			return PARSED_OTHER;
		if (ip->frag_off & bpf_htons(IP_MF_OR_OFFSET))
			return PARSED_FRAGMENT;
		p->v4 = true;
		p->ip4 = ip;
		next += ip->ihl * 4;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = next;

		if ((void *)(ip + 1) > end)
			return PARSED_SHORT;
		if (ip->version != 6)
			return PARSED_OTHER;
		protocol = ip->nexthdr;
		if (protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
		    protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_DSTOPTS)
			return PARSED_EXTENSION;
		if (protocol != IPPROTO_UDP)
			return PARSED_OTHER;
		p->v4 = false;
		p->ip6 = ip;
		next = ip + 1;
	} else {
		return PARSED_OTHER;
	}

	p->udp = next;
	if ((void *)(p->udp + 1) > end)
		return PARSED_SHORT;
	return PARSED_UDP;
}

#endif
