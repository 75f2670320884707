//! Faults on real packets, each of which its explanation names first.

mod bed;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_lab::{Host, LinkOptions, Topology, Uplinks};

use bed::{Folder, Running, alone, first};

/// A machine that is busy with other tests sends late, and would doubt itself: hence the limit.
const LOSS: &str = r#"
[station]
name = "ber"
[probe.core]
stream = { interval = "5ms" }
run = { record_interval = "100ms", timeout = "300ms", late_limit = "1s" }
[objective.loss]
metric = "loss_ratio"
limit = "4%"
window = "1s"
least_samples = 100
"#;

#[test]
fn a_bad_path_of_a_group_is_named_with_its_way() {
    if sonde_lab::skip("a_bad_path_of_a_group_is_named_with_its_way") {
        return;
    }
    let _alone = alone();
    let net = Topology::three_hosts("expath", &LinkOptions::default()).unwrap();
    let folder = Folder::new("path");
    let answering = Running::answering(&net.reflector, &folder.0.join("answers"));
    let targets = target("muc", "10.2.0.1", "flows = 4") + &target("ham", "10.2.0.2", "flows = 4");
    let mut station =
        Running::start(&net.probe, &format!("{LOSS}{targets}"), &folder.0.join("store"));
    station.until(|station| station.intervals > 8 * 100);
    // One of the equal-cost paths loses a third of what it carries there.
    let bad = station.streams.iter().find(|stream| stream.target == "muc").unwrap().source.port();
    let router = net.router.as_ref().unwrap();
    lose(router, &format!("ip daddr 10.2.0.1 udp sport {bad} numgen random mod 100 < 33 drop"));

    let (_, found) = station.explained("breach");
    let member = format!("path member muc {bad}>862");
    assert_eq!(first(&found), (vec![member.as_str()], "bad_member"), "{found:#}");
    assert_eq!(
        (&found["grade"], &found["candidates"][0]["direction"]),
        (&"strong".into(), &"forward".into())
    );
    let text = found["text"].to_string();
    assert!(text.contains("on the way there"), "{text}");
    station.stop();
    answering.stop();
}

#[test]
fn a_policer_is_named_by_its_class_and_interface() {
    if sonde_lab::skip("a_policer_is_named_by_its_class_and_interface") {
        return;
    }
    let _alone = alone();
    let bed = TwoUplinks::new("expolice", "dscp = [0, 46], schedule = 'poisson'", "");
    let mut station = bed.measure();
    station.until(|station| station.intervals > 8 * 100);
    // 400 packets of the class are sent on the first uplink in a second. At even times one target
    // would always come just after the other, and lose alone.
    let rule = "iifname near0 ip dscp ef limit rate over 280/second burst 5 packets drop";
    lose(&bed.net.router, rule);
    let (_, found) = station.explained("breach");
    let (names, kind) = first(&found);
    assert!(names.contains(&"class EF on interface eth0"), "{found:#}");
    assert_eq!(kind, "policer", "{found:#}");
    bed.stop(station);
}

#[test]
fn a_filled_uplink_is_named_with_the_flow_that_fills_it() {
    if sonde_lab::skip("a_filled_uplink_is_named_with_the_flow_that_fills_it") {
        return;
    }
    let _alone = alone();
    let meter = "[flow.up]\nsources = ['eth0', 'eth1']\n\
                 metering = { flows = 1024, active = '1s', idle = '1s' }\n";
    let bed = TwoUplinks::new("exfill", "", meter);
    // Twenty packets wait, of whatever length; the rest is lost.
    for shape in [
        "tc qdisc add dev far0 root handle 1: tbf rate 4mbit burst 8kb latency 20ms",
        "tc qdisc add dev far0 parent 1:1 handle 10: pfifo limit 20",
    ] {
        bed.net.router.run(&shape.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let mut station = bed.measure();
    station.until(|station| station.intervals > 4 * 100);
    let filling = Filling::start(&bed.net.probe, "10.2.0.77:5201");
    let (_, found) = station.explained("breach");
    let (names, kind) = first(&found);
    assert!(names.contains(&"interface eth0"), "{found:#}");
    assert_eq!(kind, "filled_link", "{found:#}");
    let evidence = found["candidates"][0]["evidence"].to_string();
    assert!(evidence.contains("> 10.2.0.77 UDP port 5201 grew from"), "{evidence}");
    filling.stop();
    bed.stop(station);
}

/// Two targets behind each of two uplinks.
struct TwoUplinks {
    net: Uplinks,
    folder: Folder,
    answering: Vec<Running>,
    text: String,
}

impl TwoUplinks {
    fn new(name: &str, stream: &str, more: &str) -> TwoUplinks {
        let net = Uplinks::new(name, 2, &LinkOptions::default()).unwrap();
        let folder = Folder::new(name);
        let answering = (0..)
            .zip(&net.reflectors)
            .map(|(n, host)| Running::answering(host, &folder.0.join(format!("answers{n}"))))
            .collect();
        let targets =
            [("a", "10.2.0.1"), ("b", "10.2.0.2"), ("c", "10.2.64.1"), ("d", "10.2.64.2")];
        let targets: String =
            targets.iter().map(|(name, host)| target(name, host, stream)).collect();
        let text = format!("{LOSS}{targets}\n{more}");
        TwoUplinks { net, folder, answering, text }
    }

    fn measure(&self) -> Running {
        Running::start(&self.net.probe, &self.text, &self.folder.0.join("store"))
    }

    fn stop(self, station: Running) {
        station.stop();
        self.answering.into_iter().for_each(Running::stop);
    }
}

/// Datagrams of 1,200 octets, about 12 Mbit/s, until it is stopped.
struct Filling {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Filling {
    fn start(host: &Host, to: &str) -> Filling {
        let socket = host.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        let (ends, to) = (Arc::new(AtomicBool::new(false)), to.to_owned());
        let asked = ends.clone();
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                // Nobody listens there, which is told to the next one who sends.
                (0..12).for_each(|_| drop(socket.send_to(&[0; 1_200], &to)));
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Filling { ends, thread }
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn target(name: &str, host: &str, stream: &str) -> String {
    format!("[[probe.core.target]]\nname = '{name}'\nhost = '{host}'\nstream = {{ {stream} }}\n")
}

/// A router drops what fits a rule of nftables.
fn lose(router: &Host, rule: &str) {
    router.run(&["nft", "add table ip faults"]).unwrap();
    let chain = "add chain ip faults forward { type filter hook forward priority 0; }";
    router.run(&["nft", chain]).unwrap();
    router.run(&["nft", &format!("add rule ip faults forward {rule}")]).unwrap();
}
