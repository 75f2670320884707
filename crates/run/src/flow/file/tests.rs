use super::*;
use crate::flow::start;
use crate::traffic;

#[test]
fn a_closed_turnstile_lets_everyone_go_as_far_as_the_first() {
    let turnstile = Turnstile::default();
    assert!((0..5).all(|stretch| turnstile.lets_in(stretch)));
    assert!(turnstile.lets_in(0) && !turnstile.is_closed());
    turnstile.close();
    assert!((1..5).all(|stretch| turnstile.lets_in(stretch)));
    assert!(!turnstile.lets_in(5) && turnstile.is_closed());
}

/// Chance decides which packets are metered.
#[test]
fn a_capture_gives_the_same_each_time_without_a_seed() {
    let name = format!("sonde-flow-again-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    let made = traffic::Settings {
        out: Some(path.clone()),
        flows: 300,
        packets: Some(20_000),
        ..traffic::Settings::default()
    };
    let (_, ended) = traffic::start(made, &Context::default()).unwrap().last();
    assert!(ended.failure.is_none(), "{ended:?}");
    let with = |seed| {
        let mut settings = Settings {
            sources: vec![path.display().to_string()],
            records: true,
            ..Settings::default()
        };
        settings.selection.sample = Some("random:1/10".parse().unwrap());
        settings.metering.seed = seed;
        let running = start(settings, &Context::default()).unwrap();
        let records: Vec<_> = running.records.iter().flatten().collect();
        (format!("{records:?}"), running.join().counters)
    };
    // Records of some thousand lines are not printed.
    assert!(with(None) == with(None), "twice the same");
    assert!(with(Some(1)) != with(Some(2)), "chance");
    std::fs::remove_file(&path).unwrap();
}
