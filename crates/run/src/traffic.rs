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
use self::pcap::{EarlyEnd, MOST_WAITING, PcapFile};
pub use self::settings::{Resolution, Settings, TruthForm};
use self::truth::{FinishedTruth, TruthFile};
use crate::error::{RunError, SettingsError, UnsavedFile};
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
    /// Of a file: the reader of its pipe left before the end. The counts are of what was written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
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
    let mut truth = TruthFile::create(settings.truth.as_deref(), context, settings.truth_form)?;
    let output = match (&settings.out, &settings.iface) {
        (Some(path), None) => {
            let longest = config.longest_frame();
            Output::File(PcapFile::create(path, context, settings.resolution, longest)?)
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
        let (mut made, mut failure) = match output {
            Output::File(file) => to_file(generator, file, &mut truth, &theirs, &asked),
            Output::Port(outlet) => live::run(outlet, generator, &mut truth, &theirs, &asked),
        };
        let FinishedTruth { flows, unread, unsaved } = truth.finish();
        made.flows = flows;
        if unread {
            tracing::warn!("the truth is incomplete: its reader left before its end");
        }
        if let Some(unsaved) = unsaved {
            let of_truth = format!("the truth is incomplete: {unsaved}");
            failure = Some(match failure {
                None => {
                    let file = unsaved.name.into();
                    RunError::Unsaved(UnsavedFile { file, message: of_truth, cause: None })
                }
                Some(RunError::Unsaved(other)) => {
                    let message = format!("{other}. {of_truth}");
                    RunError::Unsaved(UnsavedFile { message, ..other })
                }
                Some(other) => {
                    tracing::warn!("{of_truth}");
                    other
                }
            });
        }
        theirs.update(|s| s.clone_from(&made));
        sender.push(made);
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

/// All of it, as fast as it goes. Packets that the file did not take are not in the truth.
fn to_file(
    mut generator: FlowGenerator,
    mut file: PcapFile,
    truth: &mut TruthFile,
    status: &Latest<TrafficReport>,
    stop: &Stop,
) -> (TrafficReport, Option<RunError>) {
    let mut made = TrafficReport::default();
    let (mut first, mut failure) = (None, None);
    // What waits in the file, and the packet that it may refuse for its time.
    generator.keep_recent(MOST_WAITING + 1);
    while let Some(at) = generator.next_at()
        && let Some(slot) = file.slot()
    {
        let len = generator.emit(at, slot, &mut |flow| truth.add(flow));
        made.packets += 1;
        made.bytes += len as u64;
        if let Err(error) = file.commit(at, len) {
            failure = Some(error);
            break;
        }
        first.get_or_insert(at);
        if made.packets.is_multiple_of(LOOK_EVERY) {
            status.update(|s| (s.packets, s.bytes) = (made.packets, made.bytes));
            made.interrupted = stop.is_asked();
            if made.interrupted {
                break;
            }
        }
    }
    let (written, early) = file.finish();
    match early {
        None => {}
        Some(EarlyEnd::Unread) => made.unread = true,
        Some(EarlyEnd::Failed(error)) => failure = failure.or(Some(error)),
    }
    let (_, octets) = generator.take_back(made.packets - written.frames);
    made.packets = written.frames;
    made.bytes -= octets;
    generator.finish(&mut |flow| truth.add(flow));
    if let (Some(first), Some(last)) = (first, written.last_at) {
        made.seconds = (last - first) as f64 / 1e9;
    }
    (made, failure.map(RunError::Unsaved))
}

/// Packets between two looks at whether the end is asked for, and updates of the status.
const LOOK_EVERY: u64 = 1 << 16;
