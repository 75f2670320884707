//! How the station itself does, as metrics.

use super::{MetricsPage, seconds};

/// How a station does. Counts are since its start.
#[derive(Clone, Debug, Default)]
pub struct OwnMetrics {
    /// When it was started, ns since 1970 UTC; 0: not known, and then nothing here is shown.
    pub started_ns: i64,
    /// Processor time that it took, ns.
    pub cpu_ns: u64,
    /// Resident memory, octets.
    pub memory_octets: u64,
    /// Whether the kernel believes its clock synchronised.
    pub clock_synchronised: bool,
    /// Its units.
    pub units: Vec<UnitMetrics>,
    /// Those who read what units measure.
    pub queues: Vec<QueueMetrics>,
    /// Its store.
    pub store: StoreMetrics,
    /// Its exporters.
    pub exports: Vec<ExportMetrics>,
}

/// A unit.
#[derive(Clone, Debug, Default)]
pub struct UnitMetrics {
    /// Its name: `probe.core`.
    pub name: String,
    /// What it does: `running`.
    pub phase: &'static str,
    /// How often it was started.
    pub starts: u64,
    /// Records that it gave.
    pub records: u64,
    /// Records that found no room on their way out of it.
    pub records_lost: u64,
}

/// A reader of what units measure.
#[derive(Clone, Debug, Default)]
pub struct QueueMetrics {
    /// Who reads.
    pub reader: String,
    /// Records that found room.
    pub handed: u64,
    /// Records that found none.
    pub dropped: u64,
}

/// A store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreMetrics {
    /// Whether it took what it was given last.
    pub works: bool,
    /// Rows that are on the disk for certain.
    pub rows: u64,
    /// Rows that wait for it.
    pub waiting_rows: u64,
    /// Rows that were given up.
    pub lost_rows: u64,
}

/// An exporter.
#[derive(Clone, Debug, Default)]
pub struct ExportMetrics {
    /// Its name in the configuration.
    pub name: String,
    /// Points that the receiver has taken.
    pub delivered: u64,
    /// Points that it refused for good.
    pub refused: u64,
    /// Points that found no room while it was away.
    pub dropped: u64,
    /// Tries that failed.
    pub failures: u64,
    /// Octets that wait.
    pub waiting_octets: u64,
    /// Whether the last try failed.
    pub failing: bool,
}

impl MetricsPage<'_> {
    pub(super) fn own(&mut self, own: &OwnMetrics) {
        if own.started_ns == 0 {
            return;
        }
        let (s, bytes) = (Some("seconds"), Some("bytes"));
        self.one(
            "process_start_time_seconds",
            s,
            "Start, since 1970 UTC",
            seconds(own.started_ns.into()),
        );
        self.family("process_cpu_seconds", "counter", s, "Processor time of the station");
        self.sample("process_cpu_seconds_total", &[], &seconds(own.cpu_ns.into()));
        let memory = own.memory_octets.to_string();
        self.one("process_resident_memory_bytes", bytes, "Memory of the station", memory);
        let synchronised = u8::from(own.clock_synchronised).to_string();
        self.one("sonde_clock_synchronised", None, "1: the kernel believes so", synchronised);
        self.units(&own.units);
        self.queues(&own.queues);
        self.store(own.store);
        self.exports(&own.exports);
    }

    fn units(&mut self, units: &[UnitMetrics]) {
        let mut phases: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
        units.iter().for_each(|unit| *phases.entry(unit.phase).or_default() += 1);
        self.family("sonde_units", "gauge", None, "Units, by what they do");
        for (phase, n) in phases {
            self.sample("sonde_units", &[("phase", phase)], &n.to_string());
        }
        type Of = fn(&UnitMetrics) -> u64;
        let all: [(&str, &str, Of); 3] = [
            ("sonde_unit_starts", "How often a unit was started", |u| u.starts),
            ("sonde_unit_records", "Records that a unit gave", |u| u.records),
            ("sonde_unit_records_lost", "Records lost on their way out of a unit", |u| {
                u.records_lost
            }),
        ];
        for (name, help, of) in all {
            self.counter(name, help, units.iter().map(|u| ("unit", u.name.as_str(), of(u))));
        }
    }

    fn queues(&mut self, queues: &[QueueMetrics]) {
        let of = |of: fn(&QueueMetrics) -> u64| {
            queues.iter().map(move |queue| ("reader", queue.reader.as_str(), of(queue)))
        };
        self.counter("sonde_queue_handed", "Records handed to a reader", of(|q| q.handed));
        self.counter(
            "sonde_queue_dropped",
            "Records that a reader had no room for",
            of(|q| q.dropped),
        );
    }

    fn store(&mut self, store: StoreMetrics) {
        let works = u8::from(store.works).to_string();
        self.one("sonde_store_up", None, "1: it took what it was given last", works);
        let one = |value| std::iter::once(("", "", value));
        self.counter("sonde_store_rows", "Rows that are on the disk", one(store.rows));
        self.counter("sonde_store_lost_rows", "Rows that were given up", one(store.lost_rows));
        let waiting = store.waiting_rows.to_string();
        self.one("sonde_store_waiting_rows", None, "Rows that wait for the disk", waiting);
    }

    fn exports(&mut self, exports: &[ExportMetrics]) {
        type Of = fn(&ExportMetrics) -> u64;
        let all: [(&str, &str, Of); 4] = [
            ("sonde_export_delivered_points", "Points that a receiver has taken", |e| e.delivered),
            ("sonde_export_refused_points", "Points that a receiver refused for good", |e| {
                e.refused
            }),
            ("sonde_export_dropped_points", "Points without room in the queue", |e| e.dropped),
            ("sonde_export_failures", "Tries that failed", |e| e.failures),
        ];
        for (name, help, of) in all {
            self.counter(name, help, exports.iter().map(|e| ("export", e.name.as_str(), of(e))));
        }
        self.family("sonde_export_waiting_bytes", "gauge", Some("bytes"), "What waits to be sent");
        for export in exports {
            let value = export.waiting_octets.to_string();
            self.sample("sonde_export_waiting_bytes", &[("export", &export.name)], &value);
        }
        self.family("sonde_export_up", "gauge", None, "1: the last try went well");
        for export in exports {
            let value = u8::from(!export.failing).to_string();
            self.sample("sonde_export_up", &[("export", &export.name)], &value);
        }
    }

    /// A counter whose series differ by one label; without a name there is none.
    fn counter<'a>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = (&'static str, &'a str, u64)>,
    ) {
        self.family(name, "counter", None, help);
        for (label, of, value) in series {
            let label = [(label, of)];
            let labels = if label[0].0.is_empty() { &label[..0] } else { &label[..] };
            self.sample(&format!("{name}_total"), labels, &value.to_string());
        }
    }

    fn one(&mut self, name: &str, unit: Option<&'static str>, help: &str, value: String) {
        self.family(name, "gauge", unit, help);
        self.sample(name, &[], &value);
    }
}
