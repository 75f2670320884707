//! Instruments side by side in one process, on the same packets: a probe, the reflector in the
//! kernel, passive round trips and flows. One of them fails; all find every packet; none leaves
//! anything behind.

mod control;
mod left;
mod reload;
mod traffic;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sonde_lab::{Host, LinkOptions, Topology};
use sonde_results::units::SECOND;
use sonde_run::engine::EngineSettings;
use sonde_run::error::RunError;
use sonde_run::flow::settings::{Export, Metering};
use sonde_run::flow::{self, IpProtocol};
use sonde_run::probe::settings::TargetEntry;
use sonde_run::probe::settings::{RunOptions, StreamOptions};
use sonde_run::probe::{self, Collected};
use sonde_run::reflect::{self, ReflectorReport};
use sonde_run::rtt;
use sonde_run::running::{Context, Next, Running};

use self::left::{descriptors, threads};

const PROBES: u64 = 200;

/// What a process has open is looked at: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn four_instruments_live_in_one_process_and_leave_nothing() {
    if sonde_lab::skip("four_instruments_live_in_one_process_and_leave_nothing") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Topology::pair("together", &LinkOptions::default()).unwrap();
    // What is made once and stays: pools of libraries, the log.
    together(&net);
    let before = (threads(), descriptors());
    together(&net);
    assert_eq!((threads(), descriptors()), before);
    let link = net.reflector.run(&["ip", "-d", "link", "show", Topology::INTERFACE]).unwrap();
    assert!(!link.contains("prog/xdp"), "{link}");
    let filters = net.probe.run(&["tc", "filter", "show", "dev", Topology::INTERFACE, "ingress"]);
    assert!(!filters.unwrap().contains("sonde"), "a program is left");
}

fn together(net: &Topology) {
    let given = Context::default;
    let on =
        |iface: &str| EngineSettings { iface: Some(iface.into()), ..EngineSettings::default() };
    let reflector = reflect::Settings {
        engine: on(Topology::INTERFACE),
        kernel: true,
        ..reflect::Settings::default()
    };
    let (_, reflecting) = within(&net.reflector, || reflect::start(reflector, &given())).unwrap();
    let passive = rtt::Settings {
        sources: vec![Topology::INTERFACE.into()],
        interval: SECOND / 10,
        ..rtt::Settings::default()
    };
    let (_, watching) = within(&net.probe, || rtt::start(passive, &given())).unwrap();
    let metered = flow::Settings {
        sources: vec![Topology::INTERFACE.into()],
        metering: Metering { flows: 1_024, idle: SECOND, ..Metering::default() },
        selection: flow::settings::Selection {
            proto: vec![IpProtocol(17)],
            port: vec![862],
            ..Default::default()
        },
        records: true,
        ..flow::Settings::default()
    };
    let metering = within(&net.probe, || flow::start(metered.clone(), &given())).unwrap();
    // One that cannot be, beside those that are.
    let nowhere = flow::Settings {
        export: Export { write: vec!["/nonexistent/flows.ipfix".into()], ..Export::default() },
        ..metered
    };
    match within(&net.probe, || flow::start(nowhere, &given())) {
        Err(RunError::Host(error)) => assert!(format!("{error:#}").contains("/nonexistent")),
        other => panic!("{:?}", other.err()),
    }
    let settings = probe::Settings {
        targets: vec![TargetEntry::of("10.1.0.2")],
        stream: StreamOptions {
            interval: Some(2_000_000),
            count: Some(PROBES),
            ..StreamOptions::default()
        },
        run: RunOptions { timeout: Some(SECOND), ..RunOptions::default() },
        ..probe::Settings::default()
    };
    let (about, probing) = within(&net.probe, || probe::start(settings, &given())).unwrap();
    let clock = about.clock;
    let mut collected = Collected::new(about);
    for event in all(&probing) {
        collected.add(&event);
    }
    let ended = probing.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    let run = collected.finish(&ended, clock);
    let counted = run.overall.counters;
    assert_eq!((counted.sent, counted.received), (PROBES, PROBES), "{counted:?}");
    assert_eq!(run.config.settings["target"][0]["host"], "10.1.0.2");
    assert_eq!(run.config.settings["stream"]["interval"], "2ms");

    // The reflector has answered all of them, in the kernel.
    reflecting.stop();
    let last: ReflectorReport = all(&reflecting).pop().unwrap();
    assert!(reflecting.join().failure.is_none());
    assert_eq!(last.reflected, PROBES, "{last:?}");
    assert_eq!(last.kernel.unwrap()["reflected"], PROBES);

    // Both directions of one flow, whole.
    metering.stop();
    let flows: Vec<_> = all(&metering).into_iter().flatten().collect();
    let ended = metering.join();
    assert!(ended.failure.is_none() && ended.counters["records_lost"] == 0, "{ended:?}");
    let packets =
        |of: fn(&sonde_results::flow::FlowRecord) -> u64| flows.iter().map(of).sum::<u64>();
    assert_eq!(packets(|f| f.forward.packets), PROBES, "{flows:?}");
    assert_eq!(packets(|f| f.reverse.packets), PROBES, "{flows:?}");

    // It saw them, though nothing in them is to be timed.
    watching.stop();
    let intervals: Vec<_> = all(&watching)
        .into_iter()
        .flatten()
        .filter_map(|event| match event {
            rtt::Event::Interval(interval) => Some(interval),
            _ => None,
        })
        .collect();
    let ended = watching.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    assert!(ended.counters["packets"] >= 2 * PROBES, "{:?}", ended.counters);
    assert!(intervals.windows(2).all(|w| w[0].end_ns <= w[1].start_ns), "out of order");
    assert_eq!(intervals.last().unwrap().coverage.counters["packets"], ended.counters["packets"]);
}

/// All records until the end.
fn all<R, S, C>(running: &Running<R, S, C>) -> Vec<R> {
    let mut all = Vec::new();
    loop {
        match running.records.next(Duration::from_secs(60)) {
            Next::Record(record) => all.push(record),
            Next::Nothing => panic!("no record for a minute"),
            Next::End => break,
        }
    }
    assert_eq!(running.records.lost(), 0);
    all
}

fn within<T: Send>(
    host: &Host,
    start: impl FnOnce() -> Result<T, RunError> + Send,
) -> Result<T, RunError> {
    host.inside(start).unwrap()
}
