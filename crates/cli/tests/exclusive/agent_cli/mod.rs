//! `sonde agent` on two hosts with clocks of their own, a router between them, and a third
//! host that controls both: real frames, in network namespaces. Without root these are
//! skipped, and say so.

mod bed;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use sonde_cli::agent::SKEW_VARIABLE;
use sonde_meter::load::{AddressRule, MacRule, Traffic, ValueOrder};
use sonde_results::caveat::Caveat;
use sonde_results::trial::{Direction, Offer, Pattern};
use sonde_testbed::agent::rig::AgentRig;
use sonde_testbed::runner::{Rig as _, TrialOutcome};
use sonde_testbed::tester::{Branch, CopySpec, DirectionSpec, Expects, Mixed};

use self::bed::Agents;
use crate::process;

fn steady(rate_fps: f64, milliseconds: i64) -> Offer {
    Offer::steady(rate_fps, milliseconds * 1_000_000)
}

/// A trial that came about. If this machine was too busy (agents were ready too late, or not done
/// in time), the trial is offered again, as a benchmark does.
fn offer(rig: &mut AgentRig, offer: &Offer) -> TrialOutcome {
    again_while(rig, offer, &AtomicBool::new(false), |_| true)
}

/// A trial that began.
fn begun(rig: &mut AgentRig, offer: &Offer, stop: &AtomicBool) -> TrialOutcome {
    again_while(rig, offer, stop, |why| why.contains("ready only after"))
}

fn again_while(
    rig: &mut AgentRig,
    offer: &Offer,
    stop: &AtomicBool,
    too_busy: impl Fn(&str) -> bool,
) -> TrialOutcome {
    let mut tries = (0..TRIES).map(|_| rig.offer(offer, stop).unwrap());
    let came_about = |outcome: &TrialOutcome| {
        let why = outcome.failed.as_ref().filter(|why| too_busy(why));
        why.iter().for_each(|why| eprintln!("{why}: again"));
        why.is_none()
    };
    tries.find(came_about).expect("a trial that comes about")
}

const TRIES: u32 = 30;

/// Runs a plan to its end, as long as it tries trial after trial: what came out, and the folder.
fn bench(agents: &Agents, text: &str) -> (process::Ended, PathBuf) {
    let folder = agents.folder();
    let (plan, run) = (folder.join("plan.toml"), folder.join("run"));
    std::fs::write(&plan, text).unwrap();
    let mut command = agents.controller_command();
    command.arg("bench").arg(&plan).arg("--out").arg(&run).arg("--quiet");
    let trials = run.join("trials.jsonl");
    let tried = || std::fs::metadata(&trials).map_or(0, |m| m.len() as usize);
    (process::Process::start(command).end_of(tried), run)
}

/// Everything arrived, and the tester's halves agree with each other.
fn assert_sound(outcome: &TrialOutcome, ways: &[&str], frames: u64) {
    assert_eq!(outcome.failed, None);
    let names: Vec<&str> = outcome.directions.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ways);
    for d in &outcome.directions {
        let counts = (d.intended, d.sent, d.received, d.lost, d.duplicates, d.stray);
        assert_eq!(counts, (frames, frames, frames, 0, 0, 0), "{d:?}");
        assert_eq!((d.sent_bytes, d.received_bytes), (frames * 64, frames * 64));
        assert_eq!((d.latency.count, d.gaps.count), (frames, frames - 1));
        let (sent, received) =
            d.streams.iter().fold((0, 0), |(s, r), c| (s + c.sent, r + c.received));
        assert_eq!((sent, received), (frames, frames));
        assert_eq!(d.worst[0].latency_ns, d.latency.max);
    }
}

#[test]
fn two_hosts_measure_a_router_between_them_both_ways() {
    let Some(agents) = Agents::start("agents", &[]) else { return };
    agents.control(|| {
        let mut rig = agents.rig(&[agents.way(false), agents.way(true)]);
        assert!(rig.caveats().contains(Caveat::ClocksDiffer));
        for _ in 0..2 {
            let outcome = offer(&mut rig, &steady(2000.0, 500));
            assert_sound(&outcome, &["a>b", "b>a"], 1000);
            let health = &outcome.health;
            assert!(health.clock_error_ns > 0 && health.cpu_ns > 0, "{health:?}");
            // It is one clock, and the bound of the error holds.
            let [before, after] = health.clock_offset_ns.map(i64::abs);
            assert!(before.max(after) <= health.clock_error_ns, "{health:?}");
            let begins: Vec<i64> = outcome.directions.iter().map(|d| d.sent_ns[0]).collect();
            // Both began at the instant agreed upon, or as much later as they say.
            let late: Vec<i64> = outcome.directions.iter().map(|d| d.lateness.max).collect();
            let apart = (begins[0] - begins[1]).abs();
            assert!(apart <= late[0].max(late[1]) + health.clock_error_ns, "{begins:?} {late:?}");
        }
    });
}

#[test]
fn an_agent_goes_before_other_work_of_its_host() {
    let Some(agents) = Agents::start("before", &[]) else { return };
    if let Err(e) = sonde_sys::schedule::prefer_with_children() {
        return sonde_lab::skipped("an_agent_goes_before_other_work_of_its_host", e);
    }
    process::until("precedence", || (0..2).all(|i| agents.nice(i) == Some(-20)));
    // What sends is real-time where a processor is left for the rest.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        agents.control(|| {
            let mut rig = agents.rig(&[agents.way(false)]);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    process::until("a sender that is real-time", || agents.is_real_time(0));
                    stop.store(true, Ordering::Relaxed);
                });
                begun(&mut rig, &steady(1000.0, 60_000), &stop);
            });
        });
    }
}

#[test]
fn a_receiver_whose_clock_is_far_ahead_measures_the_same_latency() {
    if !cfg!(debug_assertions) {
        sonde_lab::skipped(
            "a_receiver_whose_clock_is_far_ahead_measures_the_same_latency",
            "clocks can be made to differ in builds with debug assertions only",
        );
        return;
    }
    const AHEAD: i64 = 10_000_000_000;
    let skew = [(1, SKEW_VARIABLE, AHEAD.to_string())];
    let Some(agents) = Agents::start("skewed", &skew) else { return };
    agents.control(|| {
        let mut rig = agents.rig(&[agents.way(false)]);
        let outcome = offer(&mut rig, &steady(2000.0, 500));
        assert_sound(&outcome, &["a>b"], 1000);
        let (d, health) = (&outcome.directions[0], &outcome.health);
        for offset in health.clock_offset_ns {
            assert!((offset - AHEAD).abs() <= health.clock_error_ns, "{health:?}");
        }
        // Uncorrected, no frame took less than the clocks are apart.
        let median = d.latency.quantile(0.5).unwrap();
        assert!(median < AHEAD / 2 && d.latency.min >= -health.clock_error_ns, "{:?}", d.latency);
        // And all stamps are of the controller's clock: arrivals follow departures.
        let took = d.received_ns[0] - d.sent_ns[0];
        assert!(took >= -health.clock_error_ns && took < AHEAD / 2, "{d:?}");
    });
}

#[test]
fn an_agent_that_dies_in_the_middle_ends_its_trial_and_not_the_run() {
    let Some(agents) = Agents::start("lost", &[]) else { return };
    let mut rig = agents.control(|| agents.rig(&[agents.way(false)]));
    std::thread::scope(|scope| {
        let trial = scope.spawn(|| {
            agents.control(|| {
                let never = AtomicBool::new(false);
                let outcome = begun(&mut rig, &steady(1000.0, 120_000), &never);
                (outcome, rig)
            })
        });
        agents.wait_for_frames(100);
        agents.kill(1);
        let (outcome, mut rig) = trial.join().unwrap();
        let failed = outcome.failed.unwrap();
        // It may be its clock that was asked just then.
        let lost = ["agent b is lost", "agent b: its clock"];
        assert!(lost.iter().any(|part| failed.contains(part)), "{failed}");
        // Nobody is there: the next trial fails, too, and says why.
        let again = agents.control(|| rig.offer(&steady(1000.0, 100), &AtomicBool::new(false)));
        let failed = again.unwrap().failed.unwrap();
        assert!(failed.contains("agent b: cannot connect"), "{failed}");
        let _again = agents.again(1);
        // On a busy host a generator may not be run within the time of its trial.
        let mut tries = (0..20).map(|_| {
            agents.control(|| rig.offer(&steady(1000.0, 100), &AtomicBool::new(false)).unwrap())
        });
        let sent = |o: &TrialOutcome| {
            assert!(!o.failed.iter().any(|why| why.contains("busy")), "{:?}", o.failed);
            o.directions.first().is_some_and(|d| d.sent == d.intended)
        };
        assert_sound(&tries.find(sent).expect("a trial"), &["a>b"], 100);
    });
}

#[test]
fn a_port_that_goes_down_and_ctrl_c_end_a_trial_with_what_was_measured() {
    let Some(agents) = Agents::start("ends", &[]) else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let trial = scope.spawn(|| {
            agents.control(|| {
                let mut rig = agents.rig(&[agents.way(false)]);
                begun(&mut rig, &steady(1000.0, 120_000), &stop)
            })
        });
        agents.wait_for_frames(100);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let outcome = trial.join().unwrap();
        let d = &outcome.directions[0];
        assert!(outcome.failed.is_none() && d.sent >= 100 && d.sent < d.intended, "{d:?}");
        assert_eq!((d.lost, d.received), (0, d.sent));
    });
    std::thread::scope(|scope| {
        let trial = scope.spawn(|| {
            agents.control(|| {
                let mut rig = agents.rig(&[agents.way(false)]);
                begun(&mut rig, &steady(1000.0, 120_000), &AtomicBool::new(false))
            })
        });
        agents.wait_for_frames(100);
        agents.cut_cable();
        let failed = trial.join().unwrap().failed.unwrap();
        assert!(failed.contains("agent a") && failed.contains("down"), "{failed}");
    });
}

#[test]
fn only_controllers_of_the_laboratory_are_served_one_at_a_time() {
    let Some(agents) = Agents::start("refuse", &[]) else { return };
    agents.control(|| {
        // Somebody who says nothing keeps nobody out.
        // More than there are free connections, from the controller's own address.
        let _silent: Vec<_> = (0..200).map(|_| agents.dial(0)).collect();
        let stranger = agents.try_rig_of_a_stranger(&[agents.way(false)]).err().unwrap();
        assert!(format!("{stranger:#}").contains("agent a: "), "{stranger:#}");
        // Who has taken an agent's key orders nobody.
        let agent = agents.try_rig_of_an_agent(&[agents.way(false)]).err().unwrap();
        assert!(format!("{agent:#}").contains("certificate"), "{agent:#}");
        let mut outside = agents.way(false);
        outside.traffic.destination = sonde_meter::load::AddressRule::fixed([10, 0, 0, 1].into());
        let error = format!("{:#}", agents.try_rig(&[outside]).err().unwrap());
        assert!(error.contains("10.0.0.1 is not an address for benchmarks"), "{error}");
        let rig = agents.rig(&[agents.way(false)]);
        let error = format!("{:#}", agents.try_rig(&[agents.way(false)]).err().unwrap());
        assert!(error.contains("agent a: busy"), "{error}");
        drop(rig);
        // The agents notice that it has gone.
        agents.rig(&[agents.way(false)]);
    });
}

#[test]
fn a_controller_waits_for_agents_whose_controller_has_died() {
    let Some(agents) = Agents::start("waits", &[]) else { return };
    let folder = agents.folder();
    let start = |name: &str, trial: &str| {
        let plan = folder.join(format!("{name}.toml"));
        let trial = format!("trial = '{trial}'");
        std::fs::write(&plan, agents.plan().replace("trial = '500ms'", &trial)).unwrap();
        let mut command = agents.controller_command();
        command.arg("bench").arg(&plan).arg("--out").arg(folder.join(name)).arg("--quiet");
        process::Process::start(command)
    };
    let first = start("first", "120s");
    agents.wait_for_frames(100);
    let mut second = start("second", "500ms");
    second.until("its waiting", |p| p.err().iter().any(|line| line.contains("agent west: busy")));
    first.signal("KILL");
    let mut ended = second.end();
    // A host that is too busy may need longer than that to see that the first one has gone.
    for _ in 0..5 {
        if ended.code == 3 && ended.err.contains("busy") {
            ended = start("second", "500ms").end();
        }
    }
    // A trial in which this machine was too busy is invalid; none met an agent that was.
    assert!(matches!(ended.code, 0 | 1 | 5), "{}: {}", ended.code, ended.err);
    let trials = std::fs::read_to_string(folder.join("second/trials.jsonl")).unwrap();
    assert!(!trials.is_empty() && !trials.contains("busy"), "{trials}");
}

#[test]
fn a_plan_that_names_agents_is_measured_by_them() {
    let Some(agents) = Agents::start("plan", &[]) else { return };
    let (ended, run) = bench(&agents, &agents.plan());
    // A trial in which this machine was too busy is invalid: then nothing was found.
    assert!(matches!(ended.code, 0 | 1 | 5), "{}: {}", ended.code, ended.err);
    let read = |name: &str| {
        let text = std::fs::read_to_string(run.join(name)).unwrap();
        let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        lines.collect::<Vec<_>>()
    };
    let began = |trial: &Value| trial["directions"].as_array().is_some_and(|d| !d.is_empty());
    for trial in read("trials.jsonl").into_iter().filter(began) {
        let d = &trial["directions"][0];
        assert_eq!(
            (&d["name"], &d["sent"], &d["received"]),
            (&"a>b".into(), &500.into(), &500.into()),
            "{trial}"
        );
        assert!(trial["health"]["clock_error_ns"].as_i64() > Some(0), "{trial}");
    }
    let measurements = read("measurements.jsonl");
    assert!(
        measurements.len() == 1 && measurements[0]["caveats"].to_string().contains("clocks_differ")
    );
    let head = std::fs::read_to_string(run.join("run.json")).unwrap();
    assert!(head.contains("tester b (eth0 of east) -- dut"), "{head}");
}

#[test]
fn copies_of_a_bridge_between_agents_are_found_at_its_further_port() {
    let Some(mut agents) = Agents::start("copies", &[]) else { return };
    agents.bridge();
    let offer = |pattern| Offer { pattern, flows: Some(4), ..steady(1000.0, 500) };
    let to_c = |expects| Branch { to: 2, for_mac: None, expects };
    let with = |destination_mac: MacRule| {
        let way = agents.way(false);
        let traffic = Traffic { destination_mac, ..way.traffic };
        DirectionSpec { traffic, for_mac: None, ..way }
    };
    agents.control(|| {
        let measure = |ways: &[DirectionSpec], copies: CopySpec, offer: Offer| {
            let mut rig = agents.rig_of_copies(ways, copies);
            self::offer(&mut rig, &offer)
        };
        // Of stations that nobody has heard of each frame comes to every port.
        let unknown = [with(MacRule::Random { seed: 5 })];
        let copies = CopySpec { branches: vec![to_c(Expects::All)], ..CopySpec::default() };
        let flooded = measure(&unknown, copies, offer(Pattern::Unknown));
        assert_sound(&flooded, &["a>b", "a>c"], 500);
        assert!(flooded.directions.iter().all(|d| d.streams.len() == 4 && d.flooded == 0));
        // Nobody expects them there: then they are the first direction's.
        let copies = CopySpec { branches: vec![to_c(Expects::None)], ..CopySpec::default() };
        let flooded = measure(&unknown, copies.clone(), offer(Pattern::Stations));
        assert_sound(&flooded, &["a>b"], 500);
        assert_eq!(flooded.directions[0].flooded, 500);
        // The bridge learns where they are, and floods no more.
        let back = agents.way(true);
        let source_mac = MacRule::Random { seed: 5 };
        let learning = DirectionSpec { traffic: Traffic { source_mac, ..back.traffic }, ..back };
        let learned = measure(&[learning], CopySpec::default(), offer(Pattern::Learning));
        assert_sound(&learned, &["b>a"], 500);
        let sent_on = measure(&unknown, copies, offer(Pattern::Stations));
        assert_sound(&sent_on, &["a>b"], 500);
        assert_eq!(sent_on.directions[0].flooded, 0);
        // Half of the frames are for groups, and these alone have to come to both.
        let group = with(MacRule::Group).traffic;
        let first = AddressRule::fixed([239, 192, 0, 1].into()).first;
        let destination = AddressRule { first, count: 4, step: 1, order: ValueOrder::Increment };
        let traffic = Traffic { destination, ..group };
        let mixed = Some(Mixed { traffic, share: 0.5 });
        let copies = CopySpec { mixed, branches: vec![to_c(Expects::Mixed)] };
        let known = [DirectionSpec { for_mac: None, ..agents.way(false) }];
        let both = measure(&known, copies, offer(Pattern::Multicast { share: 0.5 }));
        let counts = |d: &Direction| (d.name.clone(), d.intended, d.sent, d.received, d.lost);
        let found: Vec<_> = both.directions.iter().map(counts).collect();
        assert_eq!(found, [("a>b".into(), 500, 500, 500, 0), ("a>c".into(), 250, 250, 250, 0)]);
        assert_eq!(both.failed, None);
    });
}

#[test]
fn a_plan_for_a_bridge_between_agents_is_measured_at_three_ports() {
    let Some(mut agents) = Agents::start("bridge", &[]) else { return };
    agents.bridge();
    let whole = agents.plan();
    let (head, _) = whole.split_once("[[procedure]]").unwrap();
    let text = format!(
        "{head}c = {{ agent = 'east', interface = 'eth1' }}\n\
         [device.commands]\nforget = '{}'\n\
         [[procedure]]\nkind = 'address_caching_capacity'\nstations = 16\nlearning_rate = 500\n\
         [[procedure]]\nkind = 'scaled_group_matrix'\nloads = ['1k']\ntrial = '300ms'\n\
         groups = [3]\n[run]\nattempts = 30\nback_off = '100ms'\n",
        agents.forget()
    );
    let (ended, run) = bench(&agents, &text);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let text = std::fs::read_to_string(run.join("measurements.jsonl")).unwrap();
    let value = |name: &str| -> Option<f64> {
        let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        let all: Vec<Value> =
            lines.flat_map(|m| m["finding"]["values"].as_array().unwrap().clone()).collect();
        all.iter().find(|v| v["name"] == name)?["value"].as_f64()
    };
    assert_eq!(value("address_caching_capacity"), Some(16.0), "{text}");
    assert_eq!(value("loss_ratio@3"), Some(0.0), "{text}");
    let trials = std::fs::read_to_string(run.join("trials.jsonl")).unwrap();
    assert!(trials.contains("\"a>c\""), "{trials}");
}

#[test]
fn what_is_done_to_a_device_between_agents_has_its_time() {
    let Some(agents) = Agents::start("reset", &[]) else { return };
    let whole = agents.plan();
    let (device, _) = whole.split_once("[[procedure]]").unwrap();
    let text = format!(
        "{device}[device.commands]\nreset = '{}'\n[[procedure]]\nkind = 'reset'\n\
         loads = ['1k']\ntrial = '2s'\nat = '500ms'\ntrials = 1\n",
        agents.outage()
    );
    let (ended, run) = bench(&agents, &text);
    assert!(matches!(ended.code, 0 | 1 | 5), "{}: {}", ended.code, ended.err);
    let trials = std::fs::read_to_string(run.join("trials.jsonl")).unwrap();
    let last: Value = serde_json::from_str(trials.lines().last().unwrap()).unwrap();
    let d = &last["directions"][0];
    // Frame n is due n ms after the first, or later where the tester was stopped; whatever was
    // lost before its time was not lost by what was done.
    let first = d["losses"][0]["first"].as_u64();
    assert!(d["lost"].as_u64() >= Some(100) && first >= Some(400), "{last}");
}

#[test]
fn a_plan_with_agents_that_cannot_be_says_why() {
    let Some(agents) = Agents::start("badplan", &[]) else { return };
    let folder = agents.folder();
    let sound = agents.plan();
    let cases = [
        ("name = 'west'", "name = 'waste'", "add [[agent]] with name = 'west'"),
        ("b = { agent = 'east', ", "b = { ", "all ports of a device are on agents, or none"),
        ("[controller]", "[other]", "unknown key 'other'"),
        (":8620'", ":8621'", "agent west: cannot connect"),
    ];
    for (i, (from, to, part)) in cases.into_iter().enumerate() {
        let text = sound.replacen(from, to, 1);
        assert_ne!(text, sound);
        let plan = folder.join("plan.toml");
        std::fs::write(&plan, text).unwrap();
        let mut command = agents.controller_command();
        command.arg("bench").arg(&plan).arg("--out").arg(folder.join(format!("run{i}")));
        let ended = process::Process::start(command).end();
        assert!((2..=3).contains(&ended.code) && ended.err.contains(part), "{}", ended.err);
    }
}
