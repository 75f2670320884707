/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a found echo does: statistics, histograms, events. Under the lock of the flow's bucket. */
#ifndef SONDE_RTT_SAMPLES_H
#define SONDE_RTT_SAMPLES_H

#include "rtt_held.h"

#define WEIGH_EVERY 15       /* coarse units: 1 s */
#define WAKE_AT (256U << 10) /* octets: a quarter of the ring of samples, an eighth of the other */

/* To wake the reader takes microseconds, and we hold a bucket's lock: it looks by itself
 * many times a second, unless the ring is filling up.
 */
static __always_inline __u64 wake(void *ring)
{
	return bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > WAKE_AT ? BPF_RB_FORCE_WAKEUP :
								      BPF_RB_NO_WAKEUP;
}

/* Of the side whose data is timed. NULL: none was asked for. */
static __always_inline struct mark *mark_of(const struct rtt_packet *p)
{
	__u32 at = p->index;
	struct marks *m = bpf_map_lookup_elem(&rtt_marks, &at);

	return m ? &m->side[(p->d ^ 1) & 1] : NULL;
}

static __always_inline bool event_due(struct side *s, struct rtt_packet *p)
{
	struct mark *mark;

	__u64 limit = event_limit;
	__u32 now;

	if (event_mode == EVENTS_NONE)
		return false;
	if (event_mode == EVENTS_ALL)
		return true;
	if (event_mode == EVENTS_MULTIPLE)
		limit = s->srtt * limit >> 8;
	if (limit == 0)
		return true;
	mark = mark_of(p);
	if (!mark)
		return true;
	now = now_ns(p) >> 10;
	if (mark->bits & EVENT_SEEN && (__s32)(now - mark->event_at) >= 0 &&
	    now - mark->event_at < limit) {
		count(EVENTS_LIMITED);
		return false;
	}
	mark->bits |= EVENT_SEEN;
	mark->event_at = now;
	return true;
}

/* A round-trip time about the side that sent this packet: of what the other side sent. */
__noinline int rtt_sample(struct flow *f, struct rtt_packet *p, __u32 kind, __u32 class, __u32 rtt)
{
	if (!f || !p)
		return 0;
	struct side *D = SIDE(f, p->d), *E = SIDE(f, p->d ^ 1);
	bool counts = true;

	if (class >= CLASSES)
		return 0;
	count(SAMPLES_CLEAN + class);
	if (class == CLEAN) {
		/* The spin bit and DNS over TCP have the application's time in them. */
		if (kind != KIND_SPIN && (kind != KIND_DNS || p->what != W_TCP)) {
			if (!E->srtt) {
				E->rtt_min = rtt;
				E->srtt = rtt;
			} else {
				if (rtt < E->rtt_min)
					E->rtt_min = rtt;
				E->srtt += (__s64)((__s64)rtt - E->srtt) >> 3;
			}
			note_recent(E, p, rtt);
		}
		E->samples++;
		add48(&E->rtt_sum, &E->rtt_sum_high, rtt);
		if (weigh_flows) {
			struct mark *mark = mark_of(p);

			counts = !mark || !(mark->bits & WEIGHED) ||
				 (__u16)(p->coarse - mark->weighed) >= WEIGH_EVERY;
			if (!counts) {
				count(UNWEIGHTED);
			} else if (mark) {
				mark->bits |= WEIGHED;
				mark->weighed = p->coarse;
			}
		}
	} else {
		struct loss *l = loss_of(f);

		if (l) {
			struct loss_side *side = &l->side[(p->d ^ 1) & 1];

			if (class == RECOVERY)
				side->recovery++;
			else
				side->delayed_ack++;
		}
	}
	if (!D->group)
		D->group = rtt_join_group(f, p->d, 0);
	if (counts) {
		if (D->group == 1)
			count(GROUPS_FULL);
		add_to_group(D->group - 1, class, rtt);
	}
	if (event_due(E, p)) {
		struct sample_event *e = bpf_ringbuf_reserve(&rtt_samples, sizeof(*e), 0);

		if (!e) {
			count(EVENTS_LOST);
			return 0;
		}
		e->key = f->key;
		e->at = now_ns(p);
		e->bytes = (__u64)D->bytes_high << 32 | D->bytes;
		e->packets = (__u64)D->packets_high << 32 | D->packets;
		e->peer_bytes = (__u64)E->bytes_high << 32 | E->bytes;
		e->peer_packets = (__u64)E->packets_high << 32 | E->packets;
		e->rtt = rtt;
		e->rtt_min = E->rtt_min;
		e->side = p->d;
		e->kind = kind;
		e->class = class;
		e->ipv4 = !!(f->flags & IPV4);
		e->unused = 0;
		bpf_ringbuf_submit(e, wake(&rtt_samples));
	}
	return 0;
}

#endif
