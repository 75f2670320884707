//! Traffic with known flows, into a capture file or out of a port, and the truth about it.

mod live;
mod pcap;
mod settings;
mod truth;

use anyhow::anyhow;
use serde::Serialize;
use sonde_meter::traffic::Generator;
pub use sonde_meter::traffic::{Arrival, Length, MAX_FLOWS, Protocols, Reorder, Shares, Sizes};

use self::pcap::PcapFile;
pub use self::settings::{Resolution, Settings, TruthForm};
use self::truth::TruthFile;
use crate::error::RunError;
use crate::running::{Context, Stop};

/// What was made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Made {
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
    /// Of a port: the longest delay of a packet behind its time, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_s: Option<f64>,
    /// The end was asked for before it was reached.
    pub interrupted: bool,
}

/// Makes traffic and truth, in the thread that calls it, until it is done or the end of `context`
/// is asked for.
///
/// # Errors
/// Settings that cannot be; a file or a port that cannot be opened; what could not be written.
pub fn make(settings: &Settings, context: &Context) -> Result<Made, RunError> {
    settings.check().map_err(|why| RunError::Settings(anyhow!(why)))?;
    let config = settings.config();
    let longest = config.longest_frame();
    let generator = Generator::new(config).map_err(|e| RunError::Settings(e.into()))?;
    let mut truth = TruthFile::create(settings.truth.as_deref(), settings.truth_form)?;
    let stop = &context.stop;
    let result = match (&settings.out, &settings.iface) {
        (Some(path), None) => {
            let file = PcapFile::create(path, settings.resolution, longest)?;
            to_file(generator, file, &mut truth, stop)
        }
        (None, Some(iface)) => {
            live::run(iface, settings.engine, longest, generator, &mut truth, stop)?
        }
        // Checked above.
        _ => return Err(RunError::Settings(anyhow!("out: name a file or an interface"))),
    };
    let saved = truth.finish();
    result.and_then(|made| Ok(Made { flows: saved?, ..made })).map_err(RunError::Unsaved)
}

/// All of it, as fast as it goes.
fn to_file(
    mut generator: Generator,
    mut file: PcapFile,
    truth: &mut TruthFile,
    stop: &Stop,
) -> anyhow::Result<Made> {
    let mut made = Made::default();
    let mut span = None;
    while let Some(at) = generator.next_at() {
        let len = generator.emit(at, file.slot()?, &mut |flow| truth.add(flow));
        file.commit(at, len)?;
        made.packets += 1;
        made.bytes += len as u64;
        span = Some((span.map_or(at, |(first, _)| first), at));
        if made.packets.is_multiple_of(LOOK_EVERY) && stop.is_asked() {
            made.interrupted = true;
            break;
        }
    }
    generator.finish(&mut |flow| truth.add(flow));
    file.finish()?;
    made.seconds = span.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
    Ok(made)
}

/// Packets between two looks at whether the end is asked for.
const LOOK_EVERY: u64 = 1 << 16;
