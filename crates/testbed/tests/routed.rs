//! A device that is there and routes between two networks of its own, outside the ranges for
//! benchmarks (RFC 6815): it is measured where the plan allows both, and else not touched.

use std::path::Path;
use std::time::Duration;

use sonde_lab::{Host, Lab, LinkOptions};
use sonde_results::BenchRun;
use sonde_results::units::format_mac;
use sonde_run::error::RunError;
use sonde_run::running::{Context, Next};
use sonde_testbed::execution::{self, Benchmarking, Event};
use sonde_testbed::plan::TomlText;

#[test]
fn a_router_between_networks_of_its_own_is_measured_where_both_are_allowed() {
    if sonde_lab::skip("a_router_between_networks_of_its_own_is_measured_where_both_are_allowed") {
        return;
    }
    let bed = Bed::new();
    let folder = std::env::temp_dir().join(format!("sonde-routed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);

    // 10.1.0.0/16 is allowed, 192.0.2.0/25 is not.
    match start(&bed.plan("'10.0.0.0/8'"), &folder).err().unwrap() {
        RunError::Settings(why) => assert!(why.message.contains("192.0.2.0/25"), "{why}"),
        other => panic!("{other}"),
    }
    assert!(!folder.exists());

    let run = whole_run(start(&bed.plan("['10.0.0.0/8', '192.0.2.0/24']"), &folder).unwrap());
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(run.measurements.len(), 1);
    let trials: Vec<_> = run.trials.iter().filter(|trial| trial.valid()).collect();
    assert!(!trials.is_empty(), "{:?}", run.trials);
    for direction in trials.iter().flat_map(|trial| &trial.directions) {
        assert!(direction.sent > 0, "{direction:?}");
        assert_eq!((direction.received, direction.stray), (direction.sent, 0), "{direction:?}");
    }
    // The kernel of the device forwarded them: nothing else between the ports does.
    let text = bed.device.run(&["cat", "/proc/net/snmp"]).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("Ip: ")).collect();
    let index = rows[0].split(' ').position(|name| name == "ForwDatagrams").unwrap();
    let forwarded: u64 = rows[1].split(' ').nth(index).unwrap().parse().unwrap();
    let sent: u64 = trials.iter().flat_map(|trial| &trial.directions).map(|d| d.sent).sum();
    assert!(forwarded >= sent, "{text}");
}

fn start(plan: &str, folder: &Path) -> Result<Benchmarking, RunError> {
    let plan = TomlText { file: "plan".into(), text: plan.into() };
    let settings = execution::Settings { plan, out: folder.into() };
    execution::start(settings, &Context::default()).map(|(_, benchmarking)| benchmarking)
}

/// Reads to the end.
fn whole_run(running: Benchmarking) -> BenchRun {
    let mut run = None;
    loop {
        match running.records.next(Duration::from_secs(120)) {
            Next::Record(Event::Failed(why)) => panic!("{why}"),
            Next::Record(Event::Run(all)) => run = Some(all),
            Next::Record(_) => {}
            Next::Nothing => panic!("nothing for two minutes"),
            Next::End => break,
        }
    }
    let ended = running.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    *run.unwrap()
}

/// Two test ports, and between them a kernel that routes.
struct Bed {
    ports: [Host; 2],
    device: Host,
    _lab: Lab,
}

impl Bed {
    fn new() -> Bed {
        let mut lab = Lab::new("routed").unwrap();
        let [a, device, b] = ["a", "dut", "b"].map(|name| lab.host(name).unwrap());
        for host in [&a, &device, &b] {
            // No packets of their own.
            host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        }
        device.sysctl(&["net.ipv4.ip_forward=1"]).unwrap();
        for (host, port, network, tester) in
            [(&a, "eth1", "10.1.0.1/16", "10.1.0.2"), (&b, "eth2", "192.0.2.1/25", "192.0.2.2")]
        {
            let (own, _) = lab.link(host, "eth0", &device, port, &LinkOptions::default()).unwrap();
            device.add_address(port, network).unwrap();
            device.set_neighbour(port, tester, &format_mac(own)).unwrap();
        }
        Bed { ports: [a, b], device, _lab: lab }
    }

    /// 500 frames at 1,000 a second from a to b; the next hops are asked for by ARP.
    fn plan(&self, allowed: &str) -> String {
        let [a, b] = self.ports.each_ref().map(Host::name);
        format!(
            "title = 'routed'\n\
             [bed]\nengine = 'af_packet'\nmax_rate = '2000'\ndrain = '500ms'\n\
             outside_benchmark_range = {allowed}\n\
             [run]\nloop = false\nattempts = 30\nback_off = '100ms'\n\
             [[device]]\nname = 'dut'\nkind = 'external'\n\
             [device.ports]\n\
             a = {{ interface = 'eth0', netns = '{a}', addresses = ['10.1.0.2/16'], gateway = '10.1.0.1' }}\n\
             b = {{ interface = 'eth0', netns = '{b}', addresses = ['192.0.2.2/25'], gateway = '192.0.2.1' }}\n\
             [[procedure]]\nkind = 'fixed_load'\nloads = ['1k']\ntrial = '500ms'\n"
        )
    }
}
