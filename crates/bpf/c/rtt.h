/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Passive round-trip times: what the kernel keeps of a flow, its maps, settings and
 * counters. User space maps the same memory: `src/rtt/layout.rs` repeats the structures.
 *
 * Everything a flow needs stands in one entry of five cache lines: the header, and two lines for
 * each of its two sides. What only few flows need (losses, more than four packets in flight) is
 * added on demand from pools. So the memory has a bound that neither traffic nor the number of CPUs
 * moves.
 */
#ifndef SONDE_RTT_H
#define SONDE_RTT_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "keys are hashed as little-endian words");

#define WAYS 8           /* flows of a bucket */
#define SLOTS 4          /* of a side, in the entry */
#define PAGE_SLOTS 128
#define MAX_PAGES 64     /* of a side */
#define BUCKETS_OF_HIST 210
#define LOCK_TRIES 2048 /* some 15 us: an interrupt of whoever holds it is shorter */
#define POINTS 1024      /* entries for interfaces; a probe looks at POINT_PROBES of them */
#define POINT_PROBES 4
#define GROUP_PROBES 16
#define MAX_NETS 8
#define MAX_PORTS 8
#define TRANSIT 4096
#define REQUEST_WAYS 4

/* Time, see "Time" of the rules: ticks of 64 ns in 31 bits, and units of 2^26 ns. */
#define TICK_SHIFT 6
#define TICK_MASK 0x7fffffffU
#define SPAN 0x80000000U /* of a slot's time: the packet was several segments */
#define TICKS(ns) ((__u32)((ns) >> TICK_SHIFT))
#define MAX_RTT TICKS(64000000000ULL)
#define COARSE_SHIFT 26
#define COARSE(ns) ((__u32)((ns) >> COARSE_SHIFT))
#define MOMENT(ns) ((__u32)((ns) >> 14))
#define RECENT (COARSE(64000000000ULL) + 1) /* so near that ticks cannot have wrapped */

struct key {
	union {
		struct {
			__be32 addr[2][4]; /* IPv4 as ::ffff:a.b.c.d */
			__be16 port[2];
			__u16 vlan;
			__u8 protocol;
			__u8 point;
		};
		__u64 w[5];
	};
};

struct slot {
	__u32 key;
	__u32 time; /* tick, and SPAN */
};

/* Of a side with pages, instead of its own slots. The first page is a ring as long as it is
 * the only one. Those that follow it are filled from their beginning, and all but the last
 * are full.
 */
struct chain {
	__u16 head;  /* of the first page */
	__u16 left;  /* slots in the first page, if others follow */
	__u16 last;  /* as side.page */
	__u16 pages;
};

#define MANY 3

enum mode { MODE_NONE, MODE_TS, MODE_SEQ };

/* What became of a side's echo, DNS or heartbeat requests; instead of its slots, which only
 * TCP has.
 */
struct asked {
	__u32 requests; /* = answered + unanswered + waiting */
	__u32 answered;
	__u32 unanswered;
	__u32 waiting[2]; /* of this turn, and of the one before */
	__u32 turn;
};

/* Bits of side.flags. */
#define HAS_NXT 0x0001
#define HAS_ACK 0x0002
#define HAS_WIN 0x0004
#define TS_SEEN 0x0008
#define EDGE_SEEN 0x0010
#define RECOVERING 0x0020
#define HOLE 0x0040
#define FIN_SEEN 0x0080
#define AWAY 0x0100 /* it has sent something far from its sequence numbers: see loss.away */
#define SYN_BEGAN 0x0200 /* by its SYN; its sequence number is known */
#define TOLD 0x0400 /* the other side has said that something is missing */
#define UNUSED 0x0800 /* no data has carried the greatest TSval yet */
#define LATE 0x1000 /* the last echo of what it sent came so late that one before it was lost */
/* QUIC, instead of two of TCP's. */
#define SPIN_SEEN EDGE_SEEN
#define SPIN_VALUE RECOVERING
#define PERIOD_SHIFT 13 /* three bits: enum period */

enum period { PERIOD_FRESH, PERIOD_SEEKING, PERIOD_ODD, PERIOD_1US, PERIOD_1MS, PERIOD_4MS, PERIOD_10MS };

/* One side: the state of what it sent. Two cache lines: the first is read whenever the
 * other side acknowledges, the second when a packet is counted or a sample found.
 */
struct side {
	union { struct slot slot[SLOTS]; struct chain chain; struct asked asked; };
	__u32 nxt;                                  /* sequence number expected next */
	/* Highest acknowledgement of this side's data. Of a server whose SYN-ACK has not been
	 * acknowledged: the acknowledgement that ends the handshake.
	 */
	union { __u32 ack; __u32 spin_shorts; };
	union { __u32 tsval; __u32 spin_edges; };   /* the greatest one sent */
	__u32 recover;                              /* recovery ends here */
	__u16 flags;
	__u16 win;
	__u16 page;                                 /* the first: index + 1; 0: none */
	__u16 group;                                /* of this side's address, + 1; 0: none yet */
	__u16 armed;                                /* coarse time of the newest slot */
	__u8 held_period;                           /* of 17 s, modulo 256: that of recent */
	__u8 held;                                  /* prompt and alike: see rtt_held.h */
	__u16 count;                                /* slots in use */
	__u8 head : 2;                              /* of its own slots */
	__u8 mode : 2;
	__u8 flight : 2;                            /* segments sent since all was acknowledged, at most MANY */
	__u8 probed : 1;                            /* a keepalive has not been answered */
	__u8 packets_high;

	__u32 packets;
	__u32 bytes;
	__u16 sampled_at;                           /* of the last echo that was a sample, in 2^20 ns */
	__u16 bytes_high;
	__u32 samples;                              /* clean ones, as are the next three */
	__u32 rtt_min;                              /* ticks */
	__u32 srtt;
	__u32 rtt_sum;
	__u16 rtt_sum_high;
	/* Side 0: server responses. Side 1: residence in this host. Ticks. */
	__u16 timed_sum_high;
	__u32 timed_sum;
	__u32 timed;
	__u32 timed_max;
	/* Ticks, about this side; 0: not seen. Of a client whose SYN has not been answered: that
	 * SYN's sequence number.
	 */
	__u32 handshake;
	__u32 edge_at;                              /* tick of the first, then of the last TSval edge */
	__u32 variation;                            /* the first TSval, then ns above the least delay */
	__u32 variation_max;
	__u16 recent[2];                            /* least clean samples of two periods: see rtt_held.h */
};

enum handshake { HS_NONE, HS_SYN_SENT, HS_SYN_RCVD, HS_DONE };

/* Bits of flow.flags. */
#define CLIENT 0x0001 /* the side that is the client */
#define HS_SHIFT 1    /* two bits: enum handshake */
#define HS_MASK 0x0006
#define HS_VOID_SERVER 0x0008
#define HS_VOID_CLIENT 0x0010
#define CLOSED 0x0020
#define REASON_SHIFT 6 /* three bits: enum reason */
#define REASON_MASK 0x01c0
#define PENDING 0x0200 /* a request waits for its response */
#define EARLY PENDING  /* QUIC: all that the client has sent yet is 0-RTT data */
#define PENDING_DNS 0x0400
#define IPV4 0x0800
#define SYN_NOTED 0x1000   /* a SYN of other sequence numbers has passed: see loss.syn */
#define SPIN_LAST 0x2000   /* the side of the last edge */
#define SPIN_EDGE 0x4000   /* there was one */
#define SPIN_RANDOM 0x8000

enum reason { R_OPEN, R_FIN, R_RESET, R_REUSE, R_IDLE, R_EVICTED, R_STOPPED };

struct flow {
	struct key key;
	__u32 start; /* coarse */
	__u32 last;  /* coarse */
	__u32 hs_at;  /* tick; when done: half of the client's ISN, half of a request's coarse time */
	__u32 req_at; /* QUIC: the last spin edge */
	__u32 loss;   /* index + 1; 0: none */
	__u16 flags;
	/* TCP: half of the client's ISN, then a DNS request's identifier. QUIC: the run
	 * of alternating edges, and the longest in the upper octet.
	 */
	__u16 req_id;
	struct side side[2];
};

_Static_assert(sizeof(struct side) == 128, "two cache lines");
_Static_assert(sizeof(struct flow) == 320, "the bound of issue 3");

/* What flows with losses, marks or held-back acknowledgements have besides. */
struct loss_side {
	__u32 hole_lo, hole_hi, hole_at;
	__u32 retransmitted, reordered, gaps, duplicate_acks, zero_windows, ce_marks;
	__u32 recovery, delayed_ack; /* samples */
};

/* Segments far from a side's sequence numbers; AWAY is set. */
struct away {
	__u32 start, end; /* sequence numbers of what they carried: from, to */
	__u32 at;         /* when the last one passed, tick */
	__u32 ack, tsval; /* of the last one */
	__u16 segments;   /* how many followed each other */
	__u16 again;      /* how many of them were counted as sent again */
	__u32 bits;
};

#define AWAY_TS 1    /* tsval is one */
#define AWAY_TIMED 2 /* an acknowledgement of the end answers the last one and no other */

/* A SYN or SYN-ACK of other sequence numbers than the connection's; SYN_NOTED is set. */
struct noted_syn {
	__u32 seq, end; /* its sequence number, and the one after it and its data */
	__u32 at;       /* tick of the first */
	__u32 ack, tsval;
	__u16 ip_len;
	__u8 side;
	__u8 bits;
};

#define NOTED_TS 1
#define NOTED_ACK 2   /* a SYN-ACK */
#define NOTED_AGAIN 4 /* sent again: which one was answered is not known */

struct loss {
	struct loss_side side[2];
	struct away away[2];
	struct noted_syn syn;
	__u32 excess[2];    /* of the last acknowledgement that looked held back, ticks */
	__u32 late_hole[2]; /* the hole is of data that was acknowledged before it passed */
};

/* When a side last had an event, and last entered a histogram; only where limits or weights
 * are asked for.
 */
struct mark {
	__u32 event_at; /* in 1,024 ns */
	__u16 weighed;  /* coarse */
	__u16 bits;
};

#define EVENT_SEEN 1
#define WEIGHED 2

struct marks {
	struct mark side[2];
};

/* The prints of the packets that passed last: see rtt_seen.h. */
struct print {
	__u32 check;
	__u32 moment;
};

#define PAIRS 1024

struct prints {
	struct print at[PAIRS][2]; /* the newest first */
};

struct bucket {
	__u32 tag[WAYS]; /* 0: free */
	__u32 lock;      /* odd: held; goes up by 2 with each holder, for readers without it */
	__u32 unused[7];
};

_Static_assert(sizeof(struct bucket) == 64, "one cache line");

struct page {
	struct slot slot[PAGE_SLOTS];
	__u16 next; /* as side.page */
	__u16 unused[3];
};

enum class { CLEAN, RECOVERY, DELAYED_ACK, CLASSES };

struct group_class {
	__u64 sum;   /* ticks */
	__u32 loose; /* samples that found no histogram */
	__u32 min;   /* ticks + 1; 0: none */
	__u32 max;
	__u32 hist;  /* index + 1; 0: none */
};

#define GROUP_EMPTY 0U /* never used: a search may stop here */
#define GROUP_FREED 1U
#define GROUP_BUSY 2U
#define GROUP_LIVE 0x80000000U /* the rest: flow sides that point here */
#define GROUP_IPV4 0x10000 /* of the kind */

struct group {
	__u32 state;
	__u32 hash;
	__u32 kind; /* what the key is: enum group_kind, and more for some */
	__u32 unused;
	__u64 key[5];
	struct group_class class[CLASSES];
};

_Static_assert(sizeof(struct group) == 128, "two cache lines");

enum group_kind { BY_PREFIX = 1, BY_AS, BY_INTERFACE, BY_VLAN, BY_DSCP, BY_FLOW };

struct hist {
	__u32 bucket[BUCKETS_OF_HIST];
};

struct point {
	__u32 ifindex;
	__u8 used;
	__u8 point;
	__u8 l3;
	__u8 unused;
};

struct prefix_key {
	__u32 length;
	__be32 addr[4];
};

struct prefix {
	__u32 length;
	__u32 as;
};

struct transit {
	__u32 check;
	__u32 tick;
};

/* A request that waits for its answer. */
struct request {
	__u64 word; /* upper 48 bits of its hash, the highest set; coarse time. 0: free */
	__u32 time; /* tick, and AMBIGUOUS */
	__u32 name; /* of DNS: stands for the name. 0: none, which fits all */
};

struct request_set {
	struct request way[REQUEST_WAYS];
};

_Static_assert(sizeof(struct request_set) == 64, "one cache line");

/* To user space: one sample, and a flow that ended. */
struct sample_event {
	struct key key;
	__u64 at; /* of the program's clock, ns */
	__u64 bytes; /* that the side that answered has sent */
	__u64 packets;
	__u64 peer_bytes; /* that the other side has sent */
	__u64 peer_packets;
	__u32 rtt;
	__u32 rtt_min;
	__u8 side; /* that answered */
	__u8 kind;
	__u8 class;
	__u8 ipv4;
	__u32 unused;
};

struct flow_event {
	struct flow flow;
	struct loss_side loss[2];
	__u32 reason;
	__u32 unused;
};

/* src/rtt/layout.rs has the same values. */
_Static_assert(sizeof(struct loss) == 184, "loss");
_Static_assert(sizeof(struct marks) == 16, "marks");
_Static_assert(sizeof(struct sample_event) == 96, "sample_event");
_Static_assert(sizeof(struct flow_event) == 416, "flow_event");
_Static_assert(sizeof(struct page) == 1032, "page");

enum kind { /* of a sample: RttKind of sonde_results */
	KIND_TIMESTAMP, KIND_SEQUENCE, KIND_HANDSHAKE_SERVER, KIND_HANDSHAKE_CLIENT,
	KIND_ECHO, KIND_QUIC, KIND_SPIN, KIND_DNS, KIND_HEARTBEAT, KINDS,
};

/* The order is that of COUNTERS in src/rtt/counters.rs. */
enum counter {
	PACKETS, FILTERED, UNTRACKED_KIND, UNTRACKED_FULL, FRAGMENTS, MALFORMED, NOT_IP,
	OTHER_PROTOCOL, FLOWS, FLOWS_ENDED, SAMPLES_CLEAN, SAMPLES_RECOVERY, SAMPLES_DELAYED_ACK,
	SLOTS_FULL, SPACED, STALE, VOIDED, NO_ADVANCE, DUPLICATE_IDS, ACK_UNSEEN, DUPLICATED,
	UNCONFIRMED, RESYNCHRONISED, UNWEIGHTED, EVENTS_LIMITED, EVENTS_LOST, FLOWS_LOST,
	GROUPS_FULL, REQUESTS, ANSWERED,
	/* The kernel's own. */
	HISTS_FULL, LOSSES_FULL, CONTENDED, UNKNOWN_INTERFACE,
	COUNTERS,
};

struct counters {
	__u64 n[COUNTERS];
};

/* Set before load: what is off costs nothing. */
const volatile __u32 bucket_mask;
const volatile __u32 page_count, loss_count, hist_count;
const volatile __u32 group_mask, group_limit;
const volatile __u64 seed[2];
const volatile __u32 group_by;
const volatile bool have_prefixes;
const volatile __u32 prefix_v4 = 24, prefix_v6 = 48;
const volatile __u32 event_mode; /* enum event_mode */
const volatile __u32 event_limit; /* units of 1,024 ns, or sixteenths of the smoothed RTT */
const volatile bool weigh_flows;
const volatile bool hide_addresses;
const volatile bool any_vlan; /* no part of the key */
const volatile __u32 request_mask;
const volatile __u32 transports; /* bits of enum transport; all: no filter */
const volatile __u32 net_count, port_count;
const volatile __u64 net_address[MAX_NETS][2], net_mask[MAX_NETS][2];
const volatile bool net_ipv4[MAX_NETS];
const volatile __be16 port_list[MAX_PORTS];
const volatile bool residence;
const volatile __u64 jiffy_ns;
const volatile __u64 time_base; /* steady time less CLOCK_MONOTONIC, ns */
const volatile __u32 copy_moments = 60; /* how far apart copies are at most: a tick, or this */

enum event_mode { EVENTS_NONE, EVENTS_ALL, EVENTS_EVERY, EVENTS_MULTIPLE };
enum transport { T_TCP = 1, T_ICMP = 2, T_QUIC = 4, T_DNS = 8, T_SCTP = 16, T_ALL = 31 };

/* Changed while we run. */
__u64 rtt_test_now;    /* not 0: the time, instead of both clocks */
__u32 rtt_test_point;  /* with the above: the point, and 0x100 for one without Ethernet */
__u64 jiffy_offset;    /* what jiffies need to become steady time, ns */
__u32 pages_used, pages_fresh, losses_fresh, hists_fresh, groups_used;

#define ARRAY(name, type_)                        \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(max_entries, 1);           \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__type(key, __u32);               \
		__type(value, type_);             \
	} name SEC(".maps") /* max_entries is set by the loader */

#define FREE_LIST(name)                           \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_QUEUE); \
		__uint(max_entries, 1);           \
		__type(value, __u32);             \
	} name SEC(".maps")

ARRAY(rtt_buckets, struct bucket);
ARRAY(rtt_flows, struct flow);
ARRAY(rtt_losses, struct loss);
ARRAY(rtt_marks, struct marks);
ARRAY(rtt_pages, struct page);
ARRAY(rtt_groups, struct group);
ARRAY(rtt_hists, struct hist);
ARRAY(rtt_transit, struct transit);
ARRAY(rtt_requests, struct request_set);
FREE_LIST(free_losses);
FREE_LIST(free_pages);
FREE_LIST(free_hists);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POINTS);
	__type(key, __u32);
	__type(value, struct point);
} rtt_points SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix_key);
	__type(value, struct prefix);
} rtt_prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} rtt_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct prints);
} rtt_prints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} rtt_samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} rtt_ended SEC(".maps");

static __always_inline void count_n(enum counter which, __u64 n)
{
	__u32 zero = 0;
	struct counters *c = bpf_map_lookup_elem(&rtt_counters, &zero);

	if (c)
		c->n[which] += n;
}

static __always_inline void count(enum counter which)
{
	count_n(which, 1);
}

/* Of something small that grows past 32 bits: 48 of them. */
static __always_inline void add48(__u32 *low, __u16 *high, __u32 n)
{
	__u32 sum = *low + n;

	if (sum < n)
		++*high;
	*low = sum;
}

/* As precise as the kernel's tick, and cheap. */
static __always_inline __u64 about_now(void)
{
	__u64 test = *(volatile __u64 *)&rtt_test_now;

	return test ?: bpf_jiffies64() * jiffy_ns + jiffy_offset;
}

static __always_inline __u32 coarse_now(void)
{
	return COARSE(about_now());
}

static __always_inline __u32 ticks_between(__u32 from, __u32 to)
{
	return (to - from) & TICK_MASK;
}

#endif
