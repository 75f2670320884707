use std::collections::BTreeMap;

use sonde_results::rtt::RttFlow;

use super::*;
use crate::rtt::{Event, start};
use crate::traffic;

/// A capture of known traffic, which goes with the test.
struct Capture(PathBuf);

impl Capture {
    fn new(name: &str, made: traffic::Settings) -> Capture {
        let path = std::env::temp_dir().join(format!("sonde-{name}-{}.pcap", std::process::id()));
        let made = traffic::Settings { out: Some(path.clone()), ..made };
        let (_, ended) = traffic::start(made, &Context::default()).unwrap().last();
        assert!(ended.failure.is_none(), "{ended:?}");
        Capture(path)
    }

    /// When it begins and ends, its flows, and all counters.
    fn measure(&self, settings: Settings) -> ((i64, i64), Vec<RttFlow>, BTreeMap<String, u64>) {
        let sources = vec![self.0.display().to_string()];
        let settings = Settings { sources, flow_records: true, ..settings };
        let (about, running) = start(settings, &Context::default()).unwrap();
        let (mut flows, mut end_ns) = (Vec::new(), 0);
        for event in running.records.iter().flatten() {
            match event {
                Event::Flow(flow) => flows.push(*flow),
                Event::Interval(interval) => end_ns = interval.end_ns - 1,
                _ => {}
            }
        }
        let ended = running.join();
        assert!(ended.failure.is_none(), "{ended:?}");
        ((about.run.header.start_ns, end_ns), flows, ended.counters)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn flows_begin_with_their_first_packet_and_end_within_the_capture() {
    let made = traffic::Settings { flows: 200, packets: Some(4_000), ..Default::default() };
    let capture = Capture::new("rtt-times", made);
    let ((start, end), flows, _) = capture.measure(Settings::default());
    assert!(flows.len() > 300, "{}", flows.len());
    assert_eq!(flows.iter().map(|f| f.start_ns).min(), Some(start));
    for flow in &flows {
        assert!(flow.start_ns <= flow.end_ns && flow.end_ns <= end, "{start} {end} {flow:?}");
    }
    // Packets come every 10 us or so, and hardly two flows begin at once.
    let mut starts: Vec<i64> = flows.iter().map(|f| f.start_ns).collect();
    starts.sort_unstable();
    starts.dedup();
    assert!(starts.len() > flows.len() * 9 / 10, "{} of {}", starts.len(), flows.len());
}

/// In a table this small it depends on the hash who finds room.
#[test]
fn a_capture_gives_the_same_each_time_without_a_seed() {
    let made = traffic::Settings { flows: 300, packets: Some(20_000), ..Default::default() };
    let capture = Capture::new("rtt-again", made);
    let with = |seed| {
        let small = Settings { flows: 64, seed, ..Settings::default() };
        let (_, flows, counters) = capture.measure(small);
        (format!("{flows:?}"), counters)
    };
    // Flows of some thousand lines are not printed.
    assert!(with(None) == with(None), "twice the same");
    assert!(with(Some(1)) != with(Some(2)), "a table in which the hash matters");
}
