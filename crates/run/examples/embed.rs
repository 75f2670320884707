//! A reflector and a probe in one program, on loopback, without root. docs/embedding.md shows it.

use std::error::Error;
use std::time::Duration;

use sonde_run::error::RunError;
use sonde_run::probe::{self, Collected, Event, Probe, TargetEntry};
use sonde_run::reflect;
use sonde_run::running::{Context, Next};
use sonde_run::toml_file::TomlText;

fn main() -> Result<(), Box<dyn Error>> {
    measure(18_621)
}

/// Measures both addresses, by a reflector on this UDP port.
pub fn measure(port: u16) -> Result<(), Box<dyn Error>> {
    // Settings as a Rust value.
    let settings = reflect::Settings {
        port: vec![port],
        bind: vec!["127.0.0.1".parse()?, "127.0.0.2".parse()?],
        ..reflect::Settings::default()
    };
    let (about, reflector) = reflect::start(settings, &Context::default())?;
    println!("reflecting on {about}");

    // Settings as TOML; `TomlText::read` takes them from a file.
    let text = format!("stream.port = {port}\n{SETTINGS}");
    let mut settings: probe::Settings = TomlText { file: "probe.toml".into(), text }.parse()?;

    // What is wrong is named by its key, for instance to be shown beside an input field.
    settings.stream.ttl = Some(0);
    match probe::start(settings.clone(), &Context::default()) {
        Err(RunError::Settings(wrong)) if wrong.key.as_deref() == Some("stream.ttl") => {
            println!("refused: {wrong}");
            settings.stream.ttl = Some(64);
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("a TTL of 0 was taken".into()),
    }

    let (about, probe) = probe::start(settings.clone(), &Context::default())?;
    let mut collected = Collected::new(about);
    read_until_answered(&probe, &mut collected, 0)?;

    // A further target, while the first goes on without losing a probe.
    settings.targets.push(TargetEntry::of("127.0.0.2"));
    println!("{:?}", probe.control.reload(settings)?.change);
    read_until_answered(&probe, &mut collected, 1)?;

    // The last records come after the stop; the queue then ends.
    probe.stop();
    for event in probe.records.iter() {
        collected.add(&event);
    }
    let clock = probe.status.get().clock;
    let mut ended = probe.join();
    if let Some(failure) = ended.failure.take() {
        return Err(failure.into());
    }
    let run = collected.finish(&ended, clock);
    let counters = &run.overall.counters;
    println!("sent {}, lost {}, caveats {:?}", counters.sent, counters.lost, run.caveats);

    println!("{} replies a moment ago", reflector.status.get().reflected);
    reflector.stop();
    reflector.join().failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Reads records until one of this stream has replies.
fn read_until_answered(
    probe: &Probe,
    collected: &mut Collected,
    stream: u32,
) -> Result<(), Box<dyn Error>> {
    loop {
        match probe.records.next(Duration::from_secs(1)) {
            Next::Record(event) => {
                collected.add(&event);
                if let Event::Record(record) = event
                    && record.stream == stream
                    && record.counters.received > 0
                {
                    let name = &collected.about().streams[stream as usize].target;
                    println!("{name}: median {:?} ns", record.rtt.quantile(0.5));
                    return Ok(());
                }
            }
            Next::Nothing => println!("{} sent so far", probe.status.get().sent),
            Next::End => return Err("the probe has ended by itself".into()),
        }
    }
}

/// The same keys are in JSON: `sonde schema --settings probe` describes them.
const SETTINGS: &str = r#"
stream.interval = "10ms"
run.record_interval = "100ms"
run.timeout = "500ms"
[[target]]
host = "127.0.0.1"
"#;
