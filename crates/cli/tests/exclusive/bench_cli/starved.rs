//! A tester that is kept from running may lose frames, and must not offer in a lump what it could
//! not send in time. Its trial is flagged, and nothing of it counts against the device.

use std::sync::Barrier;
use std::time::Duration;

use sonde_lab::{Impairment, Relay};
use sonde_sys::clock::tai_now;

use super::support::{Between, Folder, assert_consistent, fixed, head, intrude, until};
use crate::process::Process;

/// What keeps the tester from running for `PAUSE`; from when to when it did, TAI ns.
type Fault = fn(&Process) -> [i64; 2];

/// Stopped, and let go on: the injected fault itself; nothing waits for it.
fn stop(process: &Process) -> [i64; 2] {
    process.signal("STOP");
    // On a busy host the thread that is to stop all others is itself not run for a while.
    let stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|state| !state.starts_with(['R', 'S', 'D']))
    };
    let tasks = format!("/proc/{}/task", process.id());
    while !std::fs::read_dir(&tasks).unwrap().all(stopped) {
        std::thread::yield_now();
    }
    let begin = tai_now().as_nanos();
    std::thread::sleep(PAUSE);
    let until = tai_now().as_nanos();
    process.signal("CONT");
    [begin, until]
}

/// Every processor is busy with a real-time thread that goes before any of the tester's, and all
/// of them at once: a tester that finds one processor free is not starved.
fn crowd(_: &Process) -> [i64; 2] {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let ready = Barrier::new(cpus);
    let spin = &|cpu: usize| {
        intrude(cpu);
        ready.wait();
        let begin = tai_now().as_nanos();
        while tai_now().as_nanos() < begin + PAUSE.as_nanos() as i64 {}
        [begin, tai_now().as_nanos()]
    };
    let busy: Vec<[i64; 2]> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || spin(cpu))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let begin = busy.iter().map(|[begin, _]| *begin).max().unwrap();
    [begin, busy.iter().map(|[_, until]| *until).min().unwrap()]
}

/// The fault hits the tester in the middle of trials through a device with a queue of its own:
/// 50 frames, served at twice the load.
fn starved(engine: &str, fault: Fault, test: &str) {
    let Some(between) = Between::new(test) else { return };
    // 60 octets a frame on the link, 10,000 of them a second.
    let device = Impairment { rate: 60 * 8 * 10_000, queue: 50, ..Impairment::default() };
    let relay =
        Relay::start(&between.device, ["eth1", "eth2"], device, Impairment::default(), 3).unwrap();
    let loads = ["4000", "4500", "5000"];
    let plan = head("5k", "500ms") + &between.table(false) + &fixed(&loads, "2s");
    let plan = plan.replace("af_packet", engine).replace("attempts = 30", "attempts = 2");
    let folder = Folder::alone(&plan);
    let mut process = folder.start();
    let mut faults = Vec::new();
    let arrived = || -> u64 {
        let read = between.b.run(&["cat", "/sys/class/net/eth0/statistics/rx_packets"]);
        read.unwrap().trim().parse().unwrap()
    };
    for _ in 0..3 {
        // In the middle of a trial: frames are arriving.
        let (seen, trials) = (arrived(), folder.trials().len());
        if !until(&mut process, || arrived() > seen + 300) || !process.is_running() {
            break;
        }
        faults.push(fault(&process));
        // The next fault is another trial's.
        until(&mut process, || folder.trials().len() > trials);
    }
    let ended = folder.finish(process);
    let device = relay.stop().unwrap();
    println!("{device:?}");
    // In a lump each fault would have given it some 1,600 to 2,000 frames, 50 of which it can queue.
    let in_lumps = faults.len() as u64 * 1500;
    assert!(device.directions[0].queue_full < in_lumps / 3, "{device:?}");
    let run = folder.read();
    assert_consistent(&run);
    let mut flagged = 0;
    for trial in &run.trials {
        let d = &trial.directions[0];
        // While it sent, for half of the pause at least.
        let met = |[begin, until]: &[i64; 2]| *until.min(&d.sent_ns[1]) - begin.max(&d.sent_ns[0]);
        let hit = faults.iter().any(|fault| met(fault) > PAUSE.as_nanos() as i64 / 2);
        let what = format!("{} sent, {} lost: {:?}", d.sent, d.lost, trial.invalid);
        println!("trial {}: {what}{}", trial.number, if hit { ", starved" } else { "" });
        assert!(!(hit && trial.valid()), "trial {}: {what}", trial.number);
        flagged += u32::from(hit);
    }
    assert!(flagged > 0, "{faults:?}\n{}\n{}", ended.out, ended.err);
    assert!(matches!(ended.code, 0 | 1 | 5), "{}\n{}", ended.out, ended.err);
}

#[test]
fn what_a_stopped_tester_with_packet_sockets_loses_is_not_the_devices() {
    let test = "what_a_stopped_tester_with_packet_sockets_loses_is_not_the_devices";
    starved("af_packet", stop, test);
}

#[test]
fn what_a_stopped_tester_with_xdp_loses_is_not_the_devices() {
    starved("xdp", stop, "what_a_stopped_tester_with_xdp_loses_is_not_the_devices");
}

#[test]
fn what_a_tester_on_a_crowded_host_loses_is_not_the_devices() {
    let test = "what_a_tester_on_a_crowded_host_loses_is_not_the_devices";
    starved("af_packet", crowd, test);
}

const PAUSE: Duration = Duration::from_millis(400);
