use proptest::prelude::*;
use sonde_results::flow::{FlowExtra, FlowTcp, TlsInfo};

use super::*;
use crate::testing::{self, START};
use crate::{DAY_NS, HOUR_NS, MINUTE_NS};

/// Records, packets and bytes both ways, segments sent again.
fn totals<'a>(rows: impl IntoIterator<Item = &'a FlowSum>) -> [u64; 6] {
    rows.into_iter().fold([0; 6], |mut all, r| {
        let row =
            [r.flows, r.packets, r.bytes, r.reverse_packets, r.reverse_bytes, r.retransmitted];
        all.iter_mut().zip(row).for_each(|(a, n)| *a += n);
        all
    })
}

#[test]
fn networks_are_24_and_48_bits_long() {
    let net = |a: &str| unmapped(net_of(mapped(a.parse().unwrap()))).to_string();
    assert_eq!(net("192.0.2.77"), "192.0.2.0");
    assert_eq!(net("2001:db8:1:2::3"), "2001:db8:1::");
}

#[test]
fn a_record_keeps_times_to_the_microsecond_and_what_its_application_said() {
    let mut record = FlowRecord {
        key: sonde_results::rtt::FlowKey {
            point: 1,
            vlan: 0,
            protocol: 6,
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 50_000,
            destination_port: 443,
        },
        forward: FlowSide {
            packets: 3,
            bytes: 180,
            first_ns: START + 1_999,
            last_ns: START + 5_001_500,
            ..FlowSide::default()
        },
        reverse: FlowSide::default(),
        end: sonde_results::flow::FlowEnd::Idle,
        extra: None,
    };
    record.reverse.first_ns = 5;
    let row = FlowRow::new(SeriesId(4), &record);
    assert_eq!((row.first_ns(), row.last_ns), (START + 1_000, START + 5_001_000));
    assert_eq!((row.forward.first_ns, row.reverse.first_ns), (START + 1_000, 0));
    assert_eq!((row.service_port(), &*row.app, &*row.extra), (443, "", ""));
    let tcp = FlowTcp { handshake_server_ns: 700, handshake_client_ns: 300, ..FlowTcp::default() };
    record.extra = Some(Box::new(FlowExtra {
        tcp: Some(tcp),
        app: Some(App::Tls(TlsInfo { sni: "a.example".into(), ..TlsInfo::default() })),
        ..FlowExtra::default()
    }));
    let row = FlowRow::new(SeriesId(4), &record);
    assert_eq!(&*row.app, "tls");
    assert!(row.extra.contains("a.example"));
    assert_eq!(row.to_sum(HOUR_NS).handshake.head().min, 1_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_roll_up_changes_a_sum(
        seed in any::<u64>(), n in 0usize..300, cut in 1usize..90, most in 0usize..40,
    ) {
        let records = testing::flows(seed, 3, n, 2 * HOUR_NS);
        let sums: Vec<FlowSum> = records.iter().map(|r| r.to_sum(5 * MINUTE_NS)).collect();
        let truth = totals(&sums);
        prop_assert_eq!(truth[0], n as u64);
        let partial: Vec<FlowSum> =
            sums.chunks(cut).flat_map(|c| roll_up_flows(c.to_vec(), 5 * MINUTE_NS)).collect();
        let five = roll_up_flows(partial, 5 * MINUTE_NS);
        prop_assert_eq!(&five, &roll_up_flows(sums, 5 * MINUTE_NS), "however it was cut");
        let hours = roll_up_flows(five.clone(), HOUR_NS);
        let top = keep_top(hours.clone(), most);
        prop_assert_eq!(totals(&top), truth);
        prop_assert!(top.is_sorted_by_key(StoredRow::key));
        // The largest keep their names: all but the rows "other" are as they were.
        let named = top.iter().filter(|r| r.key() != r.other().key());
        let by_hour = |start: i64| top.iter().filter(|r| r.start_ns == start && r.key() != r.other().key()).count();
        prop_assert!(named.clone().all(|r| hours.contains(r)));
        prop_assert!(top.iter().all(|r| by_hour(r.start_ns) <= most));
        // Once more changes nothing.
        prop_assert_eq!(keep_top(top.clone(), most), top);
        let days = roll_up_flows(hours, DAY_NS);
        prop_assert_eq!(totals(&days), truth);
    }
}
