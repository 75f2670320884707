//! One engine under one load, by the code that `sonde probe` runs, with every packet's
//! four time stamps looked at.

use std::time::Duration;

use anyhow::Result;
use sonde_cli::args::EngineArgs;
use sonde_cli::exit::Failure;
use sonde_cli::session::{Event, Options, Session};
use sonde_cli::settings::{RunSettings, StreamOptions};
use sonde_cli::targets::Target;
use sonde_meter::stamp::Fate;
use sonde_port::{Engine, XdpMode};
use sonde_results::Interval;

use crate::load::{CLASSES, DESTINATIONS, Load, Look, Outcome, SIZE, peak_memory};
use crate::near::Near;

/// Runs the load from this namespace on processor `cpu`.
pub fn measure(engine: Engine, load: Load, cpu: usize, look: Look) -> Result<Outcome> {
    let args = EngineArgs {
        engine,
        iface: None,
        xdp_mode: XdpMode::Auto,
        queues: Vec::new(),
        busy_poll: None,
        cpu: Some(cpu),
    };
    let stream = StreamOptions {
        interval: Some(load.stream_interval()),
        size: Some(SIZE),
        dscp: Some(CLASSES.to_vec()),
        ..StreamOptions::default()
    }
    .resolve();
    let targets: Vec<_> = (1..=DESTINATIONS as u32)
        .map(|host| {
            let address = std::net::Ipv4Addr::from(0x0a02_0000 + host).into();
            Target {
                name: format!("{address}"),
                address,
                others: Vec::new(),
                interface: None,
                looked_up: None,
                settings: stream.clone(),
            }
        })
        .collect();
    let run = RunSettings {
        duration: Some(load.seconds as i64 * 1_000_000_000),
        timeout: 1_000_000_000,
        record_interval: 10_000_000_000,
        late_limit: 1_000_000,
        seed: 1,
    };
    let mut near = (look == Look::NearEnd).then(|| Near::attach(load)).transpose()?;
    let options = Options { samples: look != Look::Records, ..Options::default() };
    let mut session = Session::open(targets, &run, &args, options)
        .map_err(|(Failure::Usage(error) | Failure::CannotRun(error))| error)?;
    let mut out = Outcome { name: engine.name().into(), ..Outcome::default() };
    out.mode = session.caps[0].mode.clone();
    let streams: Vec<_> =
        session.infos.iter().map(|i| (i.destination.ip(), i.source.port())).collect();
    let mut total = Interval::empty(0);
    let mut sink = |event: Event<'_>| match event {
        Event::Record(record) => total.counters.merge(&record.counters),
        Event::Sample(sample) => {
            if let Fate::Reply { t2, t3, t4, duplicate: false, .. } = sample.fate {
                out.t1.add(t2 - sample.t1.at);
                out.t4.add(t4.at - t3);
                out.rtt.add(t4.at - sample.t1.at);
                out.rtt_net.add((t4.at - sample.t1.at) - (t3 - t2));
                if let Some(near) = &mut near {
                    let (far, port) = streams[sample.stream as usize];
                    near.add(far, port, sample.seq, sample.t1.at, t4.at);
                }
            }
        }
        Event::Notice(text) => eprintln!("{text}"),
        Event::Undelivered(error) => eprintln!("not delivered: {error:?}"),
    };
    while !session.is_finished() {
        session.poll(&mut sink);
        std::thread::sleep(Duration::from_millis(2));
    }
    let ended = session.close(&mut sink);
    out.seconds = load.seconds as f64;
    if let Some(failure) = ended.failure {
        return Err(failure);
    }
    let health = ended.health;
    let count = |name: &str| health.counters.get(name).copied().unwrap_or(0);
    out.sent = total.counters.sent;
    out.received = total.counters.received;
    out.skipped = total.counters.skipped;
    out.own_drops = count("port_rx_dropped") + count("port_rx_invalid") + count("port_tx_dropped");
    out.lateness = health.send_lateness;
    out.pauses = health.pauses;
    out.peak_memory = peak_memory();
    if let Some(near) = near {
        out.near = near.finish()?;
    }
    Ok(out)
}
