//! Devices under test on the real kernel: each forwards both ways in both families, and its
//! counters show it. It loses and says so, survives resets, and leaves nothing. Needs root; those
//! of other packages are skipped where these are missing.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use sonde_lab::device::{
    BedSpec, CounterKind, DeviceCounter, DeviceReset, DeviceSpec, LabBed, LabPort, Placement,
};
use sonde_lab::{AddressFamily, LabError, skip, skipped};
use sonde_results::trial::Side;

#[test]
fn a_loop_joins_the_ports() {
    if skip("a_loop_joins_the_ports") {
        return;
    }
    let bed = LabBed::build(&BedSpec::new(DeviceSpec::Loop)).unwrap();
    assert_eq!(bed.info().placement, Placement::None);
    assert_eq!(bed.info().diagram(), ["tester a -- tester b"]);
    passes(&bed);
}

#[test]
fn a_router_forwards_by_many_routes_too() {
    if skip("a_router_forwards_by_many_routes_too") {
        return;
    }
    let mut bed = LabBed::build(&BedSpec::new(DeviceSpec::Router { routes: 1000 })).unwrap();
    assert_eq!(bed.info().placement, Placement::Inline);
    let routes = run(&["ip", "-n", &bed.info().devices[0].netns, "route"]);
    assert_eq!(routes.lines().filter(|l| l.contains(" via 198.19.0.2 ")).count(), 1000);
    judge(&mut bed, "IpForwDatagrams");
}

#[test]
fn a_bridge_forwards() {
    if skip("a_bridge_forwards") {
        return;
    }
    let mut bed = LabBed::build(&BedSpec::new(DeviceSpec::Bridge { stations: 0 })).unwrap();
    judge(&mut bed, "rx_packets");
}

#[test]
fn a_firewall_permits_the_tests_packets_and_no_others() {
    if skip("a_firewall_permits_the_tests_packets_and_no_others") {
        return;
    }
    let firewall = DeviceSpec::Firewall { filters: 25, conntrack: false };
    let Some(mut bed) = build(&BedSpec::new(firewall)) else { return };
    judge(&mut bed, "ip permitted");
    // Not of the test's networks, but with a way there and back.
    let [a, b] = [0, 1].map(|n| &bed.info().ports[n]);
    let dut = &bed.info().devices[0].netns;
    run(&["ip", "-n", &a.netns, "addr", "add", "203.0.113.2/32", "dev", "port-a"]);
    run(&["ip", "-n", dut, "route", "add", "203.0.113.2/32", "via", "198.18.0.2"]);
    run(&["ip", "-n", &b.netns, "route", "add", "203.0.113.2/32", "via", "198.19.0.1"]);
    let before = value(&bed, "dut nft", "ip denied");
    assert!(!pings(a, "198.19.0.2", &["-I", "203.0.113.2"]));
    assert!(value(&bed, "dut nft", "ip denied") > before);
}

#[test]
fn a_translator_hides_port_a() {
    if skip("a_translator_hides_port_a") {
        return;
    }
    let Some(mut bed) = build(&BedSpec::new(DeviceSpec::Nat)) else { return };
    judge(&mut bed, "ip permitted");
    for family in [AddressFamily::V4, AddressFamily::V6] {
        let source = exchange(&bed, 0, family).expect("nothing arrived");
        let gateway = &address(&bed.info().ports[1], family).next_hop;
        assert_eq!(source, gateway.parse::<IpAddr>().unwrap());
    }
}

#[test]
fn a_switch_in_user_space_forwards() {
    if skip("a_switch_in_user_space_forwards") {
        return;
    }
    let Some(mut bed) = build(&BedSpec::new(DeviceSpec::OvsNetdev)) else { return };
    assert_eq!(bed.info().placement, Placement::Anywhere);
    assert_eq!(bed.info().devices[0].processes.len(), 1);
    judge(&mut bed, "hit");
}

#[test]
fn a_switch_in_the_kernel_forwards_or_its_module_is_named() {
    if skip("a_switch_in_the_kernel_forwards_or_its_module_is_named") {
        return;
    }
    match LabBed::build(&BedSpec::new(DeviceSpec::OvsKernel)) {
        Ok(mut bed) => judge(&mut bed, "hit"),
        Err(LabError::Bed(what)) => assert!(what.contains("modprobe openvswitch"), "{what}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_virtual_machine_routes() {
    if skip("a_virtual_machine_routes") {
        return;
    }
    let Some(mut bed) = build(&BedSpec::new(DeviceSpec::Vm)) else { return };
    println!("{:#?}", bed.facts().unwrap());
    judge(&mut bed, "IpForwDatagrams");
}

#[test]
fn two_in_series_forward() {
    if skip("two_in_series_forward") {
        return;
    }
    for device in
        [DeviceSpec::Router { routes: 0 }, DeviceSpec::Bridge { stations: 0 }, DeviceSpec::Nat]
    {
        let Some(mut bed) = build(&BedSpec { chain: 2, ..BedSpec::new(device) }) else { continue };
        assert_eq!(bed.info().diagram().len(), 3);
        judge(&mut bed, "rx_packets");
        assert!(value(&bed, "dut2 eth0", "rx_packets") > 0);
    }
}

#[test]
fn one_family_alone_is_forwarded_alone() {
    if skip("one_family_alone_is_forwarded_alone") {
        return;
    }
    let families = vec![AddressFamily::V6];
    let spec = BedSpec { families, ..BedSpec::new(DeviceSpec::Router { routes: 0 }) };
    let bed = LabBed::build(&spec).unwrap();
    assert!(exchange(&bed, 0, AddressFamily::V6).is_some());
    assert_eq!(bed.info().ports[0].addresses.len(), 1);
}

/// The threads in which a port receives stand still, as those of a device, or of a tester,
/// that is too slow; the ring before them overflows.
#[test]
fn what_a_slow_device_or_a_slow_tester_loses_is_in_the_ledger_as_its_own() {
    let test = "what_a_slow_device_or_a_slow_tester_loses_is_in_the_ledger_as_its_own";
    if skip(test) {
        return;
    }
    const SENT: u64 = 20_000;
    let cpu = std::thread::available_parallelism().unwrap().get() - 1;
    if cpu == 0 {
        skipped(test, "one processor only");
        return;
    }
    let spec = BedSpec::new(DeviceSpec::Router { routes: 0 });
    for (spec, guilty, innocent) in [
        (BedSpec { own_cpu: Some(cpu), ..spec.clone() }, Side::Device, Side::Tester),
        (BedSpec { tester_cpu: Some(cpu), ..spec.clone() }, Side::Tester, Side::Device),
    ] {
        let bed = LabBed::build(&spec).unwrap();
        if guilty == Side::Device {
            assert_eq!(bed.info().placement, Placement::OwnCpu { cpu, shared: false });
            let threads = bed.info().receive_threads(&bed.info().devices[0]).unwrap();
            assert_eq!(threads.len(), 2, "a thread a port");
            for pid in &threads {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let allowed = format!("Cpus_allowed_list:\t{cpu}\n");
                assert!(status.contains(&allowed), "{status}");
            }
        }
        passes(&bed);
        let before = bed.counters().unwrap();
        let had = value(&bed, "tester b", "rx_packets");
        flood(&bed, cpu, SENT);
        let grown = |side: Side| -> u64 {
            let dropped = |c: &&DeviceCounter| c.side == side && c.kind == CounterKind::Dropped;
            let sum =
                |all: &[DeviceCounter]| all.iter().filter(dropped).map(|c| c.value).sum::<u64>();
            sum(&bed.counters().unwrap()) - sum(&before)
        };
        let arrived = || value(&bed, "tester b", "rx_packets") - had;
        // What was still held when the processor was free again goes on.
        until("each frame has arrived or is in the ledger", || arrived() + grown(guilty) >= SENT);
        let (lost, ledger) = (SENT.saturating_sub(arrived()), grown(guilty));
        println!("{guilty:?}: lost {lost}, ledger {ledger}");
        assert!(lost > 0, "nothing was lost");
        // Both have a few of the hosts' own packets (neighbour discovery) in them.
        assert!(ledger.abs_diff(lost) <= 10, "lost {lost}, but the ledger has {ledger}");
        assert!(grown(innocent) <= 10, "{innocent:?}: {}", grown(innocent));
    }
}

#[test]
fn impossible_beds_are_refused_by_name() {
    let spec = BedSpec { chain: 3, ..BedSpec::new(DeviceSpec::Bridge { stations: 0 }) };
    let error = LabBed::build(&spec).unwrap_err();
    assert!(error.to_string().contains("1 or 2"), "{error}");
}

/// Builds it; a package that is missing is a reason to skip, and named.
fn build(spec: &BedSpec) -> Option<LabBed> {
    match LabBed::build(spec) {
        Ok(bed) => Some(bed),
        Err(error @ LabError::Missing { .. }) => {
            skipped(&spec.device.to_string(), error);
            None
        }
        Err(LabError::Bed(what)) if what.contains("comes from Debian's archive") => {
            skipped(&spec.device.to_string(), what);
            None
        }
        Err(error) => panic!("{}: {error}", spec.device),
    }
}

/// Frames pass, `counter` grows, resets take effect and end, and nothing stays.
fn judge(bed: &mut LabBed, counter: &str) {
    let grown = |bed: &LabBed| -> u64 {
        let all = bed.counters().unwrap();
        all.iter().filter(|c| c.name == counter && c.side == Side::Device).map(|c| c.value).sum()
    };
    let before = grown(bed);
    passes(bed);
    // Two families, two ways, a question and an answer each.
    assert!(grown(bed) >= before + 4, "{counter}: {} after {before}", grown(bed));
    assert!(bed.facts().unwrap().len() > 10);

    bed.reset(DeviceReset::Software).unwrap();
    passes(bed);
    bed.reset(DeviceReset::Power(Duration::from_millis(1))).unwrap();
    passes(bed);

    let info = bed.info().clone();
    let name = info.name.clone();
    assert!(sonde_lab::device::BedInfo::all().unwrap().contains(&info));
    drop(std::mem::replace(bed, LabBed::build(&bed.info().spec.clone()).unwrap()));
    assert!(!run(&["ip", "netns", "list"]).contains(&name), "a namespace is left");
    assert!(!std::path::Path::new("/run/sonde").join(&name).exists(), "its folder is left");
    for pid in info.devices.iter().flat_map(|d| &d.processes) {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
    }
}

/// Both ways, both families: UDP and an echo.
fn passes(bed: &LabBed) {
    for family in bed.info().spec.families.clone() {
        for from in [0, 1] {
            if exchange(bed, from, family).is_none() {
                let all = bed.counters().unwrap();
                let moved: Vec<_> = all.iter().filter(|c| c.value > 0).collect();
                panic!("{}: {family:?} from {from}: no UDP: {moved:#?}", bed.info().spec.device);
            }
            let [near, far] = [from, 1 - from].map(|n| &bed.info().ports[n]);
            let target = &address(far, family).address;
            assert!(pings(near, target, &[]), "{family:?} from {from}: no echo");
            // Far beyond the link, as a test's many flows are.
            if !bed.info().spec.device.is_bridge() && bed.info().placement != Placement::None {
                let target = match (family, 1 - from) {
                    (AddressFamily::V4, 0) => "198.18.77.7",
                    (AddressFamily::V4, _) => "198.19.77.7",
                    (AddressFamily::V6, 0) => "2001:2:0:77::7",
                    (AddressFamily::V6, _) => "2001:2:0:8077::7",
                };
                run(&["ip", "-n", &far.netns, "addr", "replace", target, "dev", "lo"]);
                assert!(pings(near, target, &[]), "{family:?} from {from}: no echo of {target}");
            }
        }
    }
}

/// Sends datagrams from one port to the other until one arrives; whom it came from.
fn exchange(bed: &LabBed, from: usize, family: AddressFamily) -> Option<IpAddr> {
    let [near, far] = [from, 1 - from].map(|n| &bed.info().ports[n]);
    let at = |port: &LabPort, port_number| {
        SocketAddr::new(address(port, family).address.parse().unwrap(), port_number)
    };
    let to = inside(&far.netns, || UdpSocket::bind(at(far, 7000)).unwrap());
    let sender = inside(&near.netns, || UdpSocket::bind(at(near, 7001)).unwrap());
    to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let limit = Instant::now() + Duration::from_secs(10);
    while Instant::now() < limit {
        sender.send_to(b"sonde", at(far, 7000)).unwrap();
        if let Ok((5, source)) = to.recv_from(&mut [0; 16]) {
            return Some(source.ip());
        }
    }
    None
}

/// Sends as many datagrams as asked for from a to b, without a pause. Meanwhile another process of
/// a real-time class keeps the device's processor busy.
fn flood(bed: &LabBed, cpu: usize, count: u64) {
    let [a, b] = [0, 1].map(|n| &bed.info().ports[n]);
    let at = |port: &LabPort| {
        SocketAddr::new(address(port, AddressFamily::V4).address.parse().unwrap(), 7)
    };
    let sender = inside(&a.netns, || UdpSocket::bind(at(a)).unwrap());
    let mut hog = Command::new("chrt")
        .args(["-f", "1", "taskset", "-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let name = format!("/proc/{}/comm", hog.id());
    until("the hog runs", || std::fs::read_to_string(&name).is_ok_and(|c| c == "sh\n"));
    for _ in 0..count {
        sender.send_to(b"sonde", at(b)).unwrap();
    }
    hog.kill().unwrap();
    hog.wait().unwrap();
}

fn address(port: &LabPort, family: AddressFamily) -> &sonde_lab::device::PortAddress {
    port.addresses.iter().find(|a| a.family == family).unwrap()
}

fn value(bed: &LabBed, location: &str, name: &str) -> u64 {
    let all = bed.counters().unwrap();
    let found = all.iter().find(|c| c.location == location && c.name == name);
    found.unwrap_or_else(|| panic!("no {location} {name} in {all:#?}")).value
}

fn pings(from: &LabPort, target: &str, options: &[&str]) -> bool {
    let command = ["ip", "netns", "exec", &from.netns, "ping", "-n", "-q", "-c", "3", "-i", "0.01"];
    let wait = ["-W", "2"];
    let mut all = Command::new(command[0]);
    all.args(&command[1..]).args(wait).args(options).arg(target);
    all.stdout(std::process::Stdio::null()).status().unwrap().success()
}

/// Runs `work` in a thread inside a namespace.
fn inside<T: Send>(netns: &str, work: impl FnOnce() -> T + Send) -> T {
    sonde_lab::Host::of(netns).inside(work).unwrap()
}

fn run(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
