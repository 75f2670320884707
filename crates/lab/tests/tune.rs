//! Layers on a real bed: each takes effect and is reverted exactly. Needs root.

use sonde_lab::device::{BedSpec, DeviceSpec, LabBed, Placement};
use sonde_lab::tune::{self, Layer, LayerScope, Setting, SettingChange};
use sonde_lab::{LabError, skip, skipped};

/// Everything that a layer of this bed could change.
fn state(bed: &LabBed) -> String {
    let info = bed.info();
    let mut all = String::new();
    for device in &info.devices {
        let host = sonde_lab::Host::of(&device.netns);
        let script = "for i in eth0 eth1; do ethtool -k $i; cd /sys/class/net/$i; \
                      grep -H . threaded napi_defer_hard_irqs gro_flush_timeout queues/*/rps_cpus; \
                      done; nft list ruleset 2>/dev/null; true";
        all += &host.run(&["sh", "-c", script]).unwrap();
        for pid in info.receive_threads(device).unwrap() {
            let show = format!("taskset -p {pid}; chrt -p {pid}");
            all += &host.run(&["sh", "-c", &show]).unwrap();
        }
    }
    // Counters go on; they are no settings.
    let counts = |word: &str| word.parse::<u64>().is_err();
    let lines = all.lines().map(|l| {
        if l.contains("packets") {
            l.split(' ').filter(|w| counts(w)).collect()
        } else {
            l.to_owned()
        }
    });
    lines.collect::<Vec<String>>().join("\n")
}

#[test]
fn every_layer_is_applied_and_reverted_exactly() {
    if skip("every_layer_is_applied_and_reverted_exactly") {
        return;
    }
    let firewall = DeviceSpec::Firewall { filters: 25, conntrack: true };
    let bed = match LabBed::build(&BedSpec { gro: false, ..BedSpec::new(firewall) }) {
        Err(error @ LabError::Missing { .. }) => return skipped("every layer", error),
        bed => bed.unwrap(),
    };
    let before = state(&bed);
    let (mut found, mut order) = (Vec::new(), Vec::new());
    for layer in Layer::ALL {
        match layer.scope() {
            LayerScope::Build => {
                assert!(layer.applies(bed.info()).unwrap_err().contains("built"));
            }
            LayerScope::Host => {
                let error = tune::apply(layer, bed.info(), false).unwrap_err().to_string();
                assert!(error.contains("--host"), "{error}");
            }
            LayerScope::Bed => {
                let was = state(&bed);
                let changes = tune::apply(layer, bed.info(), false).unwrap();
                assert!(!changes.is_empty(), "{layer}");
                let now = state(&bed);
                assert_ne!(was, now, "{layer} changes nothing");
                let again = tune::apply(layer, bed.info(), false).unwrap_err().to_string();
                assert!(again.contains("already"), "{again}");
                // Alone, on top of those before it.
                tune::revert(layer, bed.info()).unwrap();
                assert_eq!(was, state(&bed), "{layer}");
                found.extend(tune::apply(layer, bed.info(), false).unwrap());
                order.push(layer);
            }
        }
    }
    assert_eq!(tune::applied(bed.info()).unwrap(), order);
    assert!(found.iter().any(|c| matches!(c.setting, Setting::Affinity { .. })));
    assert!(found.iter().any(|c| matches!(c.setting, Setting::Class { .. })));
    tune::revert_all(bed.info()).unwrap();
    assert_eq!(before, state(&bed));
    assert!(tune::applied(bed.info()).unwrap().is_empty());
}

/// Its main loop goes before its virtual processor, which else keeps it from answering.
#[test]
fn a_virtual_machine_with_real_time_threads_still_answers() {
    if skip("a_virtual_machine_with_real_time_threads_still_answers") {
        return;
    }
    let bed = match LabBed::build(&BedSpec::new(DeviceSpec::Vm).apart()) {
        Err(error @ LabError::Missing { .. }) => return skipped("every layer", error),
        bed => bed.unwrap(),
    };
    let main = bed.info().devices[0].processes[0];
    let changes = tune::apply(Layer::RealTime, bed.info(), false).unwrap();
    let class = |change: &SettingChange| (change.former.clone(), change.value.clone());
    let (leading, workers): (Vec<_>, Vec<_>) = changes.iter().partition(|c| c.value == "fifo 2");
    assert!(workers.iter().all(|c| class(c) == ("other 0".into(), "rr 1".into())), "{changes:?}");
    assert!(!workers.is_empty(), "{changes:?}");
    assert!(leading.iter().any(|c| matches!(c.setting, Setting::Class { pid, .. } if pid == main)));
    // Frames for it to forward, while it is asked.
    let a = sonde_lab::Host::of(&bed.info().ports[0].netns);
    for _ in 0..5 {
        a.run(&["ping", "-q", "-c", "50", "-i", "0.002", "-W", "20", "198.19.0.2"]).unwrap();
        bed.counters().unwrap();
    }
    let reverted = tune::revert(Layer::RealTime, bed.info()).unwrap();
    assert_eq!(reverted, changes);
    for SettingChange { setting, former, .. } in changes {
        let Setting::Class { pid, .. } = setting else { panic!("{setting}") };
        let now = a.run(&["chrt", "-p", &pid.to_string()]).unwrap();
        assert!(now.contains("SCHED_OTHER"), "{former}: {now}");
    }
}

#[test]
fn threads_take_a_device_out_of_its_sender() {
    if skip("threads_take_a_device_out_of_its_sender") {
        return;
    }
    let mut bed = LabBed::build(&BedSpec::new(DeviceSpec::Router { routes: 0 })).unwrap();
    assert_eq!(bed.info().placement, Placement::Inline);
    tune::apply(Layer::ThreadedNapi, bed.info(), false).unwrap();
    bed.settle().unwrap();
    assert_eq!(bed.info().placement, Placement::Anywhere);
    tune::revert(Layer::ThreadedNapi, bed.info()).unwrap();
    bed.settle().unwrap();
    assert_eq!(bed.info().placement, Placement::Inline);
}

#[test]
fn a_layer_that_does_not_fit_says_why() {
    if skip("a_layer_that_does_not_fit_says_why") {
        return;
    }
    let router = LabBed::build(&BedSpec::new(DeviceSpec::Router { routes: 0 })).unwrap();
    for (layer, part) in [
        (Layer::Gro, "already"),
        (Layer::Pinning, "threaded-napi first"),
        (Layer::NoNetfilter, "no netfilter hooks"),
    ] {
        let why = layer.applies(router.info()).unwrap_err();
        assert!(why.contains(part), "{layer}: {why}");
    }
    let wire = LabBed::build(&BedSpec::new(DeviceSpec::Loop)).unwrap();
    assert!(Layer::Rps.applies(wire.info()).unwrap_err().contains("no device"));
}
