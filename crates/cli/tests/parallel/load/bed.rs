//! Beds for the tests: tester port, device, tester port, each in a namespace of its own.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sonde_lab::{Host, Lab, LinkOptions};
use sonde_meter::load::{AddressRule, MacRule, PortRule, Traffic};
use sonde_results::trial::{Direction, Offer};
use sonde_results::units::format_mac;
use sonde_sys::schedule::prefer_with_children;
use sonde_testbed::tester::{
    DirectionSpec, LoadEngine, LoadResult, Tester, TesterPort, TesterSpec, port_facts,
};
use sonde_wire::ethernet::Mac;

/// Two ports of a tester and what is between them.
pub struct Bed {
    pub a: Host,
    pub device: Host,
    pub b: Host,
    /// Port a, the device towards a, the device towards b, port b.
    pub macs: [Mac; 4],
    _lab: Lab,
}

pub const PORT: &str = "eth0";
pub const TOWARDS_A: &str = "eth1";
pub const TOWARDS_B: &str = "eth2";

impl Bed {
    /// The device does nothing yet.
    pub fn new(name: &str, mtu: u32) -> Bed {
        let mut lab = Lab::new(name).unwrap();
        let (a, device, b) =
            (lab.host("a").unwrap(), lab.host("dut").unwrap(), lab.host("b").unwrap());
        for host in [&a, &device, &b] {
            // No packets of their own.
            host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        }
        let options = LinkOptions { mtu, ..LinkOptions::default() };
        let (mac_a, mac_1) = lab.link(&a, PORT, &device, TOWARDS_A, &options).unwrap();
        let (mac_2, mac_b) = lab.link(&device, TOWARDS_B, &b, PORT, &options).unwrap();
        Bed { a, device, b, macs: [mac_a, mac_1, mac_2, mac_b], _lab: lab }
    }

    /// The kernel's router between 198.18.0.0/24 and 198.19.0.0/24, 2001:2:0:a::/64 and
    /// 2001:2:0:b::/64; it knows its neighbours.
    pub fn router(name: &str, mtu: u32) -> Bed {
        let bed = Bed::new(name, mtu);
        let device = &bed.device;
        device
            .sysctl(&[
                "net.ipv6.conf.eth1.disable_ipv6=0",
                "net.ipv6.conf.eth2.disable_ipv6=0",
                "net.ipv4.ip_forward=1",
                "net.ipv6.conf.all.forwarding=1",
            ])
            .unwrap();
        for (interface, v4, v6, mac) in [
            (TOWARDS_A, "198.18.0", "2001:2:0:a:", bed.macs[0]),
            (TOWARDS_B, "198.19.0", "2001:2:0:b:", bed.macs[3]),
        ] {
            device.add_address(interface, &format!("{v4}.1/24")).unwrap();
            device.add_address(interface, &format!("{v6}:1/64")).unwrap();
            device.set_neighbour(interface, &format!("{v4}.2"), &format_mac(mac)).unwrap();
            device.set_neighbour(interface, &format!("{v6}:2"), &format_mac(mac)).unwrap();
        }
        bed
    }

    pub fn ports(&self) -> Vec<TesterPort> {
        let port = |name: &str, host: &Host| TesterPort {
            name: name.into(),
            interface: PORT.into(),
            netns: Some(host.name().into()),
            cpu: None,
        };
        vec![port("a", &self.a), port("b", &self.b)]
    }

    /// From a to b through the router, or back.
    pub fn way(&self, back: bool, ipv6: bool, sizes: &[u32]) -> DirectionSpec {
        let [mac_a, mac_1, mac_2, mac_b] = self.macs;
        let [near, far] = match ipv6 {
            false => ["198.18.0.2", "198.19.0.2"],
            true => ["2001:2:0:a::2", "2001:2:0:b::2"],
        };
        let (from, to, source_mac, hop, for_mac, near, far) = match back {
            false => (0, 1, mac_a, mac_1, mac_b, near, far),
            true => (1, 0, mac_b, mac_2, mac_a, far, near),
        };
        let traffic = Traffic {
            sizes: sizes.to_vec(),
            tags: Vec::new(),
            labels: Vec::new(),
            source_mac: MacRule::Fixed(source_mac),
            destination_mac: MacRule::Fixed(hop),
            source: AddressRule::fixed(near.parse().unwrap()),
            destination: AddressRule::fixed(far.parse().unwrap()),
            source_port: PortRule::RFC4814_SOURCE,
            destination_port: PortRule::RFC4814_DESTINATION,
            flows: 8,
            tos: vec![0],
            ttl: 64,
            seed: 7,
        };
        DirectionSpec { from, to, traffic, length_change: 0, for_mac: Some(for_mac) }
    }

    pub fn spec(&self, engine: LoadEngine, ways: Vec<DirectionSpec>) -> TesterSpec {
        TesterSpec { engine, ports: self.ports(), ways, drain: Duration::from_millis(500) }
    }
}

/// Runs one load that nobody stops, before other work of this host, as a benchmark does.
pub fn run(tester: &mut Tester, offer: &Offer) -> LoadResult {
    // Where that is not permitted the host may be too busy.
    let _ = prefer_with_children();
    tester.run(offer, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

/// Everything arrived once, in order, and as it was sent.
pub fn assert_clean(d: &Direction, frames: u64) {
    let counts = (d.intended, d.sent, d.received, d.lost);
    assert_eq!(counts, (frames, frames, frames, 0), "{d:?}");
    let wrong = (d.duplicates, d.reordered, d.corrupted, d.stray);
    assert_eq!(wrong, (0, 0, 0, 0), "{d:?}");
    assert_eq!(d.sent_bytes, d.received_bytes);
    assert_eq!((d.latency.count, d.ipdv.count, d.jitter.count), (frames, frames - 1, frames - 1));
    assert_eq!((d.gaps.count, d.losses.len()), (frames - 1, 0));
    let streams = |f: fn(&sonde_results::trial::StreamCount) -> u64| d.streams.iter().map(f).sum();
    let (sent, received): (u64, u64) = (streams(|s| s.sent), streams(|s| s.received));
    assert_eq!((sent, received), (frames, frames));
    let in_series: u64 = d.series.iter().map(|p| p.received).sum();
    assert_eq!(in_series, frames);
    // On one clock nothing arrives before it was sent.
    assert!(d.latency.min >= 0 && d.worst[0].latency_ns == d.latency.max, "{d:?}");
    let bucketed: u64 = d.latency.buckets.iter().map(|&(_, n)| u64::from(n)).sum();
    assert_eq!(bucketed, frames);
    let _ = port_facts; // used by some of the tests that share this file
}
