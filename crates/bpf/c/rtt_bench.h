/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* For measurements: BPF_PROG_TEST_RUN repeats on one buffer, so each run makes it into the
 * next packet first. Requests and answers take turns, and flows do; what that costs is
 * measured with the program that does nothing else.
 */
#ifndef SONDE_RTT_BENCH_H
#define SONDE_RTT_BENCH_H

#include "rtt_packet.h"

#define BENCH_DATA 100U /* octets that a request carries; an answer carries none */

enum bench_payload { /* of UDP: RttTraffic in src/rtt/run.rs */
	BENCH_DNS, BENCH_SHORT, BENCH_INITIAL, BENCH_PLAIN,
};

__u32 bench_flows;   /* how many take turns; a power of two */
__u32 bench_samples; /* each pair is a sample; of a spinning bit, each packet */
__u32 bench_payload;
__u32 bench_next;

/* `version` 4 or 6; TCP with timestamps, or what bench_payload says when `udp`. The frame has
 * room for all, and all that never changes.
 */
static __always_inline int bench_packet(struct __sk_buff *skb, int version, bool udp)
{
	void *end = (void *)(long)skb->data_end, *data = (void *)(long)skb->data;
	struct iphdr *ip4 = data + ETH_HLEN;
	struct ipv6hdr *ip6 = data + ETH_HLEN;
	__be16 *ports = version == 4 ? (void *)(ip4 + 1) : (void *)(ip6 + 1);
	__u32 n = bench_next++, pair = n >> 1, flow = pair & (bench_flows - 1);
	__u32 round = pair / bench_flows + 1, length, answer = n & 1;
	__be32 client = bpf_htonl(0x0a000000 + flow), server = bpf_htonl(0xc0a80001);
	__u32 *w = (void *)ports;

	if ((void *)(ports + 16) > end)
		return 0;
	length = udp ? 8 + 20 : answer ? 32 : 32 + BENCH_DATA;
	if (version == 4) {
		ip4->tot_len = bpf_htons(20 + length);
		ip4->saddr = answer ? server : client;
		ip4->daddr = answer ? client : server;
	} else {
		ip6->payload_len = bpf_htons(length);
		ip6->saddr.in6_u.u6_addr32[3] = answer ? server : client;
		ip6->daddr.in6_u.u6_addr32[3] = answer ? client : server;
	}
	if (udp) {
		__u16 id = bench_samples ? round : round * 2 + answer;
		__u32 port = bench_payload == BENCH_DNS ? 53 : 443, first = 0;

		if (bench_payload == BENCH_DNS)
			first = (__u32)id << 16 | (answer ? 0x8180 : 0x0100);
		else if (bench_payload == BENCH_INITIAL || (bench_payload == BENCH_SHORT && round == 1))
			first = 0xc0000000; /* only this begins a flow */
		else if (bench_payload == BENCH_SHORT)
			first = bench_samples && (round & 1) ? 0x60000000 : 0x40000000;
		w[0] = answer ? bpf_htonl(port << 16 | 40000) : bpf_htonl(40000U << 16 | port);
		w[1] = bpf_htonl(length << 16);
		w[2] = bpf_htonl(first);
	} else {
		/* Without samples: one TSval waits for its echo, as in a flow that sends more in a
		 * tick of its clock. An octet is never acknowledged.
		 */
		__u32 seq = round * BENCH_DATA, acked = seq + BENCH_DATA - !bench_samples;
		__u32 value = bench_samples ? round << 10 : round < 3 ? round : 1 << 24;

		w[0] = answer ? bpf_htonl(443 << 16 | 40000) : bpf_htonl(40000U << 16 | 443);
		w[1] = bpf_htonl(answer ? 1 : seq);
		w[2] = bpf_htonl(answer ? acked : 1);
		w[3] = bpf_htonl(0x80100100);
		w[5] = bpf_htonl(0x0101080a);
		w[6] = bpf_htonl(answer ? 7 : value);
		w[7] = bpf_htonl(!answer ? 7 : bench_samples ? value : 1);
	}
	return 1;
}

#endif
