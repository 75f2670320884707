//! A station by its file in a namespace, what it said, and what explains its events.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sonde_lab::Host;
use sonde_results::StreamInfo;
use sonde_run::probe::Event;
use sonde_run::running::{Invocation, Next, RecordReceiver, Stop};
use sonde_station::client::StationClient;
use sonde_station::hub::{Hub, Report, Said};
use sonde_station::serve::BoundApi;
use sonde_station::service::{LoadedConfig, Service};
use sonde_store::query::{EventList, EventRow, TimeRange};
use sonde_store::{Answer, EmbeddedReader, Limit, Query, Reader as _};

/// One test at a time: each fills the processors.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of its own, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let name = format!("sonde-explain-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A station at work.
pub struct Running {
    service: Service,
    stop: Stop,
    records: RecordReceiver<Arc<Report>>,
    store: PathBuf,
    pub client: StationClient,
    /// Of its probe.
    pub streams: Vec<StreamInfo>,
    /// Records of its probe so far.
    pub intervals: usize,
    pub round_trips: usize,
}

impl Running {
    pub fn start(host: &Host, text: &str, store: &Path) -> Running {
        let file = store.with_extension("toml");
        fs::write(&file, format!("{text}\n[store]\npath = '{}'\n", store.display())).unwrap();
        let hub = Hub::new(Report::records);
        let records = hub.subscribe("test", 1 << 16);
        let stop = Stop::default();
        let asked = stop.clone();
        let start = move || {
            let loaded = LoadedConfig::read(&file).unwrap();
            let bound = BoundApi::bind(&loaded.config.api, &loaded.config.store.path).unwrap();
            let how = (None, Invocation::default());
            Service::start(&file, loaded, bound, hub, asked, how).unwrap()
        };
        Running {
            service: host.inside(start).unwrap(),
            stop,
            records,
            store: store.to_owned(),
            client: StationClient::new(&store.with_extension("sock")),
            streams: Vec::new(),
            intervals: 0,
            round_trips: 0,
        }
    }

    /// A reflector answers on `host`.
    pub fn answering(host: &Host, store: &Path) -> Running {
        let mut running = Running::start(host, ANSWERS, store);
        while !matches!(running.next().said, Said::Reflector(_)) {}
        running
    }

    fn next(&mut self) -> Arc<Report> {
        self.take(Duration::from_secs(60)).expect("what was waited for did not come")
    }

    /// The next report, if one comes within `patience`.
    fn take(&mut self, patience: Duration) -> Option<Arc<Report>> {
        let Next::Record(report) = self.records.next(patience) else { return None };
        match &report.said {
            Said::Probe(about) => self.streams.clone_from(&about.streams),
            Said::ProbeEvent(Event::Record(_)) => self.intervals += 1,
            Said::RttEvents(events) => self.round_trips += events.len(),
            _ => {}
        }
        Some(report)
    }

    /// Reads what it says until `enough`.
    pub fn until(&mut self, enough: impl Fn(&Running) -> bool) {
        while !enough(self) {
            self.next();
        }
    }

    /// What the store has of events, by their begin.
    fn events(&self) -> Vec<EventRow> {
        let reader = EmbeddedReader::open(&self.store, None).unwrap();
        let range = TimeRange { from_ns: 0, to_ns: i64::MAX / 2 };
        let query = Query::Events(EventList { range, ..EventList::default() });
        match reader.query(&query, &Limit::default()).unwrap().answer {
            Answer::Events(rows) => rows,
            _ => panic!("another answer"),
        }
    }

    /// Waits for the first event of a kind since then (ns since 1970 UTC) with an explanation that the
    /// station kept by itself, and gives what the API says of it.
    pub fn explained(&mut self, kind: &str, since_ns: i64) -> Value {
        for _ in 0..MOST_LOOKS {
            let of_kind = |row: &EventRow| {
                row.event.kind == kind
                    && row.event.begin_ns >= since_ns
                    && row.event.evidence.get("explanation").is_some()
            };
            if let Some(row) = self.events().into_iter().find(of_kind) {
                let path = format!("/sonde/v1/events/{}/explanation", row.id.0);
                return self.client.get(&path).unwrap();
            }
            // A starved station says next to nothing: looks are not counted by its reports.
            let next_look = Instant::now() + LOOK;
            while let Some(left) = next_look.checked_duration_since(Instant::now()) {
                self.take(left);
            }
        }
        let events: Vec<String> =
            self.events().into_iter().map(|row| format!("{:?}\n", row.event)).collect();
        panic!("no {kind} was explained: {}", events.concat());
    }

    pub fn stop(self) {
        self.stop.ask();
        let ended = self.service.join();
        assert!(ended.stuck.is_empty(), "{ended:?}");
    }
}

/// The names of what explains it first.
pub fn first(found: &Value) -> (Vec<&str>, &str) {
    let first = &found["candidates"][0];
    let names = first["names"].as_array().unwrap_or_else(|| panic!("nothing is named: {found:#}"));
    (names.iter().filter_map(Value::as_str).collect(), first["kind"].as_str().unwrap_or("-"))
}

const ANSWERS: &str = "[reflect.main]\nengine = { iface = 'eth0' }\n[api]\nsocket = ''\n";
/// Between two looks at what is explained.
const LOOK: Duration = Duration::from_millis(500);
/// Looks until an event is explained: three minutes of them.
const MOST_LOOKS: usize = 360;
