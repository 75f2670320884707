//! Against the running kernel, in network namespaces that end with their threads;
//! and against garbage.

use std::net::IpAddr;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sonde_lab::scratch::{in_namespace, ip};

use sonde_wire::prefix::Prefix;

use super::message::{Request, attributes, messages};
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An interface d0, up and with carrier, behind which nobody answers.
fn link_d0() {
    ip("link add d0 type veth peer name peer");
    ip("link set d0 up");
    ip("link set peer arp off up");
}

/// Another host: a thread in a namespace of its own that runs `ip` commands.
struct Host {
    thread: i32,
    commands: mpsc::Sender<String>,
    finished: mpsc::Receiver<()>,
}

impl Host {
    fn new() -> Self {
        let (commands, to_run) = mpsc::channel::<String>();
        let (done, finished) = mpsc::channel();
        let (sender, thread) = mpsc::channel();
        std::thread::spawn(move || {
            crate::netns::enter_new().unwrap();
            ip("link set lo up");
            // SAFETY: no arguments, cannot fail.
            sender.send(unsafe { libc::gettid() }).unwrap();
            for command in to_run {
                ip(&command);
                done.send(()).unwrap();
            }
        });
        Host { thread: thread.recv().unwrap(), commands, finished }
    }

    fn ip(&self, arguments: &str) {
        self.commands.send(arguments.into()).unwrap();
        self.finished.recv().expect("the host's thread panicked");
    }
}

/// Repeats `step` until it returns something.
fn eventually<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = step() {
            return result;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn ifindex(name: &str) -> u32 {
    let links = Links::open().unwrap().all().unwrap();
    links.iter().find(|l| l.name == name).unwrap_or_else(|| panic!("{name}")).ifindex
}

#[test]
fn a_route_by_a_gateway() {
    in_namespace(|| {
        link_d0();
        ip("link set d0 address 02:00:00:00:00:01 mtu 1400");
        ip("address add 10.0.0.1/24 dev d0");
        ip("address add 10.0.0.2/24 dev d0");
        ip("address add 2001:db8::1/64 dev d0 nodad");
        ip("route add default via 10.0.0.254");
        ip("route add 10.7.0.0/16 via 10.0.0.253 mtu 1300 src 10.0.0.2");
        ip("route add 10.8.0.0/16 via inet6 2001:db8::fe");
        ip("route add default via 2001:db8::ff");
        let mut routes = Routes::open().unwrap();
        let route = routes.lookup(addr("192.0.2.1"), None).unwrap();
        let d0 = ifindex("d0");
        assert_eq!(
            route,
            Route {
                interface: "d0".into(),
                ifindex: d0,
                lower: "d0".into(),
                lower_ifindex: d0,
                tags: vec![],
                source: addr("10.0.0.1"),
                next_hop: addr("10.0.0.254"),
                source_mac: [2, 0, 0, 0, 0, 1],
                mtu: 1400,
                local: false,
            }
        );
        let route = routes.lookup(addr("10.7.1.1"), None).unwrap();
        assert_eq!((route.mtu, route.source), (1300, addr("10.0.0.2")));
        assert_eq!(route.next_hop, addr("10.0.0.253"));
        let on_link = routes.lookup(addr("10.0.0.9"), Some(addr("10.0.0.2"))).unwrap();
        assert_eq!((on_link.next_hop, on_link.source), (addr("10.0.0.9"), addr("10.0.0.2")));
        let over_v6 = routes.lookup(addr("10.8.0.1"), None).unwrap();
        assert_eq!(over_v6.next_hop, addr("2001:db8::fe"));
        let v6 = routes.lookup(addr("2001:db8:1::1"), None).unwrap();
        assert_eq!((v6.next_hop, v6.source), (addr("2001:db8::ff"), addr("2001:db8::1")));
        let own = routes.lookup(addr("10.0.0.1"), None).unwrap();
        assert!(own.local && own.interface == "lo");
        assert!(routes.lookup(addr("2001:db8::1"), None).unwrap().local);
        let strange = routes.lookup(addr("192.0.2.1"), Some(addr("203.0.113.1"))).unwrap_err();
        assert!(matches!(strange, RouteError::Source(a) if a == addr("203.0.113.1")), "{strange}");
        let all = routes.lookup(addr("10.0.0.255"), None).unwrap_err();
        assert!(matches!(all, RouteError::NotUnicast(_)), "{all}");
    });
}

#[test]
fn no_route_and_routes_that_refuse() {
    in_namespace(|| {
        link_d0();
        for net in ["10.", "2001:db8:"] {
            let end = if net == "10." { ".0.0/16" } else { "::/48" };
            ip(&format!("route add blackhole {net}1{end}"));
            ip(&format!("route add unreachable {net}2{end}"));
            ip(&format!("route add prohibit {net}3{end}"));
        }
        let mut routes = Routes::open().unwrap();
        let mut fails = |to: &str| {
            let error = routes.lookup(addr(to), None).unwrap_err();
            assert!(error.to_string().contains(&format!("ip route get {to}")), "{error}");
            error
        };
        for [blackhole, unreachable, prohibited, none] in [
            ["10.1.0.1", "10.2.0.1", "10.3.0.1", "10.4.0.1"],
            ["2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::1", "2001:db8:4::1"],
        ] {
            assert!(matches!(fails(blackhole), RouteError::Blackhole(_)));
            assert!(matches!(fails(unreachable), RouteError::Unreachable(_)));
            assert!(matches!(fails(prohibited), RouteError::Prohibited(_)));
            let error = fails(none);
            assert!(matches!(error, RouteError::NoRoute(_)), "{error:?}");
        }
    });
}

#[test]
fn a_route_by_vlan_devices() {
    in_namespace(|| {
        link_d0();
        let add = "link add link d0 name v5 type vlan id 5";
        if !Command::new("ip").args(add.split(' ')).status().is_ok_and(|s| s.success()) {
            sonde_lab::skipped(
                "a_route_by_vlan_devices",
                "this kernel has no VLAN devices (CONFIG_VLAN_8021Q)",
            );
            return;
        }
        ip("link add link d0 name outer type vlan proto 802.1ad id 100");
        ip("link add link outer name inner type vlan id 7");
        for link in ["d0", "v5", "outer", "inner"] {
            ip(&format!("link set {link} up"));
        }
        ip("address add 10.5.0.1/24 dev v5");
        ip("address add 10.7.0.1/24 dev inner");
        let mut routes = Routes::open().unwrap();
        let one = routes.lookup(addr("10.5.0.2"), None).unwrap();
        assert_eq!((one.interface.as_str(), one.lower.as_str()), ("v5", "d0"));
        assert_eq!(one.tags, [Tag { tpid: 0x8100, tci: 5 }]);
        let two = routes.lookup(addr("10.7.0.2"), None).unwrap();
        assert_eq!((two.interface.as_str(), two.lower.as_str()), ("inner", "d0"));
        assert_eq!(two.tags, [Tag { tpid: 0x88a8, tci: 100 }, Tag { tpid: 0x8100, tci: 7 }]);
        assert_eq!((two.ifindex, two.lower_ifindex), (ifindex("inner"), ifindex("d0")));
    });
}

#[test]
fn local_prefixes_are_those_of_the_local_table() {
    in_namespace(|| {
        let mut routes = Routes::open().unwrap();
        let before = routes.local_prefixes().unwrap();
        assert!(before.contains(&prefix("::1")), "{before:?}");
        link_d0();
        ip("address add 10.0.0.1/24 dev d0");
        ip("address add 2001:db8::1/64 dev d0 nodad");
        ip("route add local 10.2.0.0/16 dev lo");
        ip("route add local 2001:db8:2::/48 dev lo");
        ip("route add 10.3.0.0/16 dev d0");
        // The kernel adds the route of an IPv6 address some time after the address.
        let end = Instant::now() + Duration::from_secs(20);
        let prefixes = loop {
            let prefixes = routes.local_prefixes().unwrap();
            if prefixes.contains(&prefix("2001:db8::1")) || Instant::now() > end {
                break prefixes;
            }
            std::thread::yield_now();
        };
        for net in [
            "10.0.0.1",
            "10.2.0.0/16",
            "127.0.0.0/8",
            "127.0.0.1",
            "2001:db8::1",
            "2001:db8:2::/48",
        ] {
            assert!(prefixes.contains(&prefix(net)), "{net} in {prefixes:?}");
        }
        let v4 = prefixes.iter().filter(|p| p.address.is_ipv4()).count();
        assert_eq!(v4, 4, "neither broadcast nor unicast routes: {prefixes:?}");
        assert!(prefixes.is_sorted());
        let shared = routes.shared_addresses().unwrap();
        assert!(shared.contains(&prefix("10.0.0.255")), "{shared:?}");
        assert!(!shared.iter().any(|p| prefixes.contains(p)), "{shared:?}");
    });
}

#[test]
fn links_as_they_are() {
    in_namespace(|| {
        ip("link add a0 address 02:00:00:00:00:0a mtu 1300 numrxqueues 2 numtxqueues 3 \
            type veth peer name b0");
        ip("link set a0 up");
        let find = |name: &str| {
            let all = Links::open().unwrap().all().unwrap();
            all.into_iter().find(|l| l.name == name).unwrap()
        };
        let lo = find("lo");
        assert!(!lo.resolves && lo.running && lo.mac == [0; 6] && lo.kind.is_empty());
        let a0 = find("a0");
        assert_eq!((a0.kind.as_str(), a0.mtu, a0.mac), ("veth", 1300, [2, 0, 0, 0, 0, 10]));
        assert_eq!((a0.rx_queues, a0.tx_queues), (2, 3));
        assert_eq!((a0.link, a0.xdp_program), (Some(ifindex("b0")), None));
        assert!(!a0.running, "its peer is down");
        ip("link set b0 up");
        eventually("carrier", || find("a0").running.then_some(()));
        let mut links = Links::open().unwrap();
        assert_eq!(links.get(a0.ifindex).unwrap(), Some(find("a0")));
        assert_eq!(links.get(999_999).unwrap(), None);
    });
}

#[test]
fn changes_are_reported() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set b0 up");
        let a0 = ifindex("a0");
        let mut watch = NetlinkWatch::open().unwrap();
        let mut wait_for = |what: &str, is: &dyn Fn(&NetlinkEvent) -> bool| {
            eventually(what, || watch.poll().unwrap().iter().any(is).then_some(()));
        };
        ip("link set a0 up");
        wait_for(
            "up",
            &|e| matches!(e, NetlinkEvent::Link { ifindex, up: true, .. } if *ifindex == a0),
        );
        ip("address add 10.0.0.1/24 dev a0");
        wait_for("address", &|e| *e == NetlinkEvent::Address);
        ip("route add 10.9.0.0/16 via 10.0.0.2");
        wait_for("route", &|e| *e == NetlinkEvent::Route);
        let address = addr("10.0.0.2");
        for last in [1, 2] {
            ip(&format!("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:0{last} dev a0"));
            let mac = Some([2, 0, 0, 0, 0, last]);
            wait_for("mac", &|e| *e == NetlinkEvent::Neighbour { ifindex: a0, address, mac });
            assert_eq!(Neighbours::open().unwrap().neighbour(a0, address).unwrap(), mac);
        }
        ip("neigh del 10.0.0.2 dev a0");
        wait_for("gone", &|e| *e == NetlinkEvent::Neighbour { ifindex: a0, address, mac: None });
        ip("link set b0 down");
        wait_for(
            "down",
            &|e| matches!(e, NetlinkEvent::Link { ifindex, up: false, .. } if *ifindex == a0),
        );
        ip("link del a0");
        wait_for("deleted", &|e| *e == NetlinkEvent::Link { ifindex: a0, up: false, mac: [0; 6] });
    });
}

#[test]
fn lost_notifications_are_reported() {
    in_namespace(|| {
        link_d0();
        let mut watch = NetlinkWatch::open().unwrap();
        // More than fit into the notification buffer, 1 MiB.
        let batch: String = (0..6000)
            .map(|i| {
                format!(
                    "neigh replace 10.{}.{}.1 lladdr 02:00:00:00:00:01 dev d0 nud permanent\n",
                    i >> 8,
                    i & 255
                )
            })
            .collect();
        let mut child =
            Command::new("ip").args(["-batch", "-"]).stdin(std::process::Stdio::piped()).spawn();
        let child = child.as_mut().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), batch.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(watch.poll().unwrap().last(), Some(&NetlinkEvent::Overrun));
        assert_eq!(watch.poll().unwrap(), [], "it goes on after an overrun");
    });
}

#[test]
fn fixed_neighbours_stay_fixed_when_solicited() {
    in_namespace(|| {
        link_d0();
        let (d0, address) = (ifindex("d0"), addr("10.0.0.2"));
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev d0 nud permanent");
        let mut neighbours = Neighbours::open().unwrap();
        let fixed = Neighbour::Known { mac: [2, 0, 0, 0, 0, 2], fixed: true };
        assert_eq!(neighbours.get(d0, address).unwrap(), fixed);
        neighbours.solicit(d0, address).unwrap();
        assert_eq!(neighbours.get(d0, address).unwrap(), fixed);
        assert_eq!(neighbours.get(d0, addr("10.0.0.3")).unwrap(), Neighbour::Absent);
    });
}

/// Two hosts on a veth pair: this thread's end is a0 (10.0.0.1, 2001:db8::1), the other
/// host's b0 (.2, ::2). Nobody answers for .3.
#[test]
fn next_hops_are_resolved_and_followed() {
    in_namespace(|| {
        let other = Host::new();
        ip(&format!(
            "link add a0 address 02:00:00:00:00:0a type veth peer name b0 \
             address 02:00:00:00:00:0b netns {}",
            other.thread
        ));
        ip("link set a0 up");
        ip("address add 10.0.0.1/24 dev a0");
        ip("address add 2001:db8::1/64 dev a0 nodad");
        ip("route add 10.9.0.0/16 via 10.0.0.2");
        other.ip("link set b0 up");
        other.ip("address add 10.0.0.2/24 dev b0");
        other.ip("address add 2001:db8::2/64 dev b0 nodad");

        let mut routes = Routes::open().unwrap();
        let found: Vec<Route> =
            ["10.9.0.1", "10.9.0.2", "10.0.0.2", "2001:db8::2", "127.0.0.1", "10.0.0.1"]
                .map(|a| routes.lookup(addr(a), None).unwrap())
                .into();
        let (mut hops, indices) = NextHops::resolve(&found, PATIENCE).unwrap();
        assert_eq!(indices, [0, 0, 0, 1, 2, 2]);
        let (a, b) = ([2, 0, 0, 0, 0, 10], [2, 0, 0, 0, 0, 11]);
        let with = |destination| Some(Macs { destination, source: a });
        let macs: Vec<_> = hops.all().iter().map(|h| h.macs).collect();
        assert_eq!(macs, [with(b), with(b), Some(Macs::default())]);

        let mut wait_for = |what: &str, wanted: (usize, Option<Macs>)| {
            eventually(what, || hops.poll().unwrap().macs.contains(&wanted).then_some(()));
            assert_eq!(hops.all()[wanted.0].macs, wanted.1);
            hops.refresh().unwrap();
        };
        let new = [2, 0, 0, 0, 0, 12];
        ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:0c dev a0");
        wait_for("another MAC", (0, with(new)));
        other.ip("link set b0 down");
        wait_for("no carrier", (0, None));
        other.ip("link set b0 address 02:00:00:00:00:0c");
        other.ip("link set b0 up");
        wait_for("back", (0, with(new)));
        // The interface's own MAC counts too.
        ip("link set a0 address 02:00:00:00:00:0d");
        wait_for("own MAC", (0, Some(Macs { destination: new, source: [2, 0, 0, 0, 0, 13] })));
        ip("link del a0");
        wait_for("deleted", (0, None));
    });
}

#[test]
fn a_next_hop_that_does_not_answer_may_come_later() {
    in_namespace(|| {
        let other = Host::new();
        ip(&format!("link add a0 type veth peer name b0 netns {}", other.thread));
        ip("link set a0 up");
        ip("address add 10.0.0.1/24 dev a0");
        other.ip("link set b0 address 02:00:00:00:00:0b");
        other.ip("link set b0 up");
        let route = Routes::open().unwrap().lookup(addr("10.0.0.3"), None).unwrap();
        let (mut hops, _) = NextHops::resolve(&[route], Duration::from_millis(50)).unwrap();
        assert_eq!(hops.all()[0].macs, None);
        other.ip("address add 10.0.0.3/24 dev b0");
        let macs = eventually("late", || hops.poll().unwrap().macs.first().copied());
        assert_eq!(macs.1.map(|m| m.destination), Some([2, 0, 0, 0, 0, 11]));
    });
}

#[test]
fn what_is_built_is_what_is_parsed() {
    let mut request = Request::new(26, libc::NLM_F_ACK, &[1, 2, 3, 4])
        .attribute(7, b"odd")
        .address(8, addr("192.0.2.1"));
    let bytes = request.finish(5).to_vec();
    let all: Vec<_> = messages(&bytes).collect();
    assert_eq!((all.len(), all[0].kind, all[0].sequence), (1, 26, 5));
    let attributes: Vec<_> = attributes(all[0].body, 4).collect();
    assert_eq!(attributes, [(7, &b"odd"[..]), (8, &[192, 0, 2, 1][..])]);
}

fn parse_everything(bytes: &[u8]) {
    for message in messages(bytes) {
        let _ = (watch::event(message), link::link(message), neighbour::neighbour(message));
        route::parse_anything(message);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        parse_everything(&bytes);
    }

    /// Well-formed but for one byte and the end: reaches deeper than pure noise.
    #[test]
    fn no_garbled_message_makes_the_parser_panic(
        kind in prop::sample::select(vec![16u16, 17, 20, 21, 24, 25, 28, 29]),
        fixed in prop::collection::vec(any::<u8>(), 0..20),
        family in prop::sample::select(vec![0u8, 2, 7, 10]),
        list in prop::collection::vec((0u16..64, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
        flip in any::<(prop::sample::Index, u8)>(),
        keep in any::<prop::sample::Index>(),
    ) {
        let fixed: Vec<u8> = std::iter::once(family).chain(fixed).collect();
        let request = Request::new(kind, 0, &fixed);
        let mut request = list.iter().fold(request, |r, (kind, value)| r.attribute(*kind, value));
        let mut bytes = request.finish(1).to_vec();
        parse_everything(&bytes);
        let at = flip.0.index(bytes.len());
        bytes[at] ^= flip.1;
        parse_everything(&bytes);
        parse_everything(&bytes[..keep.index(bytes.len())]);
    }
}
