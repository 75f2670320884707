//! What is kept over the end of a station, in order or not.

use sonde_results::Counters;
use sonde_results::Interval;
use sonde_run::probe::Event;
use sonde_store::{EventSeverity, Reader as _, Store, StoreOptions, StoredEvent};

use super::*;
use crate::alert::testing::Folder;
use crate::hub::Said;
use crate::judge::settings::ObjectiveSettings;

/// A station's judge over a store of its own.
struct Bed {
    folder: Folder,
    hub: Hub,
    store: Arc<Store>,
}

impl Bed {
    fn new(name: &str) -> Bed {
        let folder = Folder::new(name);
        let store = Store::open(&folder.0, StoreOptions::default()).unwrap();
        Bed { folder, hub: Hub::new(Report::records), store: Arc::new(store) }
    }

    fn start(&self) -> JudgeService {
        let loss = "metric = 'loss_ratio'\nlimit = '10%'\nwindow = '1s'\nleast_samples = 1";
        let settings: ObjectiveSettings = toml::from_str(loss).unwrap();
        let objectives = settings.objectives("loss").unwrap();
        let settings = JudgeSettings { objectives, maintenance: Vec::new() };
        let units = BTreeSet::from([unit()]);
        let (folder, store) = (&self.folder.0, self.store.clone());
        JudgeService::start("ber", folder, settings, units, store, (None, None), &self.hub).unwrap()
    }

    fn say(&self, said: Said) {
        self.hub.hand(&Arc::new(Report { unit: unit(), said }));
    }

    /// Kinds of events, and whether they last.
    fn events(&self) -> Vec<(String, bool)> {
        let range = TimeRange { from_ns: i64::MIN, to_ns: i64::MAX };
        let query = Query::Events(EventList { range, ..EventList::default() });
        let response = self.store.reader().query(&query, &Limit::default()).unwrap();
        let Answer::Events(rows) = response.answer else { panic!("another answer") };
        rows.into_iter().map(|row| (row.event.kind, row.event.end_ns.is_none())).collect()
    }

    fn has(&self, kind: &str, lasts: bool) -> bool {
        self.events().iter().any(|event| *event == (kind.to_owned(), lasts))
    }
}

fn unit() -> UnitId {
    UnitId::new("probe.a")
}

fn stream() -> Said {
    Said::ProbeEvent(Event::Added(vec![sonde_results::StreamInfo {
        target: "muc".into(),
        source: "192.0.2.1:1".parse().unwrap(),
        destination: "192.0.2.9:862".parse().unwrap(),
        dscp: 0,
        ssid: 0,
        ip_length: 72,
        period_ns: 1_000_000,
    }]))
}

/// A record of a second of which all is lost.
fn record(start_ns: i64) -> Said {
    let mut record = Interval { start_ns, end_ns: start_ns + 1_000_000_000, ..Interval::empty(0) };
    record.counters = Counters { sent: 10, lost: 10, ..Counters::default() };
    Said::ProbeEvent(Event::Record(Box::new(record)))
}

#[test]
fn what_lasts_goes_on_after_a_restart_and_what_nobody_knows_ends() {
    let bed = Bed::new("judge");
    let judge = bed.start();
    bed.say(stream());
    let begin = steady_now().as_nanos().div_euclid(1_000_000_000) * 1_000_000_000;
    (0..4).for_each(|n| bed.say(record(begin + n * 1_000_000_000)));
    let status = judge.end();
    assert_eq!((status.open.len(), status.error), (1, None));
    assert!(bed.has("breach", true), "{:?}", bed.events());
    // It was kept by a station that was killed before it saved that.
    let orphan = StoredEvent {
        kind: "breach".into(),
        severity: EventSeverity::Critical,
        series: None,
        begin_ns: 1,
        end_ns: None,
        title: String::new(),
        evidence: serde_json::json!({}),
    };
    bed.store.add_event(&orphan).unwrap();
    let judge = bed.start();
    assert_eq!(judge.status.get().open.len(), 1);
    let lasting =
        |kind: &str| bed.events().iter().filter(|event| **event == (kind.to_owned(), true)).count();
    assert_eq!((lasting("breach"), bed.has("breach", false)), (1, true));
    // The objective is gone, and so is the breach.
    judge.reload(JudgeSettings::default(), BTreeSet::from([unit()]));
    assert_eq!(judge.end().open.len(), 0);
    assert_eq!(lasting("breach"), 0);
    assert!(!bed.has("station_unclean_end", false));
}

#[test]
fn a_state_that_cannot_be_read_is_set_aside() {
    let bed = Bed::new("judge-damaged");
    let file = bed.folder.0.join(STATE_FILE);
    fs::write(&file, "{").unwrap();
    bed.start().end();
    assert!(file.with_extension("damaged").exists());
    assert!(serde_json::from_slice::<JudgeState>(&fs::read(&file).unwrap()).is_ok());
    assert!(bed.has("station_started", false));
}
