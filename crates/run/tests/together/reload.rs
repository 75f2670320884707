//! A probe that goes over to other targets while it runs.

use std::sync::PoisonError;
use std::time::Duration;

use sonde_lab::{Host, Lab, LinkOptions, Topology, Uplinks};
use sonde_results::units::SECOND;
use sonde_run::change::Change;
use sonde_run::engine::{Engine, EngineSettings};
use sonde_run::error::RunError;
use sonde_run::probe::settings::{RunOptions, StreamOptions};
use sonde_run::probe::{self, Collected, Event, Probe, Reloaded, TargetEntry};
use sonde_run::reflect::{self, Reflecting};
use sonde_run::running::{Context, Next};
use sonde_wire::NotSent;

use super::{ALONE, all, within};

/// A reload takes targets off and puts others on; whoever stays loses no probe.
#[test]
fn targets_are_changed_while_others_are_measured() {
    if sonde_lab::skip("targets_are_changed_while_others_are_measured") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Topology::pair("reload", &LinkOptions::default()).unwrap();
    for engine in [Engine::Socket, Engine::AfPacket, Engine::AfXdp] {
        let reflecting = reflector(&net.reflector, Topology::INTERFACE);
        let of = |hosts: &[&str]| probe::Settings {
            targets: hosts.iter().map(|host| TargetEntry::of(*host)).collect(),
            stream: StreamOptions {
                interval: Some(2_000_000),
                dscp: Some(vec![0, 46]),
                ..StreamOptions::default()
            },
            run: RunOptions {
                timeout: Some(SECOND / 2),
                record_interval: Some(SECOND / 10),
                ..RunOptions::default()
            },
            engine: EngineSettings { engine, ..EngineSettings::default() },
            ..probe::Settings::default()
        };
        let first = of(&["10.1.0.2", "10.2.0.1-10.2.0.3"]);
        let (about, probing) =
            within(&net.probe, || probe::start(first.clone(), &Context::default())).unwrap();
        let clock = about.clock;
        let mut collected = Collected::new(about);
        let until = |collected: &mut Collected, enough: &dyn Fn(&Collected) -> bool| {
            while !enough(collected) {
                match probing.records.next(Duration::from_secs(60)) {
                    Next::Record(event) => drop(collected.add(&event)),
                    other => panic!("{engine}: {other:?}"),
                }
            }
        };
        let received = |i: usize| {
            move |c: &Collected| {
                c.totals().get(i).is_some_and(|total| total.counters.received > 100)
            }
        };
        until(&mut collected, &received(7));
        assert_eq!(probing.control.reload(first).unwrap().change, Change::Same);
        let second = of(&["10.1.0.2", "10.2.0.4-10.2.0.6"]);
        let Reloaded { change, left_out } = probing.control.reload(second).unwrap();
        assert!(matches!(change, Change::Live { .. }), "{engine}: {change:?}");
        assert_eq!(left_out, []);
        // Two streams to what stays, six to what went, six to what came.
        until(&mut collected, &received(13));
        probing.stop();
        for event in all(&probing) {
            collected.add(&event);
        }
        let ended = probing.join();
        assert!(ended.failure.is_none(), "{engine}: {ended:?}");
        let run = collected.finish(&ended, clock);
        assert_eq!(run.streams.len(), 14, "{engine}");
        let of = |target: &str| run.streams.iter().filter(|s| s.target == target).count();
        assert_eq!([of("10.1.0.2"), of("10.2.0.1"), of("10.2.0.6")], [2; 3], "{engine}");
        for (info, total) in run.streams.iter().zip(&run.totals) {
            let c = &total.counters;
            assert_eq!(c.sent, c.received, "{engine} {info:?}: {c:?}");
            assert_eq!((c.lost, c.late), (0, 0), "{engine} {info:?}: {c:?}");
        }
        // What stays was measured all the time.
        let sent = |i: usize| run.totals[i].counters.sent;
        assert!(sent(0) > sent(2) + 100, "{engine}: {} {}", sent(0), sent(2));
        reflecting.stop();
        assert!(reflecting.join().failure.is_none());
    }
}

/// A target without a way at the start is measured as soon as there is one, beside the others; one whose
/// way goes later is not sent to, and is measured again when it is back.
#[test]
fn a_target_without_a_way_is_tried_until_there_is_one() {
    if sonde_lab::skip("a_target_without_a_way_is_tried_until_there_is_one") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Topology::pair("again", &LinkOptions::default()).unwrap();
    let way = |what: &str| {
        net.probe.run(&["ip", "route", what, "unreachable", "10.2.0.9/32"]).unwrap();
    };
    for engine in [Engine::Socket, Engine::AfPacket] {
        let reflecting = reflector(&net.reflector, Topology::INTERFACE);
        way("add");
        let mut asked = settings(&["10.1.0.2", "10.2.0.9"], engine);
        asked.targets[1].name = Some("far".into());
        let (about, probing) =
            within(&net.probe, || probe::start(asked, &Context::default())).unwrap();
        let [(name, why)] = &about.left_out[..] else { panic!("{:?}", about.left_out) };
        assert!(name == "far" && why.contains("unreachable"), "{name}: {why}");
        let (clock, mut told) = (about.clock, Vec::new());
        let mut collected = Collected::new(about);
        let mut until = |collected: &mut Collected, enough: &dyn Fn(&Collected) -> bool| {
            while !enough(collected) {
                match probing.records.next(Duration::from_secs(90)) {
                    Next::Record(event) => {
                        if let Event::LeftOut(left_out) = &event {
                            told.push(left_out.clone());
                        }
                        collected.add(&event);
                    }
                    other => panic!("{engine}: {other:?}"),
                }
            }
        };
        let received =
            |c: &Collected, i: usize| c.totals().get(i).map_or(0, |total| total.counters.received);
        until(&mut collected, &|c| received(c, 0) > 20);
        assert_eq!(collected.totals().len(), 1, "{engine}");
        way("del");
        until(&mut collected, &|c| received(c, 1) > 20);
        assert_eq!((collected.about().left_out.len(), received(&collected, 2)), (0, 0));
        way("add");
        until(&mut collected, &|c| c.totals()[1].counters.not_sent.of(NotSent::NoRoute) > 0);
        way("del");
        let before = received(&collected, 1);
        until(&mut collected, &|c| received(c, 1) > before + 20);
        probing.stop();
        for event in all(&probing) {
            collected.add(&event);
        }
        let ended = probing.join();
        assert!(ended.failure.is_none(), "{engine}: {ended:?}");
        assert_eq!(told, [Vec::new()], "{engine}: once, that nothing is left out");
        let run = collected.finish(&ended, clock);
        let c = &run.totals[0].counters;
        assert_eq!((c.sent, c.lost), (c.received, 0), "{engine}: the other: {c:?}");
        // A busy host skips some of them for being late, and none for another reason.
        assert_eq!(c.not_sent.total(), c.not_sent.of(NotSent::Late), "{engine}: {c:?}");
        reflecting.stop();
        assert!(reflecting.join().failure.is_none());
    }
}

/// What is refused changes nothing: the streams that come next have the identifiers that the reader
/// counts.
#[test]
fn a_reload_that_cannot_be_changes_nothing() {
    if sonde_lab::skip("a_reload_that_cannot_be_changes_nothing") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let jumbo = LinkOptions { mtu: 9_100, ..LinkOptions::default() };
    let net = Topology::pair("refused", &jumbo).unwrap();
    let reflecting = reflector(&net.reflector, Topology::INTERFACE);
    let of = |hosts: &[&str], size| {
        let mut settings = settings(hosts, Engine::AfPacket);
        // What was there is as before.
        settings.targets.last_mut().unwrap().stream.size = size;
        settings
    };
    let (about, probing) =
        within(&net.probe, || probe::start(of(&["10.1.0.2"], None), &Context::default())).unwrap();
    let clock = about.clock;
    let mut collected = Collected::new(about);
    follow(&probing, &mut collected, 0);
    // Longer than the engine's frames, and on an interface that carries it.
    let refused = probing.control.reload(of(&["10.1.0.2", "10.2.0.1"], Some(9_050)));
    match refused {
        Err(RunError::Settings(wrong)) => {
            assert!(wrong.message.contains("too long"), "{wrong}");
            assert_eq!(wrong.key.as_deref(), Some("stream.size"));
        }
        other => panic!("{other:?}"),
    }
    let change = probing.control.reload(of(&["10.1.0.2", "10.2.0.2"], None)).unwrap().change;
    assert!(matches!(change, Change::Live { .. }), "{change:?}");
    follow(&probing, &mut collected, 1);
    probing.stop();
    all(&probing).iter().for_each(|event| drop(collected.add(event)));
    let ended = probing.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    let run = collected.finish(&ended, clock);
    let targets: Vec<&str> = run.streams.iter().map(|s| s.target.as_str()).collect();
    assert_eq!(targets, ["10.1.0.2", "10.2.0.2"]);
    for total in &run.totals {
        let c = &total.counters;
        assert!(c.sent > 100 && c.sent == c.received, "{c:?}");
    }
    reflecting.stop();
    assert!(reflecting.join().failure.is_none());
}

/// Streams that come while others run leave by their own next hop from the first probe on.
#[test]
fn what_is_added_goes_its_own_way_at_once() {
    if sonde_lab::skip("what_is_added_goes_its_own_way_at_once") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Uplinks::new("ways", 2, &LinkOptions::default()).unwrap();
    let far: Vec<String> = (0..2).map(|n| Uplinks::target_range(n, 4)).collect();
    for engine in [Engine::Socket, Engine::AfPacket] {
        let reflecting = [0, 1].map(|n: usize| reflector(&net.reflectors[n], Topology::INTERFACE));
        let (about, probing) =
            within(&net.probe, || probe::start(settings(&[&far[0]], engine), &Context::default()))
                .unwrap();
        let clock = about.clock;
        let mut collected = Collected::new(about);
        follow(&probing, &mut collected, 0);
        // A port of its own for the other uplink, and more streams at the one that is open.
        let both = settings(&[&far[0], &far[1], "10.2.0.9"], engine);
        let change = probing.control.reload(both).unwrap().change;
        assert!(matches!(change, Change::Live { .. }), "{change:?}");
        follow(&probing, &mut collected, 8);
        probing.stop();
        all(&probing).iter().for_each(|event| drop(collected.add(event)));
        let ended = probing.join();
        assert!(ended.failure.is_none(), "{engine}: {ended:?}");
        let run = collected.finish(&ended, clock);
        assert_eq!(run.streams.len(), 9);
        for (info, total) in run.streams.iter().zip(&run.totals) {
            let c = &total.counters;
            assert_eq!(c.sent, c.received, "{engine} {info:?}: {c:?}");
            let no_way = [NotSent::NoRoute, NotSent::NoNeighbour, NotSent::NoAddress];
            let unsent: u64 = no_way.iter().map(|&why| c.not_sent.of(why)).sum();
            assert_eq!(unsent, 0, "{engine} {info:?}: {c:?}");
        }
        for reflecting in reflecting {
            reflecting.stop();
            assert!(reflecting.join().failure.is_none());
        }
    }
}

/// A link-local address names another host on each link, and a route that comes or goes elsewhere
/// changes no way to it.
#[test]
fn one_link_local_address_on_two_links_is_two_hosts() {
    if sonde_lab::skip("one_link_local_address_on_two_links_is_two_hosts") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new("links").unwrap();
    let prober = lab.host("probe").unwrap();
    let interfaces = ["left", "right"];
    let hosts = interfaces.map(|interface| {
        let host = lab.host(interface).unwrap();
        lab.link(&prober, interface, &host, "eth0", &LinkOptions::default()).unwrap();
        host.run(&["ip", "addr", "add", "fe80::1/64", "dev", "eth0", "nodad"]).unwrap();
        host
    });
    for interface in interfaces {
        prober.run(&["ip", "addr", "add", "fe80::2/64", "dev", interface, "nodad"]).unwrap();
    }
    for engine in [Engine::Socket, Engine::AfPacket] {
        let reflecting = hosts.each_ref().map(|host| reflector(host, "eth0"));
        let targets = ["fe80::1%left", "fe80::1%right"];
        let (about, probing) =
            within(&prober, || probe::start(settings(&targets, engine), &Context::default()))
                .unwrap();
        let clock = about.clock;
        let mut collected = Collected::new(about);
        (0..2).for_each(|stream| follow(&probing, &mut collected, stream));
        prober.add_route("2001:db8::/32", &["dev", "left"]).unwrap();
        (0..2).for_each(|stream| follow(&probing, &mut collected, stream));
        prober.run(&["ip", "-6", "route", "del", "2001:db8::/32", "dev", "left"]).unwrap();
        probing.stop();
        all(&probing).iter().for_each(|event| drop(collected.add(event)));
        let ended = probing.join();
        assert!(ended.failure.is_none(), "{engine}: {ended:?}");
        let run = collected.finish(&ended, clock);
        for (total, reflecting) in run.totals.iter().zip(reflecting) {
            reflecting.stop();
            let answered = all(&reflecting).pop().unwrap().reflected;
            assert!(reflecting.join().failure.is_none());
            let c = &total.counters;
            assert_eq!((c.sent, c.received), (answered, answered), "{engine}: {c:?}");
        }
    }
}

fn settings(hosts: &[&str], engine: Engine) -> probe::Settings {
    probe::Settings {
        targets: hosts.iter().map(|host| TargetEntry::of(*host)).collect(),
        stream: StreamOptions { interval: Some(2_000_000), ..StreamOptions::default() },
        run: RunOptions {
            timeout: Some(SECOND / 2),
            record_interval: Some(SECOND / 10),
            ..RunOptions::default()
        },
        engine: EngineSettings { engine, ..EngineSettings::default() },
        ..probe::Settings::default()
    }
}

fn reflector(host: &Host, interface: &str) -> Reflecting {
    let engine = EngineSettings { iface: Some(interface.into()), ..EngineSettings::default() };
    let settings = reflect::Settings { engine, kernel: true, ..reflect::Settings::default() };
    within(host, || reflect::start(settings, &Context::default())).unwrap().1
}

/// Reads until a hundred more probes of the stream have come back.
fn follow(probing: &Probe, collected: &mut Collected, stream: usize) {
    let received = |c: &Collected| c.totals().get(stream).map_or(0, |t| t.counters.received);
    let enough = received(collected) + 100;
    while received(collected) < enough {
        match probing.records.next(Duration::from_secs(60)) {
            Next::Record(event) => drop(collected.add(&event)),
            other => panic!("{other:?}"),
        }
    }
}
