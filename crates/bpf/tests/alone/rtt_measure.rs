//! What packets cost is measured only as stated. There is no figure where the packets were not
//! seen, tracked or sampled as they should have been.

use crate::common::privileged;
use crate::turn;
use sonde_bpf::{BpfError, RttBench, RttConfig, RttProgram, RttTraffic};

fn bench(traffic: RttTraffic, ipv6: bool, samples: bool) -> Result<(), BpfError> {
    let config = RttConfig { flows: 1024, xdp: false, ..RttConfig::default() };
    let bench = RttBench { ipv6, traffic, flows: 64, samples, packets: 20_000 };
    // What is measured costs more than the wrapper alone.
    RttProgram::measure(&config, bench, 2)
        .map(|cost| assert!(cost.total_ns > cost.wrapper_ns, "{cost:?}"))
}

#[test]
fn each_kind_of_traffic_is_what_it_says() {
    if !privileged("each_kind_of_traffic_is_what_it_says") {
        return;
    }
    let _turn = turn::alone();
    // Each kind without a sample over one IP, and with over the other.
    for (traffic, ipv6) in
        [(RttTraffic::Tcp, false), (RttTraffic::Dns, true), (RttTraffic::QuicShort, false)]
    {
        for samples in [false, true] {
            bench(traffic, ipv6 ^ samples, samples)
                .unwrap_or_else(|e| panic!("{traffic:?}, samples {samples}: {e}"));
        }
    }
    for (traffic, ipv6) in [(RttTraffic::QuicInitial, true), (RttTraffic::Udp, false)] {
        bench(traffic, ipv6, false).unwrap_or_else(|e| panic!("{traffic:?}: {e}"));
        let refused = bench(traffic, ipv6, true);
        assert!(matches!(refused, Err(BpfError::Config(_))), "{refused:?}");
    }
}

#[test]
fn a_table_too_small_gives_no_figure() {
    if !privileged("a_table_too_small_gives_no_figure") {
        return;
    }
    let _turn = turn::alone();
    let config = RttConfig { flows: 64, xdp: false, ..RttConfig::default() };
    let bench = RttBench {
        ipv6: false,
        traffic: RttTraffic::Tcp,
        flows: 1024,
        samples: false,
        packets: 20_000,
    };
    let refused = RttProgram::measure(&config, bench, 1);
    assert!(matches!(refused, Err(BpfError::Config(_))), "{refused:?}");
}
