//! One engine under one load, by the code that `sonde probe` runs, with every packet's
//! four time stamps looked at.

use std::time::Duration;

use anyhow::Result;
use sonde_results::Interval;
use sonde_run::engine::{Engine, EngineSettings};
use sonde_run::probe::settings::TargetEntry;
use sonde_run::probe::settings::{RunOptions, StreamOptions};
use sonde_run::probe::{self, Event, Fate, Settings};
use sonde_run::running::{Context, Next};

use crate::load::{CLASSES, DESTINATIONS, EngineResult, Load, Look, SIZE, peak_memory};
use crate::near::Near;

/// Runs the load from this namespace on processor `cpu`.
pub fn measure(engine: Engine, load: Load, cpu: usize, look: Look) -> Result<EngineResult> {
    let address = |host: u32| std::net::Ipv4Addr::from(0x0a02_0000 + host);
    let settings = Settings {
        targets: vec![TargetEntry::of(format!("{}-{}", address(1), address(DESTINATIONS as u32)))],
        stream: StreamOptions {
            interval: Some(load.stream_interval()),
            size: Some(SIZE),
            dscp: Some(CLASSES.to_vec()),
            ..StreamOptions::default()
        },
        run: RunOptions {
            duration: Some(load.seconds as i64 * 1_000_000_000),
            timeout: Some(1_000_000_000),
            late_limit: Some(1_000_000),
            record_interval: (look == Look::Seconds).then_some(1_000_000_000),
            ..RunOptions::default()
        },
        engine: EngineSettings { engine, cpu: Some(cpu), ..EngineSettings::default() },
        samples: matches!(look, Look::Packets | Look::NearEnd),
        ..Settings::default()
    };
    let mut near = (look == Look::NearEnd).then(|| Near::attach(load)).transpose()?;
    let (about, running) = probe::start(settings, &Context::default())?;
    let mut out = EngineResult { name: engine.name().into(), ..EngineResult::default() };
    out.mode.clone_from(&about.engine);
    let streams: Vec<_> =
        about.streams.iter().map(|i| (i.destination.ip(), i.source.port())).collect();
    let mut total = Interval::empty(0);
    loop {
        match running.records.next(Duration::from_secs(1)) {
            Next::Record(Event::Record(record)) => total.counters.merge(&record.counters),
            Next::Record(Event::Sample(sample)) => {
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
            Next::Record(Event::Undelivered(error)) => eprintln!("not delivered: {error:?}"),
            Next::Record(Event::Added(_) | Event::Ended(_) | Event::LeftOut(_)) | Next::Nothing => {
            }
            Next::End => break,
        }
    }
    anyhow::ensure!(running.records.lost() == 0, "the samples were not read fast enough");
    let ended = running.join();
    out.seconds = load.seconds as f64;
    if let Some(failure) = ended.failure {
        return Err(failure.into());
    }
    let health = ended.health;
    let count = |name: &str| ended.counters.get(name).copied().unwrap_or(0);
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
