//! The threads of exporters: one turns what comes of the hub into payloads, and each exporter has
//! one that sends. Whoever is slow or away fills its own queue, and slows nobody.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_api::openmetrics::MetricsSnapshot;
use sonde_run::error::{RunError, SettingsError};
use sonde_run::probe::Event;
use sonde_run::running::{Next, RecordReceiver, Stop};
use sonde_run::thread;
use sonde_sys::clock::{steady_now, steady_scale, unix_now_ns};
use sonde_wire::time::Time;

use super::backlog::{Backlog, Payload};
use super::influx::{self, InfluxLines};
use super::otlp::{self, OtlpHistograms, OtlpTimes};
use super::remote_write;
use super::settings::{ExportKind, ExportSettings, ExportWay, OpenedExport};
use super::status::ExporterStatus;
use crate::alert::delivery::http::{HttpClient, SentPost};
use crate::alert::secret::Redactor;
use crate::alert::sink::address::ServerAddress;
use crate::alert::sink::{Delivery, by_usual_rules};
use crate::backoff::Backoff;
use crate::hub::{Report, Said};
use crate::live::LiveState;

/// Settings of all exporters, by name.
pub type ExportTable = BTreeMap<String, ExportSettings>;

/// The exporters of a station.
#[derive(Clone, Default)]
pub(crate) struct Exports(Arc<Mutex<BTreeMap<String, Exporter>>>);

/// Exporters that can begin: nothing that can fail is left.
pub(crate) struct PreparedExports {
    /// Those that stay are not in it.
    begin: Vec<(String, Exporter)>,
    all: ExportTable,
}

/// Turns what comes of the hub into payloads, until it is asked to end.
pub(crate) struct ExportThread {
    pub exports: Exports,
    pub reports: RecordReceiver<Arc<Report>>,
    pub station: String,
    /// What the station has counted, as `/metrics` has it. Called while no exporter is locked.
    pub counted: Arc<dyn Fn() -> MetricsSnapshot + Send + Sync>,
    /// Since when, ns since 1970 UTC.
    pub since_ns: i64,
    pub stop: Stop,
}

struct Exporter {
    settings: ExportSettings,
    format: ExportFormat,
    /// When it is sent next; `None`: it has just begun.
    due: Option<Time>,
    sender: ExportSender,
}

enum ExportFormat {
    Influx(InfluxLines),
    RemoteWrite,
    Otlp(OtlpHistograms),
}

impl Exports {
    /// Opens what is new or changed in `all`.
    ///
    /// # Errors
    /// A secret or a file of authorities that cannot be read; no thread to be had.
    pub fn prepare(&self, all: &ExportTable) -> Result<PreparedExports, RunError> {
        let running = self.lock();
        let mut begin = Vec::new();
        for (name, settings) in all {
            if running.get(name).is_some_and(|exporter| exporter.settings == *settings) {
                continue;
            }
            let table = format!("export.{name}");
            let opened = settings.open().map_err(|error| error.inside(&table))?;
            begin.push((name.clone(), Exporter::start(name, settings, opened)?));
        }
        Ok(PreparedExports { begin, all: all.clone() })
    }

    /// Goes over to what was prepared. What was not changed runs on.
    pub fn apply(&self, prepared: PreparedExports) {
        let PreparedExports { begin, all } = prepared;
        let mut running = self.lock();
        // Who goes sends what waits, and is waited for by nobody.
        running.retain(|name, exporter| all.get(name) == Some(&exporter.settings));
        running.extend(begin);
    }

    /// How they do, by name.
    pub fn status(&self) -> Vec<ExporterStatus> {
        self.lock().values().map(|exporter| exporter.sender.status()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Exporter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExportThread {
    /// Runs it until it is asked to end.
    pub fn start(self) -> Result<JoinHandle<()>, RunError> {
        thread::spawn("sonde-exports", move || self.run())
    }

    fn run(self) {
        let mut state = LiveState::new(&self.station);
        loop {
            let ends = self.stop.is_asked();
            self.collect(&mut state, ends);
            self.render(ends);
            if ends {
                break;
            }
        }
        let senders = std::mem::take(&mut *self.exports.lock());
        senders.values().for_each(|exporter| exporter.sender.close());
        let end = steady_now() + END_WITHIN.as_nanos() as i64;
        senders.into_values().for_each(|exporter| exporter.sender.join(end));
    }

    /// Takes what has come, or waits for it for a moment.
    fn collect(&self, state: &mut LiveState, ends: bool) {
        let mut next = match ends {
            true => self.reports.next_now(),
            false => match self.reports.next(PATIENCE) {
                Next::Record(report) => Some(report),
                Next::Nothing | Next::End => None,
            },
        };
        let mut exporters = self.exports.lock();
        let mut taken = 0;
        while let Some(report) = next {
            take(&report, state, &mut exporters);
            taken += 1;
            next = (taken < TAKEN || ends).then(|| self.reports.next_now()).flatten();
        }
    }

    /// Gives each exporter what is due.
    fn render(&self, ends: bool) {
        let (now, now_ns) = (steady_now(), unix_now_ns());
        let counted = self
            .exports
            .lock()
            .values()
            .any(|exporter| ends || exporter.due.is_some_and(|due| now >= due));
        // It asks how exporters do, so it is not asked while they are locked.
        let snapshot = counted.then(|| (self.counted)());
        for exporter in self.exports.lock().values_mut() {
            let due = exporter.due.get_or_insert(now + exporter.settings.every);
            let is_due = now >= *due || ends;
            let payloads = match (&mut exporter.format, &snapshot) {
                (ExportFormat::Influx(lines), snapshot) => {
                    if let Some(snapshot) = snapshot.as_ref().filter(|_| is_due) {
                        lines.add_flows(snapshot, now_ns);
                    }
                    lines.take(is_due)
                }
                (ExportFormat::Otlp(histograms), Some(snapshot)) if is_due => {
                    let times = OtlpTimes { start_ns: self.since_ns, now_ns };
                    otlp::payloads(snapshot, *histograms, times)
                }
                (ExportFormat::RemoteWrite, Some(snapshot)) if is_due => {
                    remote_write::payloads(snapshot, now_ns)
                }
                _ => continue,
            };
            if is_due {
                // From now on, not from when it was due: what was missed is not made up for.
                *due = now + exporter.settings.every;
            }
            exporter.sender.give(payloads);
        }
    }
}

/// Writes the lines of a report. Counters are those of the live view.
fn take(report: &Arc<Report>, state: &mut LiveState, all: &mut BTreeMap<String, Exporter>) {
    let offset = steady_scale().utc_offset;
    let is_measured = matches!(
        report.said,
        Said::ProbeEvent(Event::Record(_)) | Said::RttEvents(_) | Said::Flows(_)
    );
    // Streams are always followed: an exporter that comes with a reload needs their names.
    if !is_measured {
        state.take(report, (offset, unix_now_ns()));
    }
    if let Said::RttEvents(events) = &report.said {
        state.traffic.note_points(report);
        for exporter in all.values_mut() {
            if let ExportFormat::Influx(lines) = &mut exporter.format {
                lines.add_round_trips((state, &report.unit), events, offset);
            }
        }
    }
    let Said::ProbeEvent(Event::Record(interval)) = &report.said else { return };
    let Some(labels) = state.stream_labels(&report.unit, interval.stream) else { return };
    for exporter in all.values_mut() {
        if let ExportFormat::Influx(lines) = &mut exporter.format {
            lines.add(labels, interval, offset);
        }
    }
}

impl Exporter {
    fn start(
        name: &str,
        settings: &ExportSettings,
        opened: OpenedExport,
    ) -> Result<Exporter, RunError> {
        let format = match settings.kind {
            ExportKind::Influx => ExportFormat::Influx(InfluxLines::default()),
            ExportKind::RemoteWrite => ExportFormat::RemoteWrite,
            ExportKind::Otlp => ExportFormat::Otlp(settings.histograms.unwrap_or_default()),
        };
        let sender = ExportSender::start(name, settings, opened)?;
        Ok(Exporter { settings: settings.clone(), format, due: None, sender })
    }
}

/// An exporter's thread that sends, from outside. Dropped, it is closed.
struct ExportSender {
    shared: Arc<SharedQueue>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ExportSender {
    fn drop(&mut self) {
        self.close();
    }
}

struct SharedQueue {
    queue: Mutex<ExportQueue>,
    changed: Condvar,
}

struct ExportQueue {
    backlog: Backlog,
    status: ExporterStatus,
    closed: bool,
}

impl ExportSender {
    fn start(
        name: &str,
        settings: &ExportSettings,
        opened: OpenedExport,
    ) -> Result<ExportSender, RunError> {
        let OpenedExport { to, redactor } = opened;
        let way = OpenedWay::new(to, settings.kind).map_err(|error| {
            let key = format!("export.{name}.ca");
            SettingsError::new(&key, format!("{error:#}"))
        })?;
        let queue = ExportQueue {
            backlog: Backlog::new(settings.queue_megabytes * 1_000_000),
            status: ExporterStatus::new(name, settings.kind),
            closed: false,
        };
        let shared = Arc::new(SharedQueue { queue: Mutex::new(queue), changed: Condvar::new() });
        let (ends, ended) = channel::<()>();
        let work = Sending {
            name: name.to_owned(),
            way,
            redactor,
            shared: shared.clone(),
            backoff: Backoff::default(),
            random: fastrand::Rng::with_seed(unix_now_ns().cast_unsigned()),
        };
        let run = move || {
            // Goes with the thread, also after a panic.
            let _ends = ends;
            work.run();
        };
        let thread = thread::spawn(format!("sonde-to-{name}"), run)?;
        Ok(ExportSender { shared, ended, thread: Some(thread) })
    }

    fn give(&self, payloads: Vec<Payload>) {
        if payloads.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        payloads.into_iter().for_each(|payload| queue.backlog.push(payload));
        self.shared.changed.notify_all();
    }

    /// Has it end once it has sent what waits, or failed once.
    fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }

    fn status(&self) -> ExporterStatus {
        let queue = self.shared.lock();
        ExporterStatus {
            waiting: queue.backlog.len(),
            waiting_octets: queue.backlog.octets(),
            dropped: queue.backlog.dropped_points(),
            ..queue.status.clone()
        }
    }

    /// Waits until it has ended, but not longer than until `end`.
    fn join(mut self, end: Time) {
        let left = Duration::from_nanos((end - steady_now()).max(0).unsigned_abs());
        if self.ended.recv_timeout(left) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected) {
            self.thread.take().map(sonde_run::thread::join_logged);
        }
        let status = {
            let queue = self.shared.lock();
            (queue.status.name.clone(), queue.backlog.len())
        };
        if let (name, waiting @ 1..) = status {
            tracing::warn!("export.{name}: {waiting} requests were not sent before the end");
        }
    }
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, ExportQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that sends.
struct Sending {
    name: String,
    way: OpenedWay,
    redactor: Redactor,
    shared: Arc<SharedQueue>,
    backoff: Backoff,
    random: fastrand::Rng,
}

impl Sending {
    fn run(mut self) {
        while let Some((number, payload)) = self.next() {
            match self.way.send(&payload.body) {
                Sent::Taken(None) | Sent::Not(Delivery::Done) => self.sent(number, payload.points),
                Sent::Taken(Some((rejected, why))) => {
                    let rejected = rejected.min(payload.points);
                    self.sent(number, payload.points - rejected);
                    self.refused(number, rejected, &why);
                }
                Sent::Not(Delivery::GiveUp(why)) => self.refused(number, payload.points, &why),
                Sent::Not(Delivery::Retry { after, why }) => {
                    if self.failed(after, &why) {
                        return;
                    }
                }
            }
        }
    }

    /// The oldest that waits; `None`: there is none, and none comes.
    fn next(&self) -> Option<(u64, Payload)> {
        let queue = self.shared.lock();
        let empty = |queue: &mut ExportQueue| queue.backlog.len() == 0 && !queue.closed;
        let waited = self.shared.changed.wait_while(queue, empty);
        waited.unwrap_or_else(PoisonError::into_inner).backlog.front()
    }

    fn sent(&mut self, number: u64, points: u64) {
        let mut queue = self.shared.lock();
        queue.backlog.done(number);
        let status = &mut queue.status;
        status.delivered += points;
        status.delivered_ns = Some(unix_now_ns());
        let failed = status.failing_since_ns.take().is_some();
        drop(queue);
        if failed {
            tracing::warn!("export.{} is taken again", self.name);
        }
        self.backoff.reset();
    }

    fn refused(&mut self, number: u64, points: u64, why: &str) {
        let why = self.redactor.redact(why);
        let mut queue = self.shared.lock();
        queue.backlog.done(number);
        let first = queue.status.refused == 0;
        queue.status.refused += points;
        queue.status.last_error = Some(why.clone());
        drop(queue);
        if first {
            tracing::warn!("export.{}: the receiver refuses for good: {why}", self.name);
        }
    }

    /// Waits for the next try; whether there is none.
    fn failed(&mut self, after: Option<Duration>, why: &str) -> bool {
        let why = self.redactor.redact(why);
        let own = self.backoff.next(&mut self.random);
        let pause = after.map_or(own, |after| after.clamp(own, MOST_PAUSE));
        let mut queue = self.shared.lock();
        let status = &mut queue.status;
        status.failures += 1;
        if status.failing_since_ns.is_none() {
            tracing::warn!("export.{} is not taken: {why}; it is tried again", self.name);
            status.failing_since_ns = Some(unix_now_ns());
        }
        status.last_error = Some(why);
        if queue.closed {
            return true;
        }
        // At the end there is one more try.
        let waited = self.shared.changed.wait_timeout_while(queue, pause, |queue| !queue.closed);
        drop(waited);
        false
    }
}

/// What became of a payload.
enum Sent {
    /// The receiver has it, but for so many points of it and the reason.
    Taken(Option<(u64, String)>),
    /// It has none of it.
    Not(Delivery),
}

/// How payloads go, ready to use.
enum OpenedWay {
    Http {
        client: HttpClient,
        url: String,
        content_type: &'static str,
        headers: Vec<(&'static str, String)>,
        of_otlp: bool,
    },
    Udp {
        to: ServerAddress,
        socket: Option<UdpSocket>,
    },
}

impl OpenedWay {
    fn new(way: ExportWay, kind: ExportKind) -> anyhow::Result<OpenedWay> {
        let (url, authorization, ca) = match way {
            ExportWay::Udp(to) => return Ok(OpenedWay::Udp { to, socket: None }),
            ExportWay::Http { url, authorization, ca } => (url, authorization, ca),
        };
        let (content_type, own): (_, &[(&str, &str)]) = match kind {
            ExportKind::Otlp => (otlp::CONTENT_TYPE, &[]),
            ExportKind::Influx => ("text/plain; charset=utf-8", &[]),
            ExportKind::RemoteWrite => (remote_write::CONTENT_TYPE, &remote_write::HEADERS),
        };
        let mut headers: Vec<(&str, String)> =
            own.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        headers.extend(authorization.map(|text| ("Authorization", text.expose().to_owned())));
        let client = HttpClient::new(ca.as_deref())?;
        let of_otlp = kind == ExportKind::Otlp;
        Ok(OpenedWay::Http { client, url, content_type, headers, of_otlp })
    }

    fn send(&mut self, body: &[u8]) -> Sent {
        let retry = |why: String| Sent::Not(Delivery::Retry { after: None, why });
        match self {
            OpenedWay::Http { client, url, content_type, headers, of_otlp } => {
                let post = SentPost { url, content_type, headers, body };
                match client.send(&post) {
                    Ok(answer) => {
                        let rejected = of_otlp.then(|| otlp::rejected(&answer.begin)).flatten();
                        match by_usual_rules(&answer.into()) {
                            Delivery::Done => Sent::Taken(rejected),
                            other => Sent::Not(other),
                        }
                    }
                    Err(why) => retry(why),
                }
            }
            OpenedWay::Udp { to, socket } => match send_datagrams(to, socket, body) {
                Ok(()) => Sent::Taken(None),
                Err(error) => {
                    // The name is looked up again.
                    *socket = None;
                    retry(format!("{}:{}: {error}", to.host, to.port))
                }
            },
        }
    }
}

fn send_datagrams(
    to: &ServerAddress,
    open: &mut Option<UdpSocket>,
    body: &[u8],
) -> std::io::Result<()> {
    let socket = match open {
        Some(socket) => socket,
        None => {
            let any = |v6: bool| if v6 { "[::]:0" } else { "0.0.0.0:0" };
            let addresses = std::net::ToSocketAddrs::to_socket_addrs(&(&*to.host, to.port))?;
            let address = addresses.into_iter().next().ok_or(std::io::ErrorKind::NotFound)?;
            let socket = UdpSocket::bind(any(address.is_ipv6()))?;
            socket.connect(address)?;
            open.insert(socket)
        }
    };
    influx::datagrams(body).into_iter().try_for_each(|datagram| socket.send(datagram).map(drop))
}

/// Reports between the hub and this.
pub(crate) const REPORTS: usize = 1 << 16;
/// Reports that are taken before it is looked what is due.
const TAKEN: usize = 1_000;
/// For a report, before it is looked what is due.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest pause that a receiver can ask for.
const MOST_PAUSE: Duration = Duration::from_secs(600);
/// For all senders to end.
const END_WITHIN: Duration = Duration::from_secs(3);
