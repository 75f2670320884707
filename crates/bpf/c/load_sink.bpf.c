/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Drops whatever arrives: what a generator can send at most is measured against it. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int sonde_load_sink(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
