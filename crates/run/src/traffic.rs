//! Traffic with known flows, into a capture file or out of a port, and the truth about it.

mod live;
mod pcap;
mod settings;
mod truth;

use anyhow::anyhow;
use serde::Serialize;
pub use sonde_meter::traffic::{Arrival, Length, MAX_FLOWS, Protocols, Reorder, Shares, Sizes};
use sonde_meter::traffic::{Config, Generator, Net, Order, TruthKeys};

use self::pcap::PcapFile;
pub use self::settings::{Resolution, Settings, TruthForm};
use self::truth::TruthFile;
use crate::error::RunError;
use crate::flow::settings::FlowKeys;
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
    let config = config(settings).map_err(RunError::Settings)?;
    let longest = config.longest_frame();
    // Before any file is touched: it finds what cannot be made.
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
        _ => return Err(RunError::Settings(anyhow!("name one of --out and --iface"))),
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

/// The same for the generator.
fn config(settings: &Settings) -> anyhow::Result<Config> {
    let defaults = Config::default();
    let endless =
        settings.packets.is_none() && settings.duration.is_none() && settings.total_flows.is_none();
    let length = match settings.new_flows {
        Some(new) => settings.length.with_mean(settings.rate as f64 / new as f64)?,
        None => settings.length,
    };
    if settings.private_addresses && settings.iface.is_some() {
        return Err(anyhow!(
            "--private-addresses is for files: traffic on a link keeps to 198.18.0.0/15 and \
             2001:2::/48, which belong to nobody"
        ));
    }
    let length = if settings.round_robin { Length::Constant(1) } else { length };
    Ok(Config {
        seed: settings.seed,
        flows: settings.flows,
        total_flows: settings.total_flows,
        packets: if endless { Some(DEFAULT_PACKETS) } else { settings.packets },
        duration_ns: settings.duration,
        rate: settings.rate,
        // Of a port: since the sending began.
        start_ns: if settings.out.is_some() { FILE_START_NS } else { 0 },
        tick_ns: if settings.out.is_some() { settings.resolution.tick_ns() } else { 1 },
        arrival: if settings.round_robin { Arrival::Constant } else { settings.arrival },
        order: if settings.round_robin { Order::RoundRobin } else { Order::Random },
        length,
        sizes: settings.sizes.clone(),
        variety: settings.variety,
        protocols: settings.protocols,
        ipv6: settings.ipv6,
        encapsulation: settings.encapsulation.unwrap_or(defaults.encapsulation),
        keys: match settings.keys {
            FlowKeys::Outer => TruthKeys::Outer,
            FlowKeys::Inner => TruthKeys::Inner,
        },
        reorder: settings.reorder.unwrap_or(defaults.reorder),
        fragments: settings.fragments,
        apps: settings.apps,
        net: if settings.private_addresses { Net::Private } else { Net::Benchmark },
    })
}

/// Without any end given.
const DEFAULT_PACKETS: u64 = 1_000_000;
/// Files begin here (2023-11-14 22:13:20 UTC): the same seed gives the same bytes.
const FILE_START_NS: i64 = 1_700_000_000_000_000_000;
/// Packets between two looks at whether the end is asked for.
const LOOK_EVERY: u64 = 1 << 16;
