//! Traffic with known flows, a meter of it, and the comparison of both, in one process.

use std::net::TcpStream;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use sonde_lab::{LinkOptions, Topology};
use sonde_results::units::SECOND;
use sonde_run::flow::settings::{Export, Metering, Selection};
use sonde_run::flow::{self, verify};
use sonde_run::running::Context;
use sonde_run::traffic;

use super::left::{descriptors, threads};
use super::{ALONE, within};

const PACKETS: u64 = 4_000;

#[test]
fn traffic_is_made_metered_and_verified_in_one_process() {
    if sonde_lab::skip("traffic_is_made_metered_and_verified_in_one_process") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Topology::pair("traffic", &LinkOptions::default()).unwrap();
    let folder = std::env::temp_dir().join(format!("sonde-traffic-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // What is made once and stays: pools of libraries, the log.
    side_by_side(&net, &folder);
    let before = (threads(), descriptors());
    side_by_side(&net, &folder);
    assert_eq!((threads(), descriptors()), before);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn side_by_side(net: &Topology, folder: &Path) {
    let (truth, flows) = (folder.join("truth.csv"), folder.join("flows.ipfix"));
    let ours = ["198.18.0.0/15", "2001:2::/48"].map(|prefix| prefix.parse().unwrap());
    let metered = flow::Settings {
        sources: vec![Topology::INTERFACE.into()],
        metering: Metering { flows: 4_096, ..Metering::default() },
        selection: Selection { net: ours.to_vec(), ..Selection::default() },
        export: Export { write: vec![flows.clone()], ..Export::default() },
        ..flow::Settings::default()
    };
    let metering = within(&net.reflector, || flow::start(metered, &Context::default())).unwrap();
    let made = traffic::Settings {
        iface: Some(Topology::INTERFACE.into()),
        truth: Some(truth.clone()),
        flows: 100,
        packets: Some(PACKETS),
        rate: 20_000,
        ..traffic::Settings::default()
    };
    let making = within(&net.probe, || traffic::start(made.clone(), &Context::default())).unwrap();
    // Another one beside it that would go on for hours.
    let endless = traffic::Settings {
        iface: None,
        out: Some("/dev/null".into()),
        truth: None,
        packets: Some(u64::MAX),
        ..made
    };
    let other = traffic::start(endless, &Context::default()).unwrap();
    let (made, ended) = making.last();
    assert!(ended.failure.is_none(), "{ended:?}");
    let made = made.unwrap();
    assert_eq!((made.packets, made.interrupted), (PACKETS, false));
    assert_eq!((ended.counters["packets"], made.own_drops), (PACKETS, Some(0)));
    until("traffic", || other.status.get().packets > 0);
    other.stop();
    let (made, ended) = other.last();
    assert!(ended.failure.is_none() && made.unwrap().interrupted, "{ended:?}");
    metering.stop();
    assert!(metering.join().failure.is_none());

    // No truth, and an address that somebody has: errors at once.
    let nothing =
        verify::Settings { truth: folder.join("none.csv"), ..verify::Settings::default() };
    let nothing = verify::Settings { files: vec![flows.clone()], ..nothing };
    let refused = verify::start(nothing, &Context::default()).err().unwrap();
    assert!(refused.to_string().contains("none.csv"), "{refused}");
    let listen = Some("tcp://127.0.0.1:4739".parse().unwrap());
    let compared = verify::Settings {
        files: vec![flows],
        truth,
        listen,
        until_idle: 3_600 * SECOND,
        time_tolerance: SECOND,
        ..verify::Settings::default()
    };
    let verifying =
        within(&net.probe, || verify::start(compared.clone(), &Context::default())).unwrap();
    let again = within(&net.probe, || verify::start(compared, &Context::default())).err().unwrap();
    assert!(again.to_string().contains("127.0.0.1:4739"), "{again}");
    until("all that was exported", || verifying.status.get().records > 0);
    let exporter = net.probe.inside(|| TcpStream::connect("127.0.0.1:4739")).unwrap().unwrap();
    verifying.stop();
    let (report, ended) = verifying.last();
    assert!(ended.failure.is_none(), "{ended:?}");
    let report = report.unwrap();
    assert!(report.exact, "{report}");
    drop(exporter);
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {what} in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}
