/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Passive round-trip times of every flow that passes an interface: programs for tc at
 * ingress and egress, and for XDP. They look, count and leave each packet to whatever
 * runs after them.
 *
 * Parsing is inlined into each; finding the flow and matching is one function that the
 * verifier proves by itself.
 */
#include "rtt_bench.h"
#include "rtt_other.h"
#include "rtt_parse.h"

#define PULL 512U       /* octets that hold every header we read */
#define SWEEPS 64       /* of the table, in this many steps */
#define SWEEP_NS 100000000ULL
#define CLOCK_MONOTONIC 1

struct ticker {
	struct bpf_timer timer;
	__u32 next;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ticker);
} rtt_ticker SEC(".maps");

static __always_inline __u32 find_flow(struct bucket *b, __u32 index, __u32 tag,
				       const struct rtt_packet *p)
{
#pragma unroll
	for (__u32 i = 0; i < WAYS; i++) {
		if (b->tag[i] == tag) {
			struct flow *f = flow_at(index, i);

			if (f && same_key(f, p))
				return i;
		}
	}
	return NO_WAY;
}

/* Under the lock of its bucket. */
static __always_inline void take(struct bucket *b, __u32 index, __u32 tag, __u64 hash,
				 struct rtt_packet *p)
{
	__u32 way = find_flow(b, index, tag, p);
	struct flow *f = NULL;
	bool fresh = false, noted = false;

	p->index = index * WAYS + (way & (WAYS - 1));
	if (way < WAYS) {
		f = flow_at(index, way);
		if (!f)
			return;
		fresh = true;
		if (is_idle(f, p->coarse))
			rtt_end_flow(f, R_IDLE);
		else if (f->flags & CLOSED && p->what == W_TCP &&
			 (p->flags & (TCP_SYN | TCP_RST)) == TCP_SYN)
			rtt_end_flow(f, R_REUSE);
		else if (!(f->flags & CLOSED) && f->flags & SYN_NOTED && p->what == W_TCP &&
			 rtt_begins(f, p)) {
			rtt_end_flow(f, R_REUSE);
			noted = true;
		} else
			fresh = false;
	}
	if (!f || fresh) {
		if (!may_begin(p)) {
			if (f)
				b->tag[way & (WAYS - 1)] = 0;
			count_n(UNTRACKED_KIND, p->segs);
			return;
		}
		if (!f) {
			way = make_room(b, index, p->coarse);
			f = way < WAYS ? flow_at(index, way) : NULL;
			if (!f) {
				count_n(UNTRACKED_FULL, p->segs);
				return;
			}
			b->tag[way & (WAYS - 1)] = tag;
			fresh = true;
			p->index = index * WAYS + (way & (WAYS - 1));
		}
		rtt_begin_flow(f, p);
		if (noted) {
			rtt_begin_noted(f, p);
			fresh = false;
		}
	}
	if (seen_before(p, hash) && !fresh && !may_differ(f, p)) {
		count_n(DUPLICATED, p->segs);
		return;
	}
	if (!(f->flags & CLOSED) && (__u32)(p->coarse - f->last + 1) > RECENT + 1)
		rtt_pause(f);
	count_packet(f, p);
	if ((p->tos & 3) == ECN_CE)
		BUMP(f, p->d, ce_marks);
	/* A closed one's time-out runs on: a forged RST silences a flow only for so long. */
	if (f->flags & CLOSED)
		return;
	f->last = p->coarse;
	/* Parsing calls a first fragment something else only where identifiers stand in front. */
	if (p->bits & P_FRAGMENT && p->what == W_OTHER)
		return;
	if (residence)
		transit(f, p);
	if (p->what == W_TCP)
		tcp_packet(f, p, fresh);
	else
		rtt_other_packet(f, p);
}

/* Finds or makes the packet's flow, and gives it the packet. */
__noinline int rtt_match(struct rtt_packet *p)
{
	__u32 index, tag;
	struct bucket *b;
	__u64 hash, now;

	if (!p)
		return 0;
	hash = flow_hash(p->key.w);
	index = hash & bucket_mask;
	tag = hash >> 32 ?: 1;
	b = bpf_map_lookup_elem(&rtt_buckets, &index);
	if (!b)
		return 0;
	now = about_now();
	p->coarse = COARSE(now);
	p->moment = MOMENT(now);
	p->now = 0;
	p->d &= 1;
	if (!lock(b)) {
		count_n(CONTENDED, p->segs);
		return 0;
	}
	take(b, index, tag, hash, p);
	unlock(b);
	return 0;
}

/* The point of an interface, and 0x100 for one without Ethernet. NOTHING: not ours. */
static __always_inline __u32 point_of(__u32 ifindex)
{
	if (*(volatile __u64 *)&rtt_test_now)
		return *(volatile __u32 *)&rtt_test_point;
#pragma unroll
	for (__u32 i = 0; i < POINT_PROBES; i++) {
		__u32 at = (ifindex + i) & (POINTS - 1);
		struct point *point = bpf_map_lookup_elem(&rtt_points, &at);

		if (point && point->ifindex == ifindex && point->used)
			return point->point | (point->l3 ? 0x100 : 0);
	}
	return NOTHING;
}

static __always_inline bool admitted(const struct rtt_packet *p)
{
	if (transports != T_ALL) {
		bool port53 = p->key.port[0] == bpf_htons(DNS_PORT) ||
			      p->key.port[1] == bpf_htons(DNS_PORT);
		__u32 dns = port53 ? T_DNS : 0, transport;

		switch (p->key.protocol) {
		case IPPROTO_TCP:
			transport = T_TCP | dns;
			break;
		case IPPROTO_UDP:
			transport = p->what == W_DNS || p->what == W_DNS_RESPONSE ? T_DNS : T_QUIC | dns;
			break;
		case IPPROTO_SCTP:
			transport = T_SCTP;
			break;
		case IPPROTO_ICMP:
		case IPPROTO_ICMPV6:
			transport = T_ICMP;
			break;
		default:
			transport = 0;
		}
		if (!(transports & transport))
			return false;
	}
	if (port_count && !in_ports(p->key.port[0], p->key.port[1]))
		return false;
	return !net_count || !p->elsewhere;
}

static __always_inline enum parsed parse(struct frame *f, struct rtt_packet *p, __u32 point,
					 __u16 vlan, bool gso)
{
	enum parsed done;

	p->key.point = point;
	p->what = W_OTHER;
	p->flags = 0;
	p->bits = 0;
	p->bad_options = 0;
	done = parse_link(f, p, point & 0x100, vlan);
	return done == PARSED ? parse_ip(f, p, gso) : done;
}

static __always_inline void finish(enum parsed done, struct rtt_packet *p)
{
	switch (done) {
	case PARSED:
		break;
	case NO_IP:
		count(NOT_IP);
		return;
	case FRAGMENT:
		count(FRAGMENTS);
		return;
	case OTHER:
		count(OTHER_PROTOCOL);
		return;
	default:
		count(MALFORMED);
		return;
	}
	count_n(PACKETS, p->segs);
	if (any_vlan)
		p->key.vlan = 0;
	if (!admitted(p)) {
		count_n(FILTERED, p->segs);
		return;
	}
	/* Of what the filter lets through; a frame that cannot be read counts in any case. */
	if (p->bad_options)
		count(MALFORMED);
	rtt_match(p);
}

/* The VLAN tag that the kernel keeps beside the packet, for the parser. */
static __always_inline __u16 tag_beside(const struct __sk_buff *skb)
{
	return skb->vlan_present ? TAGGED | (skb->vlan_tci & VID) : 0;
}

static __always_inline void skb_frame(struct __sk_buff *skb, struct frame *f)
{
	f->ctx = skb;
	f->xdp = false;
	f->data = (void *)(long)skb->data;
	f->end = (void *)(long)skb->data_end;
	f->len = skb->len;
}

/* The headers are not all in the linear part: rare, and not inlined. */
__noinline int rtt_pulled(struct __sk_buff *skb, struct rtt_packet *p)
{
	struct frame f;
	__u32 point;

	if (!p)
		return SHORT;
	bpf_skb_pull_data(skb, skb->len < PULL ? skb->len : PULL);
	skb_frame(skb, &f);
	point = point_of(skb->ifindex);
	return parse(&f, p, point, tag_beside(skb), skb->gso_segs > 1);
}

static __always_inline int tc(struct __sk_buff *skb, __u8 direction)
{
	__u32 point = point_of(skb->ifindex), segs = skb->gso_segs;
	struct rtt_packet p;
	enum parsed done;
	struct frame f;

	if (point == NOTHING) {
		count(UNKNOWN_INTERFACE);
		return TC_ACT_UNSPEC;
	}
	p.segs = segs > 1 ? segs : 1;
	skb_frame(skb, &f);
	done = parse(&f, &p, point, tag_beside(skb), segs > 1);
	if (done == SHORT)
		done = rtt_pulled(skb, &p);
	p.bits |= direction;
	finish(done, &p);
	return TC_ACT_UNSPEC;
}

SEC("classifier")
int sonde_rtt_in(struct __sk_buff *skb)
{
	return tc(skb, 0);
}

SEC("classifier")
int sonde_rtt_out(struct __sk_buff *skb)
{
	return tc(skb, P_EGRESS);
}

SEC("xdp")
int sonde_rtt_xdp(struct xdp_md *ctx)
{
	__u32 point = point_of(ctx->ingress_ifindex);
	struct rtt_packet p;
	struct frame f;

	if (point == NOTHING) {
		count(UNKNOWN_INTERFACE);
		return XDP_PASS;
	}
	f.data = (void *)(long)ctx->data;
	f.end = (void *)(long)ctx->data_end;
	f.len = ctx->data_end - ctx->data;
	f.ctx = ctx;
	f.xdp = true;
	p.segs = 1;
	finish(parse(&f, &p, point, 0, false), &p);
	return XDP_PASS;
}

/* The whole program, and nothing, each with the making of packets around it. */
#define BENCH(name, version, udp)                    \
	SEC("classifier")                            \
	int sonde_##name(struct __sk_buff *skb)      \
	{                                            \
		bench_packet(skb, version, udp);     \
		return tc(skb, 0);                   \
	}                                            \
	SEC("classifier")                            \
	int sonde_##name##_empty(struct __sk_buff *skb) \
	{                                            \
		bench_packet(skb, version, udp);     \
		return TC_ACT_UNSPEC;                \
	}

BENCH(tcp4, 4, false)
BENCH(tcp6, 6, false)
BENCH(udp4, 4, true)
BENCH(udp6, 6, true)

struct sweep {
	__u32 from;
	__u32 coarse;
};

static long sweep_one(__u64 i, struct sweep *s)
{
	sweep_bucket(s->from + i, s->coarse);
	return 0;
}

static int tick(void *map, __u32 *key, struct ticker *t)
{
	__u32 buckets = bucket_mask + 1, step = buckets / SWEEPS ?: 1;
	struct sweep s = { .from = t->next * step, .coarse = coarse_now() };

	(void)map;
	(void)key;
	/* A test sweeps when it says so. */
	if (!*(volatile __u64 *)&rtt_test_now)
		bpf_loop(step, sweep_one, &s, 0);
	t->next = (t->next + 1) % SWEEPS;
	bpf_timer_start(&t->timer, SWEEP_NS, 0);
	return 0;
}

/* Run once by the loader: sets the coarse clock, and starts the sweeping. */
SEC("classifier")
int sonde_rtt_start(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct ticker *t = bpf_map_lookup_elem(&rtt_ticker, &zero);

	(void)skb;
	jiffy_offset = bpf_ktime_get_ns() + time_base - bpf_jiffies64() * jiffy_ns;
	if (!t || bpf_timer_init(&t->timer, &rtt_ticker, CLOCK_MONOTONIC))
		return 1;
	bpf_timer_set_callback(&t->timer, tick);
	return bpf_timer_start(&t->timer, SWEEP_NS, 0) != 0;
}

/* For tests, and when the measurement ends: the whole table at once. */
SEC("classifier")
int sonde_rtt_sweep(struct __sk_buff *skb)
{
	struct sweep s = { .from = 0, .coarse = coarse_now() };

	(void)skb;
	bpf_loop(bucket_mask + 1, sweep_one, &s, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
