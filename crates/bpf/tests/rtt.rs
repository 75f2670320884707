//! The programs of passive RTT as functions: frames in, samples, flows and counters out.

mod common;

use std::time::Duration;

use common::privileged;
use sonde_bpf::{RttConfig, RttEvents, RttProgram, RttSide};
use sonde_results::rtt::{RttFlow, RttSample};

fn frame(
    src: [u8; 4],
    dst: [u8; 4],
    sp: u16,
    dp: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    ts: Option<(u32, u32)>,
    len: usize,
) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let opt = if ts.is_some() { 12 } else { 0 };
    f.extend([0x45, 0]);
    f.extend((40 + opt as u16 + len as u16).to_be_bytes());
    f.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    f.extend(src);
    f.extend(dst);
    f.extend(sp.to_be_bytes());
    f.extend(dp.to_be_bytes());
    f.extend(seq.to_be_bytes());
    f.extend(ack.to_be_bytes());
    f.extend([(5 + opt / 4) << 4, flags, 1, 0, 0, 0, 0, 0]);
    if let Some((a, b)) = ts {
        f.extend([1, 1, 8, 10]);
        f.extend(a.to_be_bytes());
        f.extend(b.to_be_bytes());
    }
    f.extend(vec![0; len]);
    f
}

#[test]
fn first_light() {
    if !privileged("first_light") {
        return;
    }
    let mut p =
        RttProgram::load(&RttConfig { flows: 1024, events: RttEvents::All, ..Default::default() })
            .unwrap();
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let t0 = 1_800_000_000_000_000_000i64;
    let ms = 1_000_000;
    p.test_run(RttSide::Ingress, &frame(a, b, 4000, 80, 100, 0, 2, Some((1, 0)), 0), t0).unwrap();
    p.test_run(
        RttSide::Egress,
        &frame(b, a, 80, 4000, 500, 101, 0x12, Some((900, 1)), 0),
        t0 + 10 * ms,
    )
    .unwrap();
    p.test_run(
        RttSide::Ingress,
        &frame(a, b, 4000, 80, 101, 501, 0x10, Some((11, 900)), 0),
        t0 + 15 * ms,
    )
    .unwrap();
    p.test_run(
        RttSide::Ingress,
        &frame(a, b, 4000, 80, 101, 501, 0x18, Some((12, 900)), 100),
        t0 + 16 * ms,
    )
    .unwrap();
    p.test_run(
        RttSide::Egress,
        &frame(b, a, 80, 4000, 501, 201, 0x10, Some((920, 12)), 0),
        t0 + 27 * ms,
    )
    .unwrap();
    let mut samples: Vec<RttSample> = vec![];
    let mut flows: Vec<RttFlow> = vec![];
    p.poll(Duration::ZERO, &mut |s| samples.push(s), &mut |f| flows.push(f)).unwrap();
    let rtts: Vec<u64> = samples.iter().map(|s| s.rtt_ns / 1_000_000).collect();
    assert_eq!(rtts, [10, 5, 11]);
    assert!(flows.is_empty());
    let mut open = vec![];
    p.open_flows(&mut |f| open.push(f));
    assert_eq!(open.len(), 1);
    assert_eq!(p.take_groups(0, 1).unwrap()[0].clean.count, 3);
}
