/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* A load for the flow meter: what `BPF_PROG_TEST_RUN` with live frames runs for each packet. Out of
 * one IPv4 frame it makes packets of flows in turn: of each flow first one there, then one back. It
 * sends them out by an interface. No socket buffers are made: nothing else in software sends as
 * fast.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

const volatile __u32 target;
const volatile __u32 flow_mask;

__u32 next;

SEC("xdp")
int sonde_flow_live(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct udphdr *l4 = (void *)(ip + 1);
	__be32 client, server = bpf_htonl(0xc0000201);
	__be16 port = bpf_htons(40000), service = bpf_htons(443);
	__u32 n = next++;

	if ((void *)(l4 + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	/* An odd factor visits every flow before it comes back to the first. */
	client = bpf_htonl(0x0a000000 | ((n >> 1) * 0x9e3779b1 & flow_mask));
	ip->saddr = n & 1 ? server : client;
	ip->daddr = n & 1 ? client : server;
	l4->source = n & 1 ? service : port;
	l4->dest = n & 1 ? port : service;
	return bpf_redirect(target, 0);
}

char LICENSE[] SEC("license") = "GPL";
