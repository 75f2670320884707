//! Whatever comes: no panic, bounded memory, every packet accounted for.

use super::*;
use proptest::prelude::*;
use sonde_results::rtt::RttGroupBy;
use sonde_wire::flow::Quic;

/// Few ends and few values, so that packets meet.
fn any_packet() -> impl Strategy<Value = FlowPacket> {
    let sequence = prop_oneof![0u32..40, (u32::MAX - 20)..=u32::MAX, any::<u32>()];
    let sequence = (sequence.clone(), sequence.clone(), sequence.clone(), sequence);
    let tcp = (sequence, 0u8..64, 0u16..3, 0u32..30, any::<[bool; 4]>()).prop_map(
        |((seq, ack, tsval, tsecr), flags, window, payload_len, [ts, sack, dns, bad])| {
            Detail::Tcp(Tcp {
                seq,
                ack,
                flags,
                window,
                payload_len,
                timestamps: ts.then_some((tsval, tsecr)),
                sack,
                dns: dns.then_some((seq % 2 == 0, 7)),
                bad_options: bad,
            })
        },
    );
    let id = 0u32..6;
    let detail = prop_oneof![
        6 => tcp,
        1 => (any::<bool>(), 0u16..6).prop_map(|(reply, sequence)| Detail::Echo { reply, sequence }),
        1 => (any::<bool>(), id.clone()).prop_map(|(response, id)| Detail::Dns { response, id }),
        1 => (any::<bool>(), id).prop_map(|(ack, id)| Detail::Heartbeat { ack, id }),
        3 => prop_oneof![
            Just(Quic::Initial),
            Just(Quic::ZeroRtt),
            Just(Quic::Handshake),
            Just(Quic::Restart),
            any::<bool>().prop_map(|spin| Quic::Short { spin }),
        ]
        .prop_map(Detail::Quic),
        1 => Just(Detail::Other),
    ];
    let ends = (0usize..4, 0usize..4, 0u16..4, 0u16..4);
    (ends, detail, any::<u8>(), prop::bool::weighted(0.05)).prop_map(
        |((from, to, sport, dport), detail, tos, fragment)| {
            let address = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
            let protocol = match detail {
                Detail::Tcp(_) => 6,
                Detail::Echo { .. } => 1,
                Detail::Heartbeat { .. } => 132,
                _ => 17,
            };
            let (from, to) = ((address[from], sport), (address[to], dport));
            FlowPacket { tos, fragment, ..packet(protocol, from, to, 40, detail) }
        },
    )
}

/// A packet, how long after the one before (us, or backwards), segments, and whether the
/// sweep runs.
type Step = (FlowPacket, i64, u16, bool);

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        20 => 0i64..50_000,
        2 => 0i64..20_000_000,
        1 => -200_000_000i64..400_000_000,
    ];
    prop::collection::vec((any_packet(), gap, 0u16..4, any::<bool>()), 0..400)
}

proptest! {
    #[test]
    fn arbitrary_packets_are_conserved_in_bounded_memory(
        steps in any_steps(),
        flows in prop_oneof![Just(8usize), Just(16), Just(64)],
        (group_by, hide, weight, limit) in (0usize..6, any::<bool>(), any::<bool>(), 0usize..4),
        slot_pages in 0usize..3,
        groups in 1usize..5,
    ) {
        let mut bench = Bench::with(|config| {
            config.flows = flows;
            config.slot_pages = slot_pages;
            config.groups = groups;
            config.hide_addresses = hide;
            config.weight_by_flow = weight;
            config.group_by = [
                RttGroupBy::Flow,
                RttGroupBy::Prefix,
                RttGroupBy::As,
                RttGroupBy::Interface,
                RttGroupBy::Vlan,
                RttGroupBy::Dscp,
            ][group_by];
            config.events = [
                RttEvents::None,
                RttEvents::All,
                RttEvents::Every(std::time::Duration::from_millis(3)),
                RttEvents::RttMultiple(24),
            ][limit];
        });
        let (mut now, mut sent, mut tracked, mut ended, mut events) = (0, 0, 0, 0, 0u64);
        let mut in_groups = 0;
        let mut note = |flow: RttFlow| {
            tracked += flow.forward.packets + flow.backward.packets;
            ended += 1;
        };
        for (packet, gap, segments, sweep) in steps {
            now += gap;
            sent += u64::from(segments.max(1));
            bench.packet_at(now, &packet, segments);
            if sweep {
                bench.matcher.handle_timeout(time(now));
            }
            bench.ended().into_iter().for_each(&mut note);
            for sample in bench.full_samples() {
                events += 1;
                prop_assert!((64..=64_000_000_000).contains(&sample.rtt_ns));
            }
            prop_assert!(bench.matcher.shared.groups.held() <= groups + 1);
            prop_assert!(bench.matcher.open_flows().count() <= flows);
            if sweep {
                in_groups += counted(&mut bench);
            }
        }
        bench.matcher.finish(time(now));
        bench.ended().into_iter().for_each(&mut note);
        in_groups += counted(&mut bench);
        let counters = bench.matcher.counters();
        let left_out = counters.untracked_kind + counters.untracked_full + counters.filtered;
        prop_assert_eq!(counters.packets, sent);
        prop_assert_eq!(tracked + left_out, sent);
        prop_assert_eq!((counters.flows, counters.flows_ended), (ended, ended));
        prop_assert_eq!(counters.flows_lost, 0);
        prop_assert_eq!(bench.matcher.shared.pool.free(), slot_pages, "no page is lost");
        let samples =
            counters.samples_clean + counters.samples_recovery + counters.samples_delayed_ack;
        prop_assert_eq!(in_groups + counters.unweighted, samples);
        if limit > 0 {
            prop_assert_eq!(events + counters.events_limited + counters.events_lost, samples);
        }
    }
}

fn counted(bench: &mut Bench) -> u64 {
    let groups = bench.matcher.take_groups(0, 1);
    groups.iter().map(|g| g.clean.count + g.recovery.count + g.delayed_ack.count).sum()
}
