//! Each direction on an interface of its own, or with a VLAN of its own; a host that talks to
//! itself.

use serde_json::Value;
use sonde_lab::LinkOptions;

use super::support::{capture, lines, pair, ping, rtt, watch};

fn samples(capture: &str, options: &str) -> Vec<Value> {
    let ended = rtt(&format!("{capture} --format jsonl --sample-limit none {options}"));
    lines(&ended.out, "sample")
}

#[test]
fn a_capture_of_a_tap_is_joined() {
    let file = capture("../joins/tap2if.pcapng");
    assert_eq!(samples(&file, "").len(), 0);
    for join in ["--join all", "--join 0,1"] {
        let joined = samples(&file, join);
        assert_eq!(joined.len(), 22, "{join}");
        assert!(joined.iter().all(|s| s["flow"]["point"] == 0), "{join}");
    }
    assert_eq!(samples(&file, "--join 0,2").len(), 0, "another interface");
    let wrong = rtt(&format!("{file} --join eth0,eth1"));
    assert_eq!((wrong.code, wrong.err.contains("have numbers")), (2, true), "{}", wrong.err);
}

#[test]
fn a_vlan_for_each_direction_is_left_out_of_the_key() {
    let file = capture("../joins/vlan_asym.pcap");
    assert_eq!(samples(&file, "").len(), 0);
    let found = samples(&file, "--no-vlan-in-key");
    assert_eq!(found.len(), 22);
    assert!(found.iter().all(|s| s["flow"]["vlan"] == 0));
}

/// Requests leave by one interface, and answers come by the other.
#[test]
fn interfaces_with_one_direction_each_are_joined() {
    for engine in ["", "--engine af_packet"] {
        let Some(mut net) = pair("interfaces_with_one_direction_each_are_joined") else { return };
        net.lab.link(&net.probe, "eth1", &net.reflector, "eth1", &LinkOptions::default()).unwrap();
        for host in [&net.probe, &net.reflector] {
            for name in ["all", "eth0", "eth1"] {
                host.sysctl(&[&format!("net.ipv4.conf.{name}.rp_filter=0")]).unwrap();
            }
        }
        net.probe.add_address("eth1", "10.2.0.1/24").unwrap();
        net.reflector.add_address("eth1", "10.2.0.2/24").unwrap();
        net.reflector
            .run(&["ip", "route", "add", "10.1.0.1/32", "via", "10.2.0.1", "dev", "eth1"])
            .unwrap();
        for (join, samples) in [("", 0), ("--join eth0,eth1", 20)] {
            let line = format!(
                "eth0 eth1 {engine} {join} --proto icmp --format jsonl --sample-limit none"
            );
            let run = watch(&net.probe, &line);
            ping(&net.probe, 20);
            run.signal("INT");
            let ended = run.end();
            // Also of two rings an answer comes after its question.
            assert_eq!(lines(&ended.out, "sample").len(), samples, "{line}: {}", ended.err);
            let how = lines(&ended.out, "run")[0]["points"][1]["how"].to_string();
            assert_eq!(how.contains("joined with eth0"), !join.is_empty(), "{how}");
        }
    }
}

/// Request and answer have the same addresses and the same identifier.
#[test]
fn a_host_that_pings_itself_is_timed_on_the_loopback() {
    for engine in ["", "--engine af_packet"] {
        let Some(net) = pair("a_host_that_pings_itself_is_timed_on_the_loopback") else { return };
        net.probe.run(&["ip", "link", "set", "lo", "up"]).unwrap();
        let line = format!("lo {engine} --proto icmp --format jsonl --sample-limit none");
        let run = watch(&net.probe, &line);
        net.probe.run(&["ping", "-q", "-c", "10", "-i", "0.02", "127.0.0.1"]).unwrap();
        run.signal("INT");
        let ended = run.end();
        assert_eq!(lines(&ended.out, "sample").len(), 10, "{line}: {}", ended.err);
        let flow = &lines(&ended.out, "flow")[0];
        assert_eq!(
            (&flow["forward"]["requests"], &flow["forward"]["answered"]),
            (&10.into(), &10.into())
        );
    }
}
