/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The flow meter's input in the kernel. One of two programs is attached:
 *
 * `sonde_flow_headers` reads each packet's headers and puts the unified header alone into
 * the ring of the worker that has its addresses. The packet itself goes on to the host, or
 * on a port that gets copies anyway is dropped.
 *
 * `sonde_flow_frames` takes the packets away: cut or whole, to the AF_XDP socket of the
 * queue that they came by.
 */
#include "flow_parse.h"
#include "meta.h"

#define POINTS 64

#define REASONS 13 /* as `wire::Error::COUNT` */

enum counter {
	REFUSED,                               /* packets, by enum wire_error from WIRE_TRUNCATED on */
	REFUSED_BYTES = REFUSED + REASONS,
	NO_SOCKET = REFUSED_BYTES + REASONS,   /* on this queue: the packet is the kernel's */
	NO_META,                               /* the driver has no room for the stamp */
	NOT_CUT,                               /* the driver cannot shorten this packet */
	COUNTERS,
};

struct counters {
	__u64 n[COUNTERS];
};

const volatile bool consume;
const volatile __u32 trim; /* octets that are left of a frame; 0: all */
const volatile __u32 points; /* interfaces; the first ones below */
const volatile __u32 interface_of[POINTS];
const volatile bool raw_ip[POINTS];

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1); /* set by the loader: queues of the interface */
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

static __always_inline void count(__u32 which, __u64 by)
{
	__u32 zero = 0;
	struct counters *c = bpf_map_lookup_elem(&counters, &zero);
	__u64 i = which;

	/* The verifier must see the very value compared that is the index. */
	asm volatile("" : "+r"(i));
	if (c && i < COUNTERS)
		c->n[i] += by;
}

static __always_inline __u32 point_of(__u32 ifindex)
{
	__u32 i;

	/* With one interface nothing is looked at. */
	for (i = 0; i + 1 < points && i < POINTS - 1; i++)
		if (interface_of[i] == ifindex)
			break;
	return i;
}

static __noinline int slowly(struct xdp_md *ctx, __u32 point)
{
	struct feature f = {};
	struct feature *to;
	int refused = flow_parse(ctx, &f, raw_ip[point & (POINTS - 1)]);

	if (refused) {
		count(REFUSED + refused - WIRE_TRUNCATED, 1);
		count(REFUSED_BYTES + refused - WIRE_TRUNCATED, bpf_xdp_get_buff_len(ctx));
		return 0;
	}
	f.point = point;
	to = take_slot(worker_of(f.source[0], f.source[1], f.destination[0], f.destination[1]),
			f.ip_len);
	if (!to)
		return 0;
	*to = f;
	publish(to, bpf_ktime_get_ns() + time_base);
	return 0;
}

SEC("xdp")
int sonde_flow_headers(struct xdp_md *ctx)
{
	__u32 point = point_of(ctx->ingress_ifindex);

	if (raw_ip[point & (POINTS - 1)] || !quick(ctx, point))
		slowly(ctx, point);
	return consume ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int sonde_flow_frames(struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index;
	__u32 length, cut = 0;
	struct stamp *s;

	if (!bpf_map_lookup_elem(&xsks, &queue)) {
		count(NO_SOCKET, 1);
		return XDP_PASS;
	}
	length = bpf_xdp_get_buff_len(ctx);
	if (trim && length > trim) {
		if (bpf_xdp_adjust_tail(ctx, (int)trim - (int)length) == 0)
			cut = length;
		else
			count(NOT_CUT, 1);
	}
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*s)) == 0) {
		s = (void *)(long)ctx->data_meta;
		if ((void *)(s + 1) > (void *)(long)ctx->data)
			return XDP_ABORTED; /* cannot be; the verifier wants to see it */
		s->magic = META_MAGIC;
		s->wire_len = cut;
		s->ns = bpf_ktime_get_tai_ns();
		s->card = 0;
	} else {
		count(NO_META, 1);
	}
	return bpf_redirect_map(&xsks, queue, XDP_DROP);
}

char LICENSE[] SEC("license") = "GPL";
