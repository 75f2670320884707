//! Faults on real packets, each of which its explanation names first.

mod bed;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_lab::{Host, Impairment, LinkOptions, Relay, Topology, Uplinks};

use bed::{Folder, Running, alone, first};

/// A machine that is busy with other tests sends late, and would doubt itself: hence the limit, and
/// probes so seldom that one that is late is not left out.
const LOSS: &str = r#"
[station]
name = "ber"
[probe.core]
stream = { interval = "20ms" }
run = { record_interval = "100ms", timeout = "300ms", late_limit = "1s" }
[objective.loss]
metric = "loss_ratio"
limit = "4%"
window = "2s"
least_samples = 60
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

    let found = station.explained("breach", 0);
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
    let bed = TwoUplinks::new("expolice", "flows = 2, dscp = [0, 46], schedule = 'poisson'", "");
    let mut station = bed.measure();
    station.until(|station| station.intervals > 16 * 100);
    // 200 packets of the class are sent on the first uplink in a second. At even times one target
    // would always come just after the other, and lose alone.
    let rule = "iifname near0 ip dscp ef limit rate over 140/second burst 5 packets drop";
    lose(&bed.net.router, rule);
    let found = station.explained("breach", 0);
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
    let bed = TwoUplinks::new("exfill", "flows = 2", meter);
    // Ten packets wait, of whatever length; the rest is lost.
    for shape in [
        "tc qdisc add dev far0 root handle 1: tbf rate 1mbit burst 4kb latency 20ms",
        "tc qdisc add dev far0 parent 1:1 handle 10: pfifo limit 10",
    ] {
        bed.net.router.run(&shape.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let mut station = bed.measure();
    station.until(|station| station.intervals > 8 * 100);
    let filling = Filling::start(&bed.net.probe, "10.2.0.77:5201");
    let found = station.explained("breach", 0);
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

/// A unit that watches the traffic of the host, and what is promised of it.
const WATCHES: &str = r#"
[rtt.up]
sources = ["eth0"]
interval = "200ms"
[objective.web]
match = { unit = "rtt.up", target = "10.2.0.0/24" }
metric = "delay_percentile"
percent = 90
limit = "20ms"
window = "2s"
least_samples = 10
"#;

#[test]
fn a_slow_server_is_told_from_its_path() {
    if sonde_lab::skip("a_slow_server_is_told_from_its_path") {
        return;
    }
    let _alone = alone();
    let mut net = Topology::three_hosts("exserver", &LinkOptions::default()).unwrap();
    let folder = Folder::new("server");
    let answering = Running::answering(&net.reflector, &folder.0.join("answers"));
    let targets = target("web", "10.2.0.1", "") + &target("other", "10.2.7.1", "");
    let slow = SlowWay::new(&mut net);
    let text = format!("{LOSS}{targets}{WATCHES}");
    let mut station = Running::start(&net.probe, &text, &folder.0.join("store"));
    let web = Talk::start(&net, "10.2.0.1:8080");
    let other = Talk::start(&net, "10.2.7.1:8080");
    station.until(|station| station.round_trips > 8 * 5);
    slow.take("10.2.0.1");
    let found = station.explained("breach", 0);
    let (names, kind) = first(&found);
    assert!(names.contains(&"traffic on target web"), "{found:#}");
    assert_eq!(kind, "server", "{found:#}");
    web.stop();
    other.stop();
    station.stop();
    answering.stop();
}

/// A second way back from the reflector, on which frames take 60 ms.
struct SlowWay {
    reflector: Host,
    _relay: Relay,
}

impl SlowWay {
    fn new(net: &mut Topology) -> SlowWay {
        let router = net.router.clone().unwrap();
        let middle = net.lab.host("middle").unwrap();
        middle.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        let options = LinkOptions::default();
        net.lab.link(&net.reflector, "slow", &middle, "near", &options).unwrap();
        net.lab.link(&middle, "far", &router, "slow", &options).unwrap();
        for (host, interfaces) in
            [(&net.reflector, &["slow"][..]), (&middle, &["near", "far"]), (&router, &["slow"])]
        {
            interfaces.iter().for_each(|interface| host.offloads_off(interface).unwrap());
        }
        net.reflector.add_address("slow", "10.4.0.1/24").unwrap();
        router.add_address("slow", "10.4.0.254/24").unwrap();
        let delay = Impairment { delay: Duration::from_millis(60), ..Impairment::default() };
        let relay = Relay::start(&middle, ["near", "far"], delay, delay, 1).unwrap();
        net.reflector.add_route("0.0.0.0/0", &["via", "10.4.0.254", "table", "100"]).unwrap();
        SlowWay { reflector: net.reflector.clone(), _relay: relay }
    }

    /// Replies of TCP from this address go that way from now on.
    fn take(&self, from: &str) {
        let rule = ["ip", "rule", "add", "from", from, "ipproto", "tcp", "lookup", "100"];
        self.reflector.run(&rule).unwrap();
        self.reflector.run(&["ip", "route", "flush", "cache"]).unwrap();
    }
}

/// A client that asks a server and waits for its answer, about a hundred times in a second.
struct Talk {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Talk {
    fn start(net: &Topology, at: &str) -> Talk {
        let listener = net.reflector.inside(|| TcpListener::bind(at).unwrap()).unwrap();
        let client = net.probe.inside(|| TcpStream::connect(at).unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let asked = ends.clone();
        let serve = move || {
            let mut request = [0; 100];
            while server.read_exact(&mut request).is_ok() {
                if server.write_all(&[1; 200]).is_err() {
                    return;
                }
            }
        };
        let ask = move || {
            let mut client = client;
            client.set_nodelay(true).unwrap();
            let mut answer = [0; 200];
            while !asked.load(Ordering::Relaxed) {
                client.write_all(&[2; 100]).unwrap();
                client.read_exact(&mut answer).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        Talk { ends, threads: vec![std::thread::spawn(serve), std::thread::spawn(ask)] }
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_starved_station_judges_no_network() {
    if sonde_lab::skip("a_starved_station_judges_no_network") {
        return;
    }
    let _alone = alone();
    let net = Topology::pair("exstarve", &LinkOptions::default()).unwrap();
    let folder = Folder::new("starve");
    let answering = Running::answering(&net.reflector, &folder.0.join("answers"));
    let text = LOSS.replace("late_limit = \"1s\"", "late_limit = \"5ms\"");
    let text = format!("{text}{}", target("muc", "10.1.0.2", ""));
    let mut station = Running::start(&net.probe, &text, &folder.0.join("store"));
    station.until(|station| station.intervals > 50);
    // The first windows lack samples: that is another event. This one begins with its window, which
    // began up to two seconds before.
    let since_ns = sonde_sys::clock::unix_now_ns() - 2_000_000_000;
    let starving = Starving::start();
    let found = station.explained("unjudged", since_ns);
    assert_eq!(found["grade"], "cannot_judge", "{found:#}");
    assert_eq!(first(&found), (vec!["station ber"], "starved_station"), "{found:#}");
    starving.stop();
    station.stop();
    answering.stop();
}

/// The probe's sender has the worst priority on a processor that another thread keeps busy: it gets
/// some milliseconds in a second.
struct Starving {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Starving {
    fn start() -> Starving {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if !name.starts_with("sonde-send") {
                continue;
            }
            let id = task.file_name().into_string().unwrap();
            for order in [vec!["taskset", "-p", "-c", "0", &id], vec!["chrt", "-i", "-p", "0", &id]]
            {
                let ran = std::process::Command::new(order[0]).args(&order[1..]).output().unwrap();
                assert!(ran.status.success(), "{order:?}: {ran:?}");
            }
        }
        let ends = Arc::new(AtomicBool::new(false));
        let asked = ends.clone();
        let thread = std::thread::spawn(move || {
            sonde_sys::schedule::pin_to_cpu(0).unwrap();
            while !asked.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Starving { ends, thread }
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
