//! What goes wrong on the way while a measurement runs: it goes on, and says so.

use std::path::Path;

use sonde_lab::Host;
use sonde_results::Interval;
use sonde_results::caveat::Caveat;
use sonde_results::run::Run;

use super::net::{ENGINES, Net, intervals, read_run};
use crate::process::Process;

/// A probe whose records can be watched while it runs.
struct Watched {
    process: Process,
    records: std::path::PathBuf,
}

impl Watched {
    fn start(net: &Net, engine: &str) -> Watched {
        let records = net.file("watched.jsonl");
        let _ = std::fs::remove_file(&records);
        let process = net.start(&format!(
            "10.1.0.2 --engine {engine} -i 5ms --timeout 200ms --record-interval 100ms \
             --jsonl {} --json",
            records.display()
        ));
        Watched { process, records }
    }

    /// Waits for an interval, later than those so far, of which `wanted` holds.
    fn until(&mut self, what: &str, wanted: impl Fn(&Interval) -> bool) {
        let seen = intervals(&self.records).len();
        let records: &Path = &self.records;
        self.process.until(what, |_| intervals(records).iter().skip(seen).any(&wanted));
    }

    /// Ends it by Ctrl-C, which must go well.
    fn stop(self, what: &str) -> Run {
        self.process.signal("INT");
        read_run(&self.process.end(), what)
    }
}

fn whole(i: &Interval) -> bool {
    i.counters.lost + i.counters.skipped == 0 && i.counters.received > 5
}

fn dead(i: &Interval) -> bool {
    i.counters.received == 0
}

#[test]
fn a_link_goes_down_and_comes_back() {
    let Some(net) = Net::pair("a_link_goes_down_and_comes_back") else { return };
    let (probe, reflector) = (&net.topology.probe, &net.topology.reflector);
    let _reflector = net.reflect("");
    for engine in ENGINES {
        for (side, host) in [("own", probe), ("far", reflector)] {
            let what = format!("{engine}, {side} end");
            let mut run = Watched::start(&net, engine);
            run.until("replies", whole);
            host.set_up("eth0", false).unwrap();
            run.until("a dead interval", dead);
            host.set_up("eth0", true).unwrap();
            run.until("replies again", whole);
            let run = run.stop(&what);
            let c = &run.overall.counters;
            assert_eq!(c.sent, c.received + c.lost, "{what}: {c:?}");
            assert!(c.lost + c.skipped >= 10, "{what}: {c:?}");
        }
    }
}

#[test]
fn what_never_left_is_not_lost() {
    let Some(net) = Net::pair("what_never_left_is_not_lost") else { return };
    let probe = &net.topology.probe;
    let _reflector = net.reflect("");
    let link: fn(&Host, bool) = |host, works| host.set_up("eth0", works).unwrap();
    let route: fn(&Host, bool) = |host, works| {
        let prefix = ["10.1.0.0/24", "dev", "eth0", "src", "10.1.0.1"];
        let verb = if works { "add" } else { "del" };
        host.run(&[&["ip", "route", verb], &prefix[..]].concat()).unwrap();
    };
    // With the address its route goes, and comes back.
    let address: fn(&Host, bool) = |host, works| {
        let verb = if works { "add" } else { "del" };
        host.run(&["ip", "address", verb, "10.1.0.1/24", "dev", "eth0"]).unwrap();
    };
    for engine in ENGINES {
        for (fault, set) in [("link", link), ("route", route), ("address", address)] {
            let what = format!("{engine}, {fault}");
            let mut run = Watched::start(&net, engine);
            run.until("replies", whole);
            set(probe, false);
            run.until("nothing sent", |i| i.counters.sent == 0 && i.counters.skipped >= 10);
            set(probe, true);
            run.until("replies again", whole);
            let run = run.stop(&what);
            let c = &run.overall.counters;
            assert_eq!(c.skipped, c.not_sent.total(), "{what}: {c:?}");
            // What was under way at that moment may be lost: its reply came too late.
            assert!(c.lost <= c.skipped / 5, "{what}: {c:?}");
        }
    }
}

/// The interface is removed and made again, under its name and with another index.
#[test]
fn a_probe_outlives_its_interface() {
    let Some(net) = Net::pair("a_probe_outlives_its_interface") else { return };
    let _reflector = net.reflect("");
    for engine in ENGINES {
        let mut run = Watched::start(&net, engine);
        run.until("replies", whole);
        net.topology.probe.run(&["ip", "link", "del", "eth0"]).unwrap();
        run.until("nothing sent", |i| i.counters.sent == 0 && i.counters.skipped >= 10);
        net.make_link_again();
        run.until("replies again", whole);
        let run = run.stop(engine);
        let c = &run.overall.counters;
        assert_eq!(c.skipped, c.not_sent.total(), "{engine}: {c:?}");
        assert!(c.lost <= c.skipped / 5, "{engine}: {c:?}");
        assert!(run.caveats.contains(Caveat::SendsFailed), "{engine}: {:?}", run.caveats);
    }
}

#[test]
fn a_new_address_is_taken_up() {
    let Some(net) = Net::pair("a_new_address_is_taken_up") else { return };
    let probe = &net.topology.probe;
    let _reflector = net.reflect("");
    let mut own = 1;
    for engine in ENGINES {
        let mut run = Watched::start(&net, engine);
        run.until("replies", whole);
        let change = |verb: &str, own: u8| {
            let address = format!("10.1.0.{own}/24");
            probe.run(&["ip", "address", verb, &address, "dev", "eth0"]).unwrap();
        };
        change("del", own);
        run.until("a dead interval", dead);
        own += 10;
        change("add", own);
        run.until("replies to the new address", whole);
        let run = run.stop(engine);
        assert_eq!(run.overall.counters.sent, run.overall.rtt.count + run.overall.counters.lost);
    }
}

#[test]
fn a_neighbour_changes_its_address() {
    let Some(net) = Net::pair("a_neighbour_changes_its_address") else { return };
    let (probe, reflector) = (&net.topology.probe, &net.topology.reflector);
    let _reflector = net.reflect("");
    for (engine, n) in ENGINES.into_iter().zip(0x71..) {
        let mut run = Watched::start(&net, engine);
        run.until("replies", whole);
        let mac = format!("02:00:00:00:09:{n:x}");
        // The reflector may ask for the probe's address from its new one: nobody is to learn
        // the change from that.
        let entry = ["ip", "neigh", "change", "10.1.0.2", "dev", "eth0", "nud", "permanent"];
        probe.run(&entry).unwrap();
        set_mac(reflector, &mac);
        run.until("a dead interval", dead);
        let new = ["ip", "neigh", "replace", "10.1.0.2", "lladdr", &mac, "dev", "eth0"];
        probe.run(&[&new[..], &["nud", "permanent"]].concat()).unwrap();
        run.until("replies again", whole);
        let run = run.stop(engine);
        assert!(run.overall.counters.lost > 0, "{engine}");
    }
}

fn set_mac(host: &Host, mac: &str) {
    host.run(&["ip", "link", "set", "eth0", "address", mac]).unwrap();
}

#[test]
fn a_reflector_is_restarted() {
    let Some(net) = Net::pair("a_reflector_is_restarted") else { return };
    for (engine, arguments) in ENGINES.into_iter().zip(["", "--kernel --iface eth0", ""]) {
        let mut reflector = net.reflect(arguments);
        let mut run = Watched::start(&net, engine);
        reflector.until("/reflected", 250);
        reflector.0.signal("KILL");
        assert_eq!(reflector.0.end().code, 128 + 9);
        run.until("a dead interval", dead);
        let reflector = net.reflect(arguments);
        run.until("replies again", whole);
        let run = run.stop(engine);
        let c = &run.overall.counters;
        assert_eq!(c.sent, c.received + c.lost, "{engine}: {c:?}");
        assert!(c.lost > 0, "{engine}: {c:?}");
        assert!(run.caveats.contains(Caveat::ReflectorSequenceJump), "{engine}: {:?}", run.caveats);
        // What was lost at the restart has no side.
        assert_eq!(
            (c.lost_forward, c.lost_backward, c.lost_unknown),
            (None, None, c.lost),
            "{engine}: {c:?}"
        );
        reflector.stop();
    }
}
