use std::path::PathBuf;

use sonde_lab::scratch::{in_namespace, ip};
use sonde_meter::traffic::Sizes;
use sonde_port::mem::PathModel;

use super::super::{Settings, TruthForm, start};
use super::*;
use crate::running::Context;
use crate::virtual_time::ReflectedPort;

#[test]
fn a_port_that_fails_is_a_failure_of_the_host_and_not_of_what_is_saved() {
    let begin = Time::from_nanos(1_700_000_000_000_000_000);
    let (mut port, _) = ReflectedPort::new(begin, &PathModel::default());
    port.fails_at = Some(begin + 1_000_000_000);
    let generator = FlowGenerator::new(Config { rate: 1_000, ..Config::default() }).unwrap();
    let mut truth = TruthFile::create(None, &Context::default(), TruthForm::Full).unwrap();
    let status = Latest::new(TrafficReport::default());
    let outlet = Outlet { port: Box::new(port), interface: "none0".into() };
    let (made, failure) = run(outlet, generator, &mut truth, &status, &Stop::default());
    let Some(RunError::Host(error)) = failure else { panic!("{failure:?}") };
    assert!(error.to_string().contains("the cable was cut"), "{error}");
    assert!(made.packets > 0, "what was made until then is known");
}

/// Packets of all flows in a truth file.
fn packets_of(truth: &PathBuf) -> u64 {
    let text = std::fs::read_to_string(truth).unwrap();
    text.lines().skip(1).map(|line| line.split(',').nth(7).unwrap().parse::<u64>().unwrap()).sum()
}

/// Sends without end, does `event` once some have come, and checks that it was found out, and that
/// the truth has what left.
fn loses_its_link(engine: Engine, event: &str, what: &str) {
    ip("link add a0 type veth peer name b0");
    for name in ["a0", "b0"] {
        // Nothing else comes or goes there.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        ip(&format!("link set {name} up"));
    }
    let mut far = sonde_port::open(Engine::AfPacket, &OpenSpec::watching("b0".into())).unwrap();
    let name =
        format!("sonde-{}-{}-{}", std::process::id(), engine.name(), event.replace(' ', "-"));
    let truth = std::env::temp_dir().join(name);
    let settings = Settings {
        iface: Some("a0".into()),
        engine,
        truth: Some(truth.clone()),
        flows: 50,
        length: sonde_meter::traffic::Length::Constant(4),
        rate: 5_000,
        packets: Some(u64::MAX),
        ..Settings::default()
    };
    let making = start(settings, &Context::default()).unwrap();
    let mut seen = 0;
    let mut more = || {
        far.wait(far.now() + 5_000_000).unwrap();
        seen += far.rx().unwrap().len() as u64;
        seen
    };
    let begun = Instant::now();
    while more() < 1_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", making.status.get());
    }
    ip(event);
    while !making.wait(Duration::ZERO) {
        more();
        assert!(begun.elapsed() < Duration::from_secs(60), "{event}: it goes on");
    }
    let (made, ended) = making.last();
    let Some(RunError::Host(error)) = &ended.failure else { panic!("{event}: {ended:?}") };
    let text = error.to_string();
    assert!(text.contains(what) && text.contains("these, and no others"), "{event}: {text}");
    let made = made.unwrap();
    assert!(text.contains(&format!("{} packets had left", made.packets)), "{text}");
    assert_eq!(packets_of(&truth), made.packets, "{event}");
    // One that is being deleted may have no room for a frame before it says that it is gone.
    let most = if event == "link del a0" { 64 } else { 0 };
    assert!(made.own_drops.is_some_and(|drops| drops <= most), "{event}: {made:?}");
    // Where only the sender's end went down, what was under way still comes.
    while event == "link set a0 down" && more() < made.packets {
        assert!(begun.elapsed() < Duration::from_secs(60), "{event}: {made:?}");
    }
    let seen = more();
    let comes_whole = event == "link set a0 down";
    assert!(seen == made.packets || !comes_whole && seen < made.packets, "{seen} of {made:?}");
    std::fs::remove_file(&truth).unwrap();
}

#[test]
fn a_link_that_is_lost_ends_the_traffic_and_the_truth_has_what_left() {
    in_namespace(|| {
        for engine in [Engine::AfPacket, Engine::AfXdp] {
            for event in ["link set a0 down", "link set b0 down"] {
                loses_its_link(engine, event, "a0 is down or has no carrier");
                ip("link del a0");
            }
        }
    });
}

#[test]
fn an_interface_that_vanishes_ends_the_traffic_and_the_truth_has_what_left() {
    in_namespace(|| {
        for engine in [Engine::AfPacket, Engine::AfXdp] {
            loses_its_link(engine, "link del a0", "a0 has vanished");
        }
    });
}

#[test]
fn frames_that_no_rate_lets_through_are_refused_at_the_start() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        let long = Config { sizes: Sizes::constant(1_523), ..Config::default() };
        let refused = open("a0", Engine::AfPacket, &long).err().unwrap();
        let text = refused.to_string();
        assert!(text.contains("MTU of 1500") && text.contains("mtu 1505"), "{text}");
        ip("link set a0 mtu 1505");
        open("a0", Engine::AfPacket, &long).unwrap();
    });
}
