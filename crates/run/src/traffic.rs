//! Traffic with known flows, into a capture file or out of a port, and the truth about it.

mod live;
mod pcap;
mod settings;
mod truth;

use std::collections::BTreeMap;

use serde::Serialize;
use sonde_meter::traffic::FlowGenerator;
pub use sonde_meter::traffic::{
    ArrivalProcess, Length, MAX_FLOWS, ProtocolWeights, Reorder, Shares, Sizes,
};

use self::live::Outlet;
use self::pcap::PcapFile;
pub use self::settings::{Resolution, Settings, TruthForm};
use self::truth::TruthFile;
use crate::error::{RunError, SettingsError};
use crate::running::{Context, Ended, Latest, Running, Stop, records};

/// Traffic being made. Its one record is what was made, whole, also where the port failed before its
/// time; its state is the same so far.
pub type Making = Running<TrafficReport, TrafficReport, ()>;

/// Counts of what was made, and where it was written.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrafficReport {
    /// Frames, fragments one by one.
    pub packets: u64,
    /// Frames' bytes, as captured.
    pub bytes: u64,
    /// As the truth counts them: begun and seen.
    pub flows: u64,
    /// From the first packet to the last, s.
    pub seconds: f64,
    /// Of a port: frames that the kernel or card did not take. The truth has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_drops: Option<u64>,
    /// Those of them that were longer than the interface takes.
    #[serde(skip_serializing_if = "is_none")]
    pub too_long: u64,
    /// Those of them that this host's packet filter refused.
    #[serde(skip_serializing_if = "is_none")]
    pub filtered: u64,
    /// Of a port: the longest delay of a packet behind its time, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_s: Option<f64>,
    /// The end was asked for before it was reached.
    pub interrupted: bool,
}

/// Opens the file or the port, and begins to make traffic and truth.
///
/// # Errors
/// Settings that cannot be; a file or a port that cannot be opened.
pub fn start(settings: Settings, context: &Context) -> Result<Making, RunError> {
    settings.check()?;
    let config = settings.config();
    let generator =
        FlowGenerator::new(config.clone()).map_err(|e| RunError::settings(e.to_string()))?;
    let mut truth =
        TruthFile::create(settings.truth.as_deref(), context.stdout, settings.truth_form)?;
    let output = match (&settings.out, &settings.iface) {
        (Some(path), None) => {
            let longest = config.longest_frame();
            Output::File(PcapFile::create(path, context.stdout, settings.resolution, longest)?)
        }
        (None, Some(iface)) => Output::Port(live::open(iface, settings.engine, &config)?),
        // Checked above.
        _ => return Err(SettingsError::new("out", "name a file or an interface").into()),
    };
    let (sender, receiver) = records(1);
    let status = Latest::new(TrafficReport::default());
    let (stop, theirs) = (context.stop.clone(), status.clone());
    let asked = stop.clone();
    let work = move || {
        let (made, failure) = match output {
            Output::File(file) => {
                match to_file(generator, file, &mut truth, &theirs, &asked) {
                    Ok(made) => (Some(made), None),
                    // How much of the file can be read is not known.
                    Err(error) => (None, Some(RunError::Unsaved(error))),
                }
            }
            Output::Port(outlet) => {
                let (made, failure) = live::run(outlet, generator, &mut truth, &theirs, &asked);
                (Some(made), failure)
            }
        };
        let (made, failure) = match (truth.finish(), made) {
            (Ok(flows), Some(made)) => (Some(TrafficReport { flows, ..made }), failure),
            (Ok(_), None) => (None, failure),
            (Err(error), _) => (None, failure.or(Some(RunError::Unsaved(error)))),
        };
        theirs.update(|s| made.iter().for_each(|made| s.clone_from(made)));
        made.into_iter().for_each(|made| sender.push(made));
        Ended { counters: counters(&theirs.get()), failure, ..Ended::default() }
    };
    Running::start("sonde-traffic", (receiver, status, ()), stop, work)
}

enum Output {
    File(PcapFile),
    Port(Outlet),
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn counters(made: &TrafficReport) -> BTreeMap<String, u64> {
    let TrafficReport { packets, bytes, flows, own_drops, .. } = *made;
    let own_drops = own_drops.unwrap_or(0);
    [("packets", packets), ("bytes", bytes), ("flows", flows), ("own_drops", own_drops)]
        .map(|(name, n)| (name.to_owned(), n))
        .into()
}

/// All of it, as fast as it goes.
fn to_file(
    mut generator: FlowGenerator,
    mut file: PcapFile,
    truth: &mut TruthFile,
    status: &Latest<TrafficReport>,
    stop: &Stop,
) -> anyhow::Result<TrafficReport> {
    let mut made = TrafficReport::default();
    let mut span = None;
    while let Some(at) = generator.next_at() {
        let len = generator.emit(at, file.slot()?, &mut |flow| truth.add(flow));
        file.commit(at, len)?;
        made.packets += 1;
        made.bytes += len as u64;
        span = Some((span.map_or(at, |(first, _)| first), at));
        if made.packets.is_multiple_of(LOOK_EVERY) {
            status.update(|s| (s.packets, s.bytes) = (made.packets, made.bytes));
            made.interrupted = stop.is_asked();
            if made.interrupted || file.is_unread() {
                break;
            }
        }
    }
    generator.finish(&mut |flow| truth.add(flow));
    file.finish()?;
    made.seconds = span.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
    Ok(made)
}

/// Packets between two looks at whether the end is asked for, and updates of the status.
const LOOK_EVERY: u64 = 1 << 16;
