//! Devices that do what devices do in practice: a result that says so, never a hang.

use std::time::Duration;

use sonde_lab::{Impairment, Relay};
use sonde_results::caveat::Caveat;
use sonde_results::trial::Invalid;

use super::support::{
    Between, Folder, assert_consistent, fixed, head, router, until, valid_trials,
};

#[test]
fn a_device_that_drops_everything_has_a_result_that_says_so() {
    let Some(between) = Between::new("a_device_that_drops_everything_has_a_result_that_says_so")
    else {
        return;
    };
    // It forwards nothing.
    let search =
        "[[procedure]]\nkind = 'throughput'\ntrial = '100ms'\nmin_rate = '1k'\nresolution = 0.3\n";
    let plan = head("3k", "100ms") + &between.table(true) + search + &fixed(&["1000"], "100ms");
    let folder = Folder::with_plan(&plan);
    let ended = folder.bench();
    let run = folder.read();
    assert_consistent(&run);
    assert_eq!(run.measurements.len(), 2, "{}\n{}", ended.out, ended.err);
    for m in &run.measurements {
        let valid = valid_trials(&run, m);
        assert!(!valid.is_empty(), "{}", m.id);
        assert!(valid.iter().all(|t| t.loss_ratio() == 1.0 && t.directions[0].sent > 0));
    }
    // No rate is lossless: there is no throughput to report.
    let throughput = run.measurements.iter().find(|m| m.case.procedure == "throughput").unwrap();
    let value = throughput.finding.value("throughput").map_or(0.0, |q| q.value);
    assert_eq!(value, 0.0, "{throughput:?}");
}

#[test]
fn frames_that_a_device_reorders_are_counted_as_that() {
    let Some(between) = Between::new("frames_that_a_device_reorders_are_counted_as_that") else {
        return;
    };
    let plan = head("2k", "300ms") + &between.table(false) + &fixed(&["1000"], "500ms");
    let folder = Folder::with_plan(&plan);
    let late =
        Impairment { reorder: 0.1, reorder_by: Duration::from_millis(5), ..Impairment::default() };
    let relay =
        Relay::start(&between.device, ["eth1", "eth2"], late, Impairment::default(), 5).unwrap();
    let ended = folder.bench();
    let report = relay.stop().unwrap();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    let run = folder.read();
    let valid = valid_trials(&run, &run.measurements[0]);
    let d = &valid[0].directions[0];
    assert!(report.directions[0].reordered > 0 && d.reordered > 0, "{d:?}");
    assert_eq!((d.corrupted, d.duplicates, d.received + d.lost), (0, 0, d.sent), "{d:?}");
    // Held back frames took as long as they were held.
    assert!(d.latency.max >= 5_000_000, "{:?}", d.latency.max);
}

/// A wire from a to b by the kernel's packet filter, with another rule before it.
fn wire(between: &Between, rule: &str) {
    between.device.run(&["nft", "add", "table", "netdev", "wire"]).unwrap();
    let chain = "{ type filter hook ingress device eth1 priority 0; }";
    between.device.run(&["nft", "add", "chain", "netdev", "wire", "in", chain]).unwrap();
    for rule in [rule, "fwd to eth2"] {
        between.device.run(&["nft", "add", "rule", "netdev", "wire", "in", rule]).unwrap();
    }
}

#[test]
fn frames_that_a_device_drops_or_copies_are_counted_one_by_one() {
    let test = "frames_that_a_device_drops_or_copies_are_counted_one_by_one";
    for (rule, lost, copies) in
        [("numgen inc mod 10 0 drop", 50, 0), ("numgen inc mod 10 0 dup to eth2", 0, 50)]
    {
        let Some(between) = Between::new(test) else { return };
        wire(&between, rule);
        let plan = head("2k", "100ms") + &between.table(false) + &fixed(&["1000"], "500ms");
        let folder = Folder::with_plan(&plan);
        let ended = folder.bench();
        assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
        let run = folder.read();
        let d = &valid_trials(&run, &run.measurements[0])[0].directions[0];
        // Tries that did not count moved the counter of tenths on.
        assert!(d.lost.abs_diff(lost) <= 1 && d.duplicates.abs_diff(copies) <= 1, "{d:?}");
        assert_eq!((d.sent, d.received + d.lost, d.corrupted), (500, 500, 0), "{d:?}");
    }
}

/// Before each trial the bridge learns the address of a port that only receives (RFC 2544,
/// section 23).
#[test]
fn a_bridge_floods_nothing_of_a_trial_in_one_direction() {
    let test = "a_bridge_floods_nothing_of_a_trial_in_one_direction";
    let Some(between) = Between::new(test) else { return };
    let ip = |line: &str| {
        let line: Vec<&str> = ["ip"].into_iter().chain(line.split_whitespace()).collect();
        between.device.run(&line).unwrap()
    };
    ip("link add br0 type bridge");
    ip("link add third type veth peer name end");
    for port in ["eth1", "eth2", "third"] {
        ip(&format!("link set {port} master br0"));
    }
    for interface in ["third", "end", "br0"] {
        ip(&format!("link set {interface} up"));
    }
    let plan = head("2k", "100ms") + &between.table(false) + &fixed(&["1000"], "500ms");
    let folder = Folder::with_plan(&plan);
    let ended = folder.bench();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    let run = folder.read();
    let d = &valid_trials(&run, &run.measurements[0])[0].directions[0];
    assert_eq!((d.sent, d.lost), (500, 0), "{d:?}");
    let flooded = between.device.run(&["cat", "/sys/class/net/third/statistics/tx_packets"]);
    let flooded: u64 = flooded.unwrap().trim().parse().unwrap();
    assert!(flooded < 50, "{flooded} frames went to the third port");
}

#[test]
fn a_device_that_is_not_there_is_exit_code_3() {
    let Some(between) = Between::new("a_device_that_is_not_there_is_exit_code_3") else {
        return;
    };
    for (host, address) in [(&between.a, "198.18.0.2/24"), (&between.b, "198.19.0.2/24")] {
        host.add_address("eth0", address).unwrap();
    }
    let gateways = ["198.18.0.1", "198.19.0.1"].map(|g| format!("gateway = '{g}'"));
    let plan = head("2k", "100ms") + &between.table_with(gateways) + &fixed(&["1000"], "100ms");
    let folder = Folder::with_plan(&plan);
    let ended = folder.bench();
    assert_eq!(ended.code, 3, "{}\n{}", ended.out, ended.err);
    assert!(
        ended.err.contains("the device does not answer ARP for 198.18.0.1 on eth0"),
        "{}",
        ended.err
    );
    assert!(folder.read().measurements.is_empty());
    // It comes up, and the same command goes on.
    between.route();
    let ended = folder.bench();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert_eq!(folder.read().measurements.len(), 1);
}

#[test]
fn a_port_that_goes_down_in_the_middle_is_not_the_devices_loss() {
    let Some(between) = Between::new("a_port_that_goes_down_in_the_middle_is_not_the_devices_loss")
    else {
        return;
    };
    between.route();
    let plan = head("2k", "100ms") + &between.table(true) + &fixed(&["1000", "1500"], "2s");
    let folder = Folder::with_plan(&plan);
    let mut process = folder.start();
    // Frames arrive: the trial is under way.
    let arrived = || {
        let file = "/sys/class/net/eth0/statistics/rx_packets";
        let read = between.b.run(&["cat", file]).unwrap();
        read.trim().parse::<u64>().unwrap() > 100
    };
    assert!(until(&mut process, arrived), "{:?}", process.err());
    between.b.set_up("eth0", false).unwrap();
    assert!(until(&mut process, || !folder.trials().is_empty()));
    between.b.set_up("eth0", true).unwrap();
    let ended = folder.finish(process);
    let run = folder.read();
    let first = &run.trials[0];
    assert!(
        first.invalid.iter().any(|i| matches!(i, Invalid::Bed { what } if what.contains("down"))),
        "{:?}\n{}\n{}",
        first.invalid,
        ended.out,
        ended.err
    );
    assert_consistent(&run);
    // A try that began before the port was back says so; the same command goes on then.
    if ended.code != 0 {
        assert_eq!(ended.code, 3, "{}\n{}", ended.out, ended.err);
        assert!(ended.err.contains("down"), "{}", ended.err);
        assert_eq!(folder.bench().code, 0);
    }
    let run = folder.read();
    assert_consistent(&run);
    assert_eq!(run.measurements.len(), 2);
    let lost = run.trials.iter().filter(|t| t.valid()).map(|t| t.sent_and_lost().1).sum::<u64>();
    assert_eq!(lost, 0, "a port that was down counts against the device");
}

#[test]
fn a_load_that_no_tester_can_offer_is_not_the_devices_failure() {
    if sonde_lab::skip("a_load_that_no_tester_can_offer_is_not_the_devices_failure") {
        return;
    }
    let plan = router(&fixed(&["90000000"], "20ms")).replace("'5k'", "'100M'");
    let folder = Folder::with_plan(&plan.replace("attempts = 30", "attempts = 2"));
    let ended = folder.bench();
    assert_eq!(ended.code, 5, "{}\n{}", ended.out, ended.err);
    let run = folder.read();
    assert_consistent(&run);
    let m = &run.measurements[0];
    assert!(m.finding.values.is_empty() && m.caveats.contains(Caveat::TrialsInvalid), "{m:?}");
    let short = |i: &Invalid| matches!(i, Invalid::NotSent { .. } | Invalid::Slow { .. });
    assert!(run.trials.iter().all(|t| t.invalid.iter().any(short)), "{:?}", run.trials);
    // One line for the offer, however often it was tried.
    assert_eq!(ended.err.matches("90,000,000 frames/s").count(), 1, "{}", ended.err);
}

#[test]
fn a_reset_of_a_router_is_measured() {
    if sonde_lab::skip("a_reset_of_a_router_is_measured") {
        return;
    }
    let reset = "[[procedure]]\nkind = 'reset'\nloads = ['1000']\ntrial = '8s'\nat = '500ms'\n\
                 trials = 1\n";
    // Seconds at which the tester holds its processors: alone, and with fewer tries.
    let folder = Folder::alone(&router(reset).replace("attempts = 30", "attempts = 4"));
    let (ended, run) = folder.whole_run();
    let m = &run.measurements[0];
    // A host that steals from the tester at every try leaves nothing to report.
    let unfit = m.caveats.contains(Caveat::TrialsInvalid);
    let code = if unfit { 5 } else { 0 };
    assert_eq!(ended.code, code, "{}\n{}\n{m:?}", ended.out, ended.err);
    let valid = valid_trials(&run, m);
    assert!(valid.iter().all(|t| t.offer.event.is_some()), "{valid:?}");
    assert!(m.finding.values.iter().all(|v| v.value.is_finite()), "{m:?}");
}
