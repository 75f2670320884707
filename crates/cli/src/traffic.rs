//! `sonde gen flows`: traffic with known flows, into a capture file or out of a port, and
//! the truth about it.

pub mod args;
mod live;
mod pcap;
mod truth;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use sonde_meter::traffic::{Config, Generator, Length, Net, Order, TruthKeys};
use sonde_results::units::{format_count, format_share};

use self::args::{FlowsArgs, GenArgs, GenCommand};
use self::pcap::PcapFile;
use self::truth::TruthFile;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// Makes what was asked for, until it is done or Ctrl-C.
pub fn run(args: &GenArgs) -> Result<Exit, Failure> {
    let GenCommand::Flows(args) = &args.command;
    match flows(args)? {
        Ok(made) => {
            report(&made, args.json)?;
            Ok(if made.interrupted && made.packets == 0 { Exit::Interrupted } else { Exit::Ok })
        }
        Err(error) => {
            errln!("sonde: {error:#}");
            Ok(Exit::NotSaved)
        }
    }
}

/// What was made.
#[derive(Debug, Default, serde::Serialize)]
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
    /// Ctrl-C came before the end.
    pub interrupted: bool,
}

/// Makes traffic and truth. The inner error: something could not be written.
pub fn flows(args: &FlowsArgs) -> Result<anyhow::Result<Made>, Failure> {
    let config = config(args).map_err(Failure::Usage)?;
    let signals = Signals::catch()?;
    let longest = config.longest_frame();
    // Before any file is touched: it finds what cannot be made.
    let generator = Generator::new(config).map_err(|e| Failure::Usage(e.into()))?;
    let mut truth = TruthFile::create(args.truth.as_deref(), args.truth_form)?;
    let result = match (&args.out, &args.iface) {
        (Some(path), None) => {
            let file = PcapFile::create(path, args.resolution, longest)?;
            to_file(generator, file, &mut truth, &signals)
        }
        (None, Some(iface)) => {
            live::run(iface, args.engine, longest, generator, &mut truth, &signals)?
        }
        _ => return Err(Failure::Usage(anyhow!("name one of --out and --iface"))),
    };
    let saved = truth.finish();
    Ok(result.and_then(|made| Ok(Made { flows: saved?, ..made })))
}

/// All of it, as fast as it goes.
fn to_file(
    mut generator: Generator,
    mut file: PcapFile,
    truth: &mut TruthFile,
    signals: &Signals,
) -> anyhow::Result<Made> {
    let mut made = Made::default();
    let mut span = None;
    while let Some(at) = generator.next_at() {
        let len = generator.emit(at, file.slot()?, &mut |flow| truth.add(flow));
        file.commit(at, len)?;
        made.packets += 1;
        made.bytes += len as u64;
        span = Some((span.map_or(at, |(first, _)| first), at));
        if made.packets.is_multiple_of(SIGNALS_EVERY) && signals.wait(Duration::ZERO) {
            made.interrupted = true;
            break;
        }
    }
    generator.finish(&mut |flow| truth.add(flow));
    file.finish()?;
    made.seconds = span.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
    Ok(made)
}

fn report(made: &Made, json: bool) -> anyhow::Result<()> {
    if json {
        outln!("{}", serde_json::to_string(made).context("the summary as JSON")?);
        return Ok(());
    }
    let rate = if made.seconds > 0.0 { made.packets as f64 / made.seconds } else { 0.0 };
    outln!(
        "{} packets of {} flows, {} bytes, in {:.3} s: {} packets/s",
        format_count(made.packets),
        format_count(made.flows),
        format_count(made.bytes),
        made.seconds,
        format_count(rate.round() as u64),
    );
    if let Some(drops) = made.own_drops {
        outln!(
            "own drops {} ({}); at most {:.3} ms behind the schedule",
            format_count(drops),
            format_share(drops, made.packets),
            made.behind_s.unwrap_or_default() * 1e3,
        );
        if drops > 0 {
            outln!("The truth has the dropped frames too: repeat at a lower --rate.");
        }
    }
    if made.interrupted {
        outln!("Interrupted: the traffic is shorter than it was asked for.");
    }
    Ok(())
}

/// From what was typed to what is needed.
fn config(args: &FlowsArgs) -> anyhow::Result<Config> {
    let defaults = Config::default();
    let endless = args.packets.is_none() && args.duration.is_none() && args.total_flows.is_none();
    let length = match args.new_flows {
        Some(new) => args.length.with_mean(args.rate as f64 / new as f64)?,
        None => args.length,
    };
    if args.private_addresses && args.iface.is_some() {
        return Err(anyhow!(
            "--private-addresses is for files: traffic on a link keeps to 198.18.0.0/15 and \
             2001:2::/48, which belong to nobody"
        ));
    }
    let length = if args.round_robin { Length::Constant(1) } else { length };
    Ok(Config {
        seed: args.seed,
        flows: args.flows,
        total_flows: args.total_flows,
        packets: if endless { Some(DEFAULT_PACKETS) } else { args.packets },
        duration_ns: args.duration,
        rate: args.rate,
        // Of a port: since the sending began.
        start_ns: if args.out.is_some() { FILE_START_NS } else { 0 },
        tick_ns: if args.out.is_some() { args.resolution.tick_ns() } else { 1 },
        arrival: if args.round_robin { args::CONSTANT } else { args.arrival },
        order: if args.round_robin { Order::RoundRobin } else { Order::Random },
        length,
        sizes: args.size.0.clone(),
        variety: args.variety,
        protocols: args.proto.0,
        ipv6: args.ipv6,
        encapsulation: args.encap.map_or(defaults.encapsulation, |shares| shares.0),
        keys: match args.keys {
            args::KeysArg::Outer => TruthKeys::Outer,
            args::KeysArg::Inner => TruthKeys::Inner,
        },
        reorder: args.reorder.map_or(defaults.reorder, |reorder| reorder.0),
        fragments: args.fragments,
        apps: args.apps,
        net: if args.private_addresses { Net::Private } else { Net::Benchmark },
    })
}

/// Without any end given.
const DEFAULT_PACKETS: u64 = 1_000_000;
/// Files begin here (2023-11-14 22:13:20 UTC): the same seed gives the same bytes.
const FILE_START_NS: i64 = 1_700_000_000_000_000_000;
/// Packets between two looks at the signals.
const SIGNALS_EVERY: u64 = 1 << 16;
