//! The sender against peers that err or lie: what is no reply never counts as one.

use sonde_results::Run;
use sonde_results::caveat::Caveat;
use sonde_results::record::LossSide;

use super::actors;
use super::net::{ENGINES, Net, assert_clean, health, read_run};

#[test]
fn wrong_replies_are_counted_and_duplicates_are_known() {
    let test = "wrong_replies_are_counted_and_duplicates_are_known";
    let Some(net) = Net::pair(test) else { return };
    let _impostor = actors::start(&net.topology.reflector, "impostor 10.1.0.2:862");
    for engine in ENGINES {
        let run = net.measure(&format!("10.1.0.2 --engine {engine} -i 5ms -c 100"));
        let c = &run.overall.counters;
        assert_eq!((c.sent, c.received, c.lost), (100, 100, 0), "{engine}: {c:?}");
        for (name, n) in [("forged", 200), ("short", 100), ("wrong_session", 100)] {
            let counter = health(&run, &format!("sender_{name}"));
            assert_eq!(counter, n, "{engine}: {name}: {:?}", run.health.counters);
        }
        // The run ends with the last reply; its duplicate may come too late.
        assert!((99..=100).contains(&c.duplicated), "{engine}: {c:?}");
        assert_eq!(health(&run, "sender_duplicates"), c.duplicated, "{engine}");
        assert!(run.caveats.contains(Caveat::InvalidReplies), "{engine}");
        assert_eq!(run.overall.rtt.count, 100, "{engine}");
    }
}

#[test]
fn losses_are_reported_by_direction() {
    let Some(net) = Net::pair("losses_are_reported_by_direction") else { return };
    let _lossy = actors::start(&net.topology.reflector, "lossy 10.1.0.2:862");
    for engine in ENGINES {
        let run = net.measure(&format!(
            "10.1.0.2 --engine {engine} -i 2ms -c 200 --dscp BE,EF --timeout 300ms"
        ));
        for total in &run.totals {
            let c = &total.counters;
            assert_eq!((c.sent, c.received, c.lost), (200, 160, 40), "{engine}: {c:?}");
            assert_eq!((c.lost_forward, c.lost_backward), (Some(20), Some(20)), "{engine}: {c:?}");
            assert_eq!(total.loss_side, LossSide::Known, "{engine}");
        }
    }
}

#[test]
fn rubbish_from_the_right_port_is_no_reply() {
    let Some(net) = Net::pair("rubbish_from_the_right_port_is_no_reply") else { return };
    let _babbler = actors::start(&net.topology.reflector, "babbler 10.1.0.2:862");
    for engine in ENGINES {
        let ended =
            net.probe(&format!("10.1.0.2 --engine {engine} -i 2ms -c 200 --timeout 300ms --json"));
        assert_eq!(ended.code, 1, "{engine}: {}", ended.err);
        let run: Run = serde_json::from_str(&ended.out).unwrap();
        let c = &run.overall.counters;
        assert_eq!((c.sent, c.received, c.lost), (200, 0, 200), "{engine}: {c:?}");
        let refused = ["malformed", "short", "forged", "wrong_session", "late"];
        let refused = refused.map(|name| health(&run, &format!("sender_{name}")));
        assert_eq!(refused.iter().sum::<u64>(), 200, "{engine}: {:?}", run.health.counters);
        assert!(run.caveats.contains(Caveat::InvalidReplies), "{engine}");
    }
}

#[test]
fn strangers_do_not_disturb_a_run() {
    let Some(net) = Net::pair("strangers_do_not_disturb_a_run") else { return };
    let mut reflector = net.reflect("");
    let mut reflected = 0;
    for engine in ENGINES {
        let probe = net.start(&format!("10.1.0.2 --engine {engine} -i 2ms --json"));
        reflector.until("/reflected", reflected + 50);
        let noise = "noise 10.1.0.2:7777 10.1.0.1:62000 400";
        let sent = actors::run(&net.topology.reflector, noise)["sent"];
        let during = reflector.count("/reflected");
        reflector.until("/reflected", during + 50);
        probe.signal("INT");
        let run = read_run(&probe.end(), engine);
        let probes = run.overall.counters.sent;
        assert!(probes >= during + 50 - reflected, "{engine}: {probes}");
        assert_clean(&run, 1, probes, engine);
        // Those that the engine's filter did not keep away.
        let strangers = health(&run, "sender_strangers");
        assert!(strangers <= sent, "{engine}: {strangers}");
        reflected += probes;
        reflector.until("/reflected", reflected);
    }
}

#[test]
fn nobody_answers() {
    let Some(net) = Net::pair("nobody_answers") else { return };
    for engine in ENGINES {
        // A host without a reflector, then an address without a host.
        for host in ["10.1.0.2", "10.1.0.77"] {
            let what = format!("{engine} {host}");
            let arguments =
                format!("{host} --engine {engine} -i 20ms -w 500ms --timeout 200ms --json");
            let ended = net.probe(&arguments);
            assert_eq!(ended.code, 1, "{what}: {} {}", ended.out, ended.err);
            let run: Run = serde_json::from_str(&ended.out).unwrap();
            let c = &run.overall.counters;
            assert_eq!((c.received, c.sent), (0, c.lost), "{what}: {c:?}");
            assert!(c.sent + c.skipped > 0, "{what}: {c:?}");
            // Its timeout is over before the kernel gives the neighbour up; nothing leaves.
            assert_eq!(c.sent == 0, host == "10.1.0.77", "{what}: {c:?}");
            let caveat = if c.sent > 0 { Caveat::NoReply } else { Caveat::NextHopUnresolved };
            assert!(run.caveats.contains(caveat), "{what}: {:?}", run.caveats);
        }
    }
}
