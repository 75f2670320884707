//! Several readers of one instrument's records, beside the files and collectors that the
//! instrument writes to itself.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sonde_lab::{LinkOptions, Topology};
use sonde_results::flow::FlowRecord;
use sonde_results::units::SECOND;
use sonde_run::flow::settings::{Export, Metering, Selection};
use sonde_run::flow::{self, verify};
use sonde_run::running::{Context, Fanout, Next, RecordReceiver};
use sonde_run::traffic;

use super::{ALONE, within};

const PACKETS: u64 = 4_000;
const FLOWS: u32 = 2_000;

#[test]
fn flows_go_to_a_collector_a_file_and_two_readers_of_which_one_is_stuck() {
    if sonde_lab::skip("flows_go_to_a_collector_a_file_and_two_readers_of_which_one_is_stuck") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Topology::pair("subscribers", &LinkOptions::default()).unwrap();
    let folder = std::env::temp_dir().join(format!("sonde-subscribers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (truth, file) = (folder.join("truth.csv"), folder.join("flows.ipfix"));

    // The traffic comes first, into a capture: then the truth is there for the collector.
    let made = traffic::Settings {
        truth: Some(truth.clone()),
        out: Some(folder.join("traffic.pcap")),
        flows: FLOWS,
        packets: Some(PACKETS),
        ..traffic::Settings::default()
    };
    let (made, ended) = traffic::start(made, &Context::default()).unwrap().last();
    assert!(ended.failure.is_none(), "{ended:?}");
    assert_eq!(made.unwrap().packets, PACKETS);

    let collecting = verify::Settings {
        truth: truth.clone(),
        listen: Some("tcp://127.0.0.1:4739".parse().unwrap()),
        // It comes on one host in one go.
        until_idle: 2 * SECOND,
        ..verify::Settings::default()
    };
    let collector = within(&net.probe, || verify::start(collecting, &Context::default())).unwrap();
    let metered = flow::Settings {
        sources: vec![folder.join("traffic.pcap").display().to_string()],
        metering: Metering { flows: 4_096, ..Metering::default() },
        selection: Selection::default(),
        export: Export {
            export: vec!["tcp://127.0.0.1:4739".parse().unwrap()],
            write: vec![file.clone()],
            ..Export::default()
        },
        records: true,
        ..flow::Settings::default()
    };
    let mut metering = within(&net.probe, || flow::start(metered, &Context::default())).unwrap();
    let fanout = Fanout::new(|batch: &Vec<FlowRecord>| batch.len() as u64);
    let store = fanout.subscribe("store", 1 << 16);
    let stuck = fanout.subscribe("stuck", 1);
    metering.fan_out(&fanout).unwrap();
    let flows = all(&store);
    let ended = metering.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    assert_eq!(ended.counters["records_lost"], 0);
    let packets: u64 = flows.iter().map(|f| f.forward.packets + f.reverse.packets).sum();
    assert_eq!(packets, PACKETS);

    // Each record went to each of them, or is counted.
    let all = flows.len() as u64;
    let [whole, little] = &fanout.counts()[..] else { panic!("{:?}", fanout.counts()) };
    assert_eq!((whole.handed, whole.lost), (all, 0));
    assert_eq!(little.handed + little.lost, all);
    assert!(little.lost > 0 && little.handed > 0, "{little:?}");
    assert_eq!(ended.counters["subscribers_lost"], little.lost);
    assert_eq!(stuck.iter().map(|batch| batch.len() as u64).sum::<u64>(), little.handed);

    // The collector and the file have the same, whole.
    let (report, ended) = collector.last();
    assert!(ended.failure.is_none(), "{ended:?}");
    let report = report.unwrap();
    assert!(report.exact, "{report}");
    let read = verify::Settings { truth, files: vec![file], ..verify::Settings::default() };
    let (report, _) = verify::start(read, &Context::default()).unwrap().last();
    let report = report.unwrap();
    assert!(report.exact, "{report}");
    std::fs::remove_dir_all(&folder).unwrap();
}

fn all(reader: &RecordReceiver<Arc<Vec<FlowRecord>>>) -> Vec<FlowRecord> {
    let mut all = Vec::new();
    loop {
        match reader.next(PATIENCE) {
            Next::Record(batch) => all.extend(batch.iter().cloned()),
            Next::Nothing => panic!("no record for a minute"),
            Next::End => return all,
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
