//! What is asked of instruments while they run.

use std::sync::PoisonError;
use std::time::Duration;

use sonde_lab::{LinkOptions, Topology};
use sonde_results::flow::FlowRecord;
use sonde_results::units::SECOND;
use sonde_run::flow::settings::{Export, Metering, Selection};
use sonde_run::flow::{self, IpProtocol};
use sonde_run::probe::settings::{RunOptions, StreamOptions};
use sonde_run::probe::{self, TargetEntry};
use sonde_run::rtt;
use sonde_run::running::{Context, Next};

use super::{ALONE, all, within};

const PROBES: u64 = 100;

#[test]
fn files_rotate_and_intervals_end_when_that_is_asked() {
    if sonde_lab::skip("files_rotate_and_intervals_end_when_that_is_asked") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Topology::pair("control", &LinkOptions::default()).unwrap();
    let folder = std::env::temp_dir().join(format!("sonde-control-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let lines = folder.join("flows.jsonl");
    let passive = rtt::Settings {
        sources: vec![Topology::INTERFACE.into()],
        interval: 3_600 * SECOND,
        ..rtt::Settings::default()
    };
    let (_, watching) = within(&net.probe, || rtt::start(passive, &Context::default())).unwrap();
    let metered = flow::Settings {
        sources: vec![Topology::INTERFACE.into()],
        metering: Metering { flows: 1_024, idle: SECOND / 10, ..Metering::default() },
        selection: Selection {
            proto: vec![IpProtocol(17)],
            port: vec![862],
            ..Selection::default()
        },
        export: Export {
            jsonl: Some(lines.clone()),
            write: vec![folder.join("flows.ipfix")],
            ..Export::default()
        },
        records: true,
        ..flow::Settings::default()
    };
    let metering = within(&net.probe, || flow::start(metered, &Context::default())).unwrap();
    for rotated in [false, true] {
        // Nobody answers: ICMP is of another protocol, and each run is one flow, one way.
        let settings = probes();
        let (_, probing) =
            within(&net.probe, || probe::start(settings, &Context::default())).unwrap();
        all(&probing);
        assert!(probing.join().failure.is_none());
        match metering.records.next(Duration::from_secs(60)) {
            Next::Record(batch) => assert_eq!(batch.len(), 1),
            other => panic!("{other:?}"),
        }
        if !rotated {
            metering.control.rotate().unwrap();
        }
    }
    watching.control.snapshot();
    let interval = loop {
        match watching.records.next(Duration::from_secs(60)) {
            Next::Record(events) => {
                let interval = events.into_iter().find_map(|event| match event {
                    rtt::Event::Interval(interval) => Some(interval),
                    _ => None,
                });
                if let Some(interval) = interval {
                    break interval;
                }
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(interval.coverage.counters["packets"] >= 2 * PROBES, "{interval:?}");
    assert!(interval.end_ns - interval.start_ns < 3_600 * SECOND);
    watching.stop();
    all(&watching);
    assert!(watching.join().failure.is_none());
    metering.stop();
    assert_eq!(all(&metering), Vec::<Vec<FlowRecord>>::new());
    let control = metering.control.clone();
    assert!(metering.join().failure.is_none());
    assert!(control.rotate().is_err(), "it has ended");
    let in_file = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    for name in ["flows.jsonl", "flows-0002.jsonl"] {
        let flow: FlowRecord = serde_json::from_str(&in_file(name)).unwrap();
        assert_eq!(flow.forward.packets, PROBES, "{name}");
    }
    let length = |name: &str| std::fs::metadata(folder.join(name)).unwrap().len();
    assert!(length("flows.ipfix") > 0 && length("flows-0002.ipfix") > 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn probes() -> probe::Settings {
    probe::Settings {
        targets: vec![TargetEntry::of("10.1.0.2")],
        stream: StreamOptions {
            interval: Some(2_000_000),
            count: Some(PROBES),
            ..StreamOptions::default()
        },
        run: RunOptions { timeout: Some(SECOND / 10), ..RunOptions::default() },
        ..probe::Settings::default()
    }
}
