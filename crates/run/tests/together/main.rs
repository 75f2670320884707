//! Instruments side by side in one process, on the same packets: a probe, the reflector in the
//! kernel, passive round trips and flows. The probe is reloaded while it runs. One instrument
//! fails at its start and one while it runs; all others find every packet. None leaves a thread,
//! a descriptor or a program.

mod control;
mod embedding;
mod left;
mod reload;
mod subscribers;
mod traffic;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sonde_lab::{Host, LinkOptions, Topology};
use sonde_results::Run;
use sonde_results::units::SECOND;
use sonde_run::change::Change;
use sonde_run::engine::EngineSettings;
use sonde_run::error::RunError;
use sonde_run::flow::settings::{Export, Metering};
use sonde_run::flow::{self, IpProtocol};
use sonde_run::probe::settings::TargetEntry;
use sonde_run::probe::settings::{RunOptions, StreamOptions};
use sonde_run::probe::{self, Collected, Reloaded};
use sonde_run::reflect::{self, ReflectorReport};
use sonde_run::rtt;
use sonde_run::running::{Context, Next, Running};

use self::left::{descriptors, threads};

/// To the target that is added.
const PROBES: u64 = 100;

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
    let (about, reflecting) =
        within(&net.reflector, || reflect::start(reflector, &given())).unwrap();
    let kernel = about.kernel.as_ref().unwrap();
    assert!(about.to_string().ends_with(&format!("behind the kernel ({kernel})")), "{about}");
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
    let run = reloaded_beside_one_that_fails(net);
    let probes = run.overall.counters.sent;

    // The reflector has answered all of them, in the kernel.
    reflecting.stop();
    let last: ReflectorReport = all(&reflecting).pop().unwrap();
    assert!(reflecting.join().failure.is_none());
    assert_eq!(last.reflected, probes, "{last:?}");
    assert_eq!(last.kernel.unwrap()["reflected"], probes);

    // Both directions of each flow, whole.
    metering.stop();
    let flows: Vec<_> = all(&metering).into_iter().flatten().collect();
    let ended = metering.join();
    assert!(ended.failure.is_none() && ended.counters["records_lost"] == 0, "{ended:?}");
    for (info, total) in run.streams.iter().zip(&run.totals) {
        let of_stream = |f: &&sonde_results::flow::FlowRecord| {
            [f.key.source, f.key.destination].contains(&info.destination.ip())
        };
        let flows: Vec<_> = flows.iter().filter(of_stream).collect();
        let forward: u64 = flows.iter().map(|f| f.forward.packets).sum();
        let reverse: u64 = flows.iter().map(|f| f.reverse.packets).sum();
        assert_eq!([forward, reverse], [total.counters.sent; 2], "{info:?}: {flows:?}");
    }

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
    assert!(ended.counters["packets"] >= 2 * probes, "{:?}", ended.counters);
    assert!(intervals.windows(2).all(|w| w[0].end_ns <= w[1].start_ns), "out of order");
    assert_eq!(intervals.last().unwrap().coverage.counters["packets"], ended.counters["packets"]);
}

/// A probe to three targets: one stays, one goes by a reload, and one comes. Another probe beside
/// it fails.
fn reloaded_beside_one_that_fails(net: &Topology) -> Run {
    let start =
        |settings| within(&net.probe, || probe::start(settings, &Context::default())).unwrap();
    let target = |host: &str, count| TargetEntry {
        stream: StreamOptions { count, ..StreamOptions::default() },
        ..TargetEntry::of(host)
    };
    let to = |second: TargetEntry| probe::Settings {
        targets: vec![target("10.1.0.2", None), second],
        stream: StreamOptions { interval: Some(2_000_000), ..StreamOptions::default() },
        run: RunOptions {
            timeout: Some(SECOND),
            record_interval: Some(SECOND / 10),
            ..RunOptions::default()
        },
        ..probe::Settings::default()
    };
    let first = to(target("10.2.0.1", None));
    let (about, probing) = start(first);
    let clock = about.clock;
    let mut collected = Collected::new(about);
    let settled = |collected: &Collected, stream: usize| {
        collected.totals().get(stream).map_or(0, |t| t.counters.received + t.counters.lost)
    };
    let follow = |collected: &mut Collected, stream: usize, further: u64| {
        let (begun, enough) = (Instant::now(), settled(collected, stream) + further);
        while settled(collected, stream) < enough {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", collected.totals());
            match probing.records.next(Duration::from_secs(60)) {
                Next::Record(event) => drop(collected.add(&event)),
                other => panic!("{other:?}"),
            }
        }
    };
    (0..2).for_each(|stream| follow(&mut collected, stream, 50));

    fails_while_it_runs(net);
    (0..2).for_each(|stream| follow(&mut collected, stream, 50));

    let second = to(target("10.2.0.2", Some(PROBES)));
    let Reloaded { change, left_out } = probing.control.reload(second).unwrap();
    assert!(matches!(change, Change::Live { .. }), "{change:?}");
    assert_eq!(left_out, []);
    follow(&mut collected, 2, PROBES);
    follow(&mut collected, 0, 50);
    probing.stop();
    all(&probing).iter().for_each(|event| drop(collected.add(event)));
    let ended = probing.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    let run = collected.finish(&ended, clock);
    let targets: Vec<&str> = run.streams.iter().map(|s| s.target.as_str()).collect();
    assert_eq!(targets, ["10.1.0.2", "10.2.0.1", "10.2.0.2"]);
    for (info, total) in run.streams.iter().zip(&run.totals) {
        let c = &total.counters;
        assert!(c.sent >= PROBES && c.sent == c.received, "{info:?}: {c:?}");
    }
    assert_eq!(run.totals[2].counters.sent, PROBES);
    let counted = run.overall.counters;
    assert_eq!(counted.sent, ended.counters["sender_sent"], "{ended:?}");
    assert_eq!(run.config.settings["target"][0]["host"], "10.1.0.2");
    assert_eq!(run.config.settings["stream"]["interval"], "2ms");
    run
}

/// Traffic whose interface is deleted.
fn fails_while_it_runs(net: &Topology) {
    let link = |what: &str| {
        let words: Vec<&str> = ["ip", "link"].into_iter().chain(what.split(' ')).collect();
        net.probe.run(&words).unwrap();
    };
    link("add gone0 type veth peer name gone1");
    link("set gone0 up");
    link("set gone1 up");
    let endless = sonde_run::traffic::Settings {
        iface: Some("gone0".into()),
        rate: 5_000,
        packets: Some(u64::MAX),
        ..sonde_run::traffic::Settings::default()
    };
    let failing =
        within(&net.probe, || sonde_run::traffic::start(endless, &Context::default())).unwrap();
    let begun = Instant::now();
    while failing.status.get().packets == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", failing.status.get());
    }
    link("del gone0");
    let (_, ended) = failing.last();
    let failure = format!("{:#}", ended.failure.unwrap());
    assert!(failure.contains("gone0 has vanished"), "{failure}");
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
