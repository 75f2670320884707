/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* A STAMP session-reflector (RFC 8762, open mode) in XDP.
 *
 * It answers the plain case itself and hands everything else up to the user-space
 * reflector, unchanged and counted by reason. It never sends more than one packet
 * for one received, and never one longer than what came.
 */
#include "checksum.h"
#include "ntp.h"
#include "parse.h"
#include "rate.h"
#include "sessions.h"

#define STAMP_OCTETS 44   /* open mode, both directions (RFC 8762, 4.2.1 and 4.3.1) */
#define TLV_OCTETS 4
#define TLV_U 0x80        /* RFC 8972, 4: not recognised by the reflector */
#define TLV_PADDING 1     /* RFC 8972, 4.1: Extra Padding */
#define MAX_PAYLOAD 9216 /* more would not fit a jumbo frame; sum_padding takes 9,216 */
#define REPLY_TTL 255U    /* RFC 8762, 4.3 */

/* The order is that of COUNTERS in src/reflect.rs. */
enum counter {
	REFLECTED,
	REFLECTED_STATELESS,
	NEW_SESSIONS,
	RESTARTED_SESSIONS,
	DROP_DENIED,
	DROP_RATE,
	DROP_RATE_ALL,
	PASS_OTHER,
	PASS_FRAGMENT,
	PASS_EXTENSION,
	PASS_OPTIONS,
	PASS_TRUNCATED,
	PASS_BAD_LENGTH,
	PASS_BAD_CHECKSUM,
	PASS_SHORT,
	PASS_TLV,
	PASS_ADDRESS,
	PASS_PORT,
	PASS_NOT_LOCAL,
	PASS_PADDING,
	COUNTERS,
};

struct counters {
	__u64 n[COUNTERS];
	__u64 lease; /* this CPU's tokens of the limit of all */
};

/* What user space changes while we run. Each field is written in one piece. */
struct settings {
	__u64 utc_behind_ns; /* TAI - UTC */
	__u32 generation;
	__u16 error_estimate; /* network byte order */
	__u16 unused;
	__u32 redirect_to; /* our own ifindex where XDP_TX does not do; 0: XDP_TX */
};

/* Values of `local_addresses`, as in src/reflect.rs. */
enum address {
	OUR_ADDRESS = 1, /* is answered for, and asks nobody but ourselves */
	OUR_NETWORK,     /* is answered for */
	SHARED_ADDRESS,  /* broadcast and anycast: neither */
};

struct request {
	__be32 seq;
	__be32 t1[2];
	__be16 error;
	__be16 ssid;
};

struct stamp_packet {
	__be32 seq;
	__be32 t3[2];
	__be16 error;
	__be16 ssid;
	__be32 t2[2];
	__be32 sender_seq;
	__be32 t1[2];
	__be16 sender_error;
	__be16 zero;
	__be16 ttl_zero;
	__be16 zero2;
};

const volatile __u16 own_port; /* network byte order */
const volatile bool stateful;
const volatile bool allow_all;
const volatile __u32 bench_sessions;

volatile struct settings settings SEC(".data.settings");
__u32 bench_next, bench_sequence;

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, LPM_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct lpm_key);
	__type(value, __u8);
} local_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, LPM_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct lpm_key);
	__type(value, __u8);
} allowed_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

static __always_inline void count(enum counter which)
{
	__u32 zero = 0;
	struct counters *c = bpf_map_lookup_elem(&counters, &zero);

	if (c)
		c->n[which]++;
}

static __always_inline int pass(enum counter why)
{
	count(why);
	return XDP_PASS;
}

static __always_inline int drop(enum counter why)
{
	count(why);
	return XDP_DROP;
}

/* A source or destination that no reply may come from or go to. */
static __always_inline bool unusual4(const struct iphdr *ip)
{
	__u32 s = bpf_ntohl(ip->saddr) >> 24, d = bpf_ntohl(ip->daddr) >> 24;

	return s == 0 || s == 127 || s >= 224 || d == 0 || d == 127 || d >= 224 ||
	       ip->saddr == ip->daddr;
}

static __always_inline bool loopback_or_none(const struct in6_addr *a)
{
	return (a->in6_u.u6_addr32[0] | a->in6_u.u6_addr32[1] | a->in6_u.u6_addr32[2]) == 0 &&
	       (a->in6_u.u6_addr32[3] & ~bpf_htonl(1)) == 0;
}

static __always_inline bool unusual6(const struct ipv6hdr *ip)
{
	const __be32 *s = ip->saddr.in6_u.u6_addr32, *d = ip->daddr.in6_u.u6_addr32;

	return ip->saddr.in6_u.u6_addr8[0] == 0xff || ip->daddr.in6_u.u6_addr8[0] == 0xff ||
	       loopback_or_none(&ip->saddr) || loopback_or_none(&ip->daddr) ||
	       is_mapped(&ip->saddr) || is_mapped(&ip->daddr) ||
	       ((s[0] ^ d[0]) | (s[1] ^ d[1]) | (s[2] ^ d[2]) | (s[3] ^ d[3])) == 0;
}

/* A port of services that answer what they are sent; see `is_service` in
 * crates/meter/src/stamp/reflector/loops.rs. Port 0 cannot be answered.
 */
static __always_inline bool service_port(__be16 port)
{
	__u32 p = bpf_ntohs(port);

	return p < 1024 && p != 861 && p != 862 && (port != own_port || p == 0);
}

/* A bucket's own hash of the source address. */
static __always_inline __u64 source_hash(const struct packet *p)
{
	const __u32 *a;

	if (p->v4)
		return mix(mix(p->ip4->saddr ^ session_seed[1]) ^ session_seed[0]);
	a = p->ip6->saddr.in6_u.u6_addr32;
	return mix(mix(mix(((__u64)a[0] << 32 | a[1]) ^ session_seed[1]) ^
		       ((__u64)a[2] << 32 | a[3])) ^ session_seed[0]);
}

static __always_inline bool within_rate_of_all(__u64 now)
{
	__u32 zero = 0;
	struct counters *c = bpf_map_lookup_elem(&counters, &zero);

	if (!c)
		return false;
	if (c->lease == 0)
		c->lease = take_lease(now);
	if (c->lease == 0)
		return false;
	c->lease--;
	return true;
}

/* Files a request in its session, which is `session` or, if that was not found, made. NULL: there
 * is no room for it. `ours`: it is answered here, and counted.
 */
static __always_inline struct session *in_session(struct session *session, __u64 id, __u32 now,
						  __u16 generation, __u32 sequence,
						  __u32 sender_time, bool ours)
{
	bool known = session;

	if (!session) {
		__u64 slot = add_session(id, now, generation, sequence, sender_time);

		session = slot == NO_SLOT ? NULL : session_at(slot);
		known = !(slot & NEW_SLOT);
		if (!session && ours)
			count(REFLECTED_STATELESS);
	}
	if (session && known) {
		if ((__s32)(now - session->used) > (__s32)session_timeout) {
			/* Ended: this is a newcomer. */
			session->established = 0;
			session->sent = 0;
			session->sequence = sequence;
			session->sender_time = sender_time;
		} else if (!session->established &&
			   !__sync_val_compare_and_swap(&session->established, 0, 1) && ours) {
			count(NEW_SESSIONS);
		}
		if (begins_anew(session, sequence, sender_time)) {
			session->sent = 0;
			if (ours)
				count(RESTARTED_SESSIONS);
		}
		session->generation = generation;
		session->used = now;
	}
	return session;
}

static __always_inline int reflect(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p;
	struct request req;
	struct stamp_packet *s;
	struct session *session = NULL;
	struct lpm_key address;
	__u32 length, rest, seq, s2, s3;
	__u64 t2, t3, r2, r3, offset, sum, addresses;
	__u64 id = 0;
	__u16 generation;
	__be16 udp_len, error, check, ports[2];
	__u8 ttl;

	switch (parse(data, end, &p)) {
	case PARSED_UDP:
		break;
	case PARSED_FRAGMENT:
		return pass(PASS_FRAGMENT);
	case PARSED_EXTENSION:
		return pass(PASS_EXTENSION);
	case PARSED_SHORT:
		return pass(PASS_TRUNCATED);
	default:
		return pass(PASS_OTHER);
	}
	if (p.udp->dest != own_port)
		return pass(PASS_OTHER);
	/* After the port, so that other traffic does not pay for a clock reading. */
	t2 = bpf_ktime_get_tai_ns();

	/* What RFC 1122 and RFC 8200 want of a header before anyone looks further. */
	if (p.v4) {
		__u32 *w = (__u32 *)p.ip4;

		if (p.ip4->ihl != 5)
			return pass(PASS_OPTIONS);
		if (fold((__u64)w[0] + w[1] + w[2] + w[3] + w[4]))
			return pass(PASS_BAD_CHECKSUM);
		if (unusual4(p.ip4))
			return pass(PASS_ADDRESS);
		length = bpf_ntohs(p.ip4->tot_len) - sizeof(*p.ip4);
		ttl = p.ip4->ttl;
		addresses = (__u64)p.ip4->saddr + p.ip4->daddr;
	} else {
		const __u32 *a = (const __u32 *)&p.ip6->saddr;

		if (p.udp->check == 0)
			return pass(PASS_BAD_CHECKSUM);
		if (unusual6(p.ip6))
			return pass(PASS_ADDRESS);
		addresses = (__u64)a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
		length = bpf_ntohs(p.ip6->payload_len);
		ttl = p.ip6->hop_limit;
	}
	if ((p.eth->h_dest[0] | p.eth->h_source[0]) & 1)
		return pass(PASS_ADDRESS);
	/* Two that answer each other would never stop. A reply is not zero where a request is,
	 * and goes up below; a service shows by its port.
	 */
	if (service_port(p.udp->source))
		return pass(PASS_PORT);
	udp_len = p.udp->len;
	if (length != bpf_ntohs(udp_len) || length > MAX_PAYLOAD + sizeof(struct udphdr))
		return pass(PASS_BAD_LENGTH);
	if (length < sizeof(struct udphdr) + STAMP_OCTETS)
		return pass(PASS_SHORT);
	if ((void *)p.udp + length > end)
		return pass(PASS_TRUNCATED);
	s = (void *)(p.udp + 1);
	if ((void *)(s + 1) > end)
		return pass(PASS_TRUNCATED);

	/* After the base packet: nothing, padding without a header whose beginning is
	 * zero (TWAMP Light), or one Extra Padding TLV that fills the rest.
	 */
	rest = length - sizeof(struct udphdr) - STAMP_OCTETS;
	if (rest) {
		__u8 *tlv = (void *)(s + 1);

		if (rest < TLV_OCTETS)
			return pass(PASS_TLV);
		if ((void *)(tlv + TLV_OCTETS) > end)
			return pass(PASS_TRUNCATED);
		if (*(__u32 *)tlv != 0 &&
		    ((tlv[0] & ~TLV_U) || tlv[1] != TLV_PADDING ||
		     bpf_ntohs(*(__be16 *)(tlv + 2)) != rest - TLV_OCTETS))
			return pass(PASS_TLV);
	}

	/* Octets 16 to 44 are zero in a STAMP request. TWAMP Light may fill them at random,
	 * and octets 14 and 15 with them, which are then no session identifier.
	 */
	{
		__u32 *w = (void *)s;

		if (w[4] | w[5] | w[6] | w[7] | w[8] | w[9] | w[10])
			return pass(PASS_PADDING);
	}

	req.seq = s->seq;
	req.t1[0] = s->t3[0];
	req.t1[1] = s->t3[1];
	req.error = s->error;
	req.ssid = s->ssid;
	ports[0] = p.udp->source;
	ports[1] = p.udp->dest;
	check = p.udp->check;
	generation = settings.generation;

	/* The request's checksum: right, absent over IPv4, or the sum of the pseudo-header alone.
	 * The last is what a local socket leaves to the card, and what comes over veth. The rest of
	 * the packet is summed once, for request and reply.
	 */
	sum = 0;
	if (rest) {
		__u32 *tlv = (void *)(s + 1);

		if ((void *)(tlv + 1) > end)
			return XDP_ABORTED; /* was checked above; for the verifier */
		sum = sum_padding(tlv, end, rest);
	}
	addresses += (__u64)udp_len + bpf_htons(IPPROTO_UDP);
	if (fold(sum + addresses + ports[0] + ports[1] + udp_len + check + req.seq + req.t1[0] +
		 req.t1[1] + req.error + req.ssid) &&
	    check != (__u16)~fold(addresses) && check)
		return pass(PASS_BAD_CHECKSUM);

	if (stateful) {
		__u32 port_ssid = (__u32)ports[0] << 16 | req.ssid;

		id = p.v4 ? session_id4(p.ip4->saddr, p.ip4->daddr, port_ssid)
			  : session_id6((const __u32 *)&p.ip6->saddr, port_ssid);
		session = find_session(id);
	}
	/* A known session was admitted before; only a change of our addresses asks again. */
	if (!session || session->generation != generation) {
		__u8 *kind;

		if (p.v4)
			lpm_key4(&address, p.ip4->daddr);
		else
			lpm_key6(&address, &p.ip6->daddr);
		kind = bpf_map_lookup_elem(&local_addresses, &address);
		if (!kind || *kind == SHARED_ADDRESS)
			return pass(PASS_NOT_LOCAL);
		if (p.v4)
			lpm_key4(&address, p.ip4->saddr);
		else
			lpm_key6(&address, &p.ip6->saddr);
		kind = bpf_map_lookup_elem(&local_addresses, &address);
		if (kind && *kind != OUR_NETWORK)
			return pass(PASS_ADDRESS);
		if (!allow_all && !bpf_map_lookup_elem(&allowed_sources, &address))
			return drop(DROP_DENIED);
	}
	if (rate_gap_ns && !take_token(source_hash(&p), t2))
		return drop(DROP_RATE);
	if (total_gap_ns && !within_rate_of_all(t2))
		return drop(DROP_RATE_ALL);

	if (stateful) {
		__u32 sender_time = bpf_ntohl(req.t1[0]) << 16 | bpf_ntohl(req.t1[1]) >> 16;

		session = in_session(session, id, t2 >> USED_SHIFT, generation, bpf_ntohl(req.seq),
				     sender_time, true);
	}

	/* The reply's checksum is made anew from all octets: the request's may be partial. */
	if (rest) {
		__u32 *tlv = (void *)(s + 1), flag;

		if ((void *)(tlv + 1) > end)
			return XDP_ABORTED; /* was checked above; for the verifier */
		flag = *tlv & bpf_htonl((__u32)TLV_U << 24);
		*tlv ^= flag;
		sum -= flag;
	}
	sum += addresses;

	if (p.v4) {
		struct iphdr *ip = p.ip4;
		__u32 *w = (__u32 *)ip;
		__be32 source = ip->saddr;

		ip->saddr = ip->daddr;
		ip->daddr = source;
		/* The DSCP stays, ECN goes. The identification stays with DF as it was: the
		 * pair of addresses is as unique in it as the sender's own. Whole words: a word
		 * read back after a store to one of its octets stalls the CPU.
		 */
		w[0] &= ~bpf_htonl(0x00030000);
		w[1] &= bpf_htonl(0xffff0000 | IP_DF);
		w[2] = bpf_htonl(REPLY_TTL << 24 | IPPROTO_UDP << 16);
		ip->check = fold((__u64)w[0] + w[1] + w[2] + w[3] + w[4]);
	} else {
		struct ipv6hdr *ip = p.ip6;
		struct in6_addr source = ip->saddr;

		ip->saddr = ip->daddr;
		ip->daddr = source;
		*(__be32 *)ip &= ~bpf_htonl(0x00300000);
		ip->hop_limit = REPLY_TTL;
	}
	p.udp->source = ports[1];
	p.udp->dest = ports[0];
	{
		__u32 *m = data;
		__u16 *h = data;
		__u32 d0 = m[0];
		__u16 d1 = h[2];

		/* Octets 0-5 and 6-11 are exchanged. */
		m[0] = *(__u32 *)(h + 3);
		h[2] = h[5];
		*(__u32 *)(h + 3) = d0;
		h[5] = d1;
	}

	error = settings.error_estimate;
	offset = settings.utc_behind_ns;
	s2 = split(t2 - offset, &r2) + NTP_UNIX;
	s->ssid = req.ssid;
	s->error = error;
	s->t2[0] = bpf_htonl(s2);
	s->t2[1] = fraction(r2);
	s->sender_seq = req.seq;
	s->t1[0] = req.t1[0];
	s->t1[1] = req.t1[1];
	s->sender_error = req.error;
	s->zero = 0;
	s->ttl_zero = bpf_htons((__u16)ttl << 8);
	s->zero2 = 0;
	sum += (__u64)error + req.ssid + s->t2[0] + s->t2[1] + req.seq + req.t1[0] +
	       req.t1[1] + req.error + s->ttl_zero;
	sum += (__u64)ports[0] + ports[1] + udp_len;
	count(REFLECTED);

	/* RFC 8762, 4.3: stateful counts its own replies, stateless copies. This late, because the
	 * CPU has then fetched the session while it did the rest. An atomic addition waits for its
	 * cache line, and everything after waits for it.
	 */
	seq = session ? bpf_htonl(__sync_fetch_and_add(&session->sent, 1)) : req.seq;
	s->seq = seq;
	sum += seq;

	/* T3 is the last thing: only its own octets and the fold come after. Its seconds
	 * are T2's, unless one began in between.
	 */
	s->t3[0] = bpf_htonl(s2);
	sum += s->t3[0];
	t3 = bpf_ktime_get_tai_ns();
	r3 = r2 + (t3 - t2);
	if (r3 >= NSEC) {
		sum -= bpf_htonl(s2);
		s3 = split(t3 - offset, &r3) + NTP_UNIX;
		s->t3[0] = bpf_htonl(s3);
		sum += bpf_htonl(s3);
	}
	s->t3[1] = fraction(r3);
	sum += s->t3[1];
	p.udp->check = fold(sum) ?: 0xffff;
	return XDP_TX;
}

SEC("xdp")
int sonde_reflect(struct xdp_md *ctx)
{
	int verdict = reflect(ctx);

	/* veth puts what is sent by XDP_TX into its peer's ring, but wakes the peer only
	 * where that has an XDP program. A redirect to ourselves goes the same way and
	 * wakes it always.
	 */
	if (verdict == XDP_TX && settings.redirect_to)
		return bpf_redirect(settings.redirect_to, 0);
	return verdict;
}

/* A request that user space answers, as `Question` in src/reflect/sequence.rs. */
struct question {
	__be32 source[4]; /* IPv4: the last word */
	__be32 destination[4];
	__be32 port_ssid;
	__u32 v4;
	__u32 sequence; /* the sender's; the answer: that of the reply */
	__u32 sender_time;
};

/* Never attached: user space runs it by BPF_PROG_TEST_RUN for each request that it answers. So a
 * session has one counter, whoever answers. XDP_TX: there is a sequence number. XDP_PASS: there is
 * no room for the session.
 */
SEC("xdp")
int sonde_sequence(struct xdp_md *ctx)
{
	struct question *q = (void *)(long)ctx->data;
	__u32 now = bpf_ktime_get_tai_ns() >> USED_SHIFT;
	struct session *session;
	__u16 generation;
	__u64 id;

	if ((void *)(q + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	id = q->v4 ? session_id4(q->source[3], q->destination[3], q->port_ssid)
		   : session_id6(q->source, q->port_ssid);
	session = find_session(id);
	/* A session that is new is of no generation: reflect() is still to admit its sender. */
	generation = session ? session->generation : settings.generation - 1;
	session = in_session(session, id, now, generation, q->sequence, q->sender_time, false);
	if (!session)
		return XDP_PASS;
	q->sequence = __sync_fetch_and_add(&session->sent, 1);
	return XDP_TX;
}

/* For benchmarks: BPF_PROG_TEST_RUN repeats on the buffer as the last run left it, so
 * each IPv4 reply is made into the next session's request. Header words are stored
 * whole, as a card would have left them: no load waits for a shorter store.
 */
static __always_inline int next_request(struct xdp_md *ctx, int verdict)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__be32 *w = (__be32 *)ip, *payload = (__be32 *)(udp + 1), ttl;
	__be16 check;
	__u64 sum;

	if (verdict != XDP_TX || (void *)(payload + 11) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return verdict;
	if (++bench_next >= bench_sessions)
		bench_next = 0;
	/* The UDP checksum follows what changes (RFC 1624); ports and addresses that only
	 * change places are no change.
	 */
	sum = (__u64)(__u16)~udp->check + (__u32)~ip->daddr + (__u32)~payload[0];
	ip->daddr = ip->saddr;
	ip->saddr = bpf_htonl(0x0a000001 + bench_next);
	udp->source = udp->dest;
	udp->dest = own_port;
	payload[0] = bpf_htonl(++bench_sequence);
	sum += (__u64)ip->saddr + payload[0];
	for (int i = 4; i < 11; i++) {
		sum += (__u32)~payload[i];
		payload[i] = 0; /* what a request has there */
	}
	udp->check = fold(sum);
	ttl = bpf_htonl(REPLY_TTL << 24 | IPPROTO_UDP << 16);
	check = fold((__u64)w[0] + w[1] + ttl + w[3] + w[4]);
	w[2] = ttl | bpf_htonl(bpf_ntohs(check));
	return verdict;
}

SEC("xdp")
int sonde_reflect_bench(struct xdp_md *ctx)
{
	return next_request(ctx, reflect(ctx));
}

/* The same around nothing: what the measurement itself costs. */
SEC("xdp")
int sonde_empty_bench(struct xdp_md *ctx)
{
	return next_request(ctx, XDP_TX);
}

char LICENSE[] SEC("license") = "GPL";
