//! A tester that is kept from running may lose frames, and must not offer in a lump what it could
//! not send in time. Its trial is flagged, and nothing of it counts against the device.

use std::process::{Child, Command};
use std::time::Duration;

use sonde_lab::{Impairment, Relay};
use sonde_port::clock::tai_now;

use crate::process::Process;
use crate::support::{Between, Folder, assert_consistent, finish, fixed, head, until};

/// What keeps the tester from running, for a while.
type Fault = fn(&Process);

/// Stopped, and let go on: the injected fault itself; nothing waits for it.
fn stop(process: &Process) {
    process.signal("STOP");
    std::thread::sleep(PAUSE);
    process.signal("CONT");
}

/// Every processor is busy with a real-time task that goes before any thread of the tester.
fn crowd(_: &Process) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let spinner = |cpu: usize| {
        let (cpu, seconds) = (cpu.to_string(), PAUSE.as_secs_f64().to_string());
        let mut command = Command::new("timeout");
        command.args([&seconds, "chrt", "-f", "50", "taskset", "-c", &cpu]);
        command.args(["sh", "-c", "while :; do :; done"]).spawn().unwrap()
    };
    let spinners: Vec<Child> = (0..cpus).map(spinner).collect();
    for mut spinner in spinners {
        spinner.wait().unwrap();
    }
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
    let plan = plan.replace("af_packet", engine).replace("attempts = 12", "attempts = 2");
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
        let begin = tai_now().as_nanos();
        fault(&process);
        faults.push([begin, tai_now().as_nanos()]);
        // The next fault is another trial's.
        until(&mut process, || folder.trials().len() > trials);
    }
    let ended = finish(process);
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
        let end = d.sent_ns[1];
        let hit = faults.iter().any(|[begin, until]| *begin < end && *until > trial.start_ns);
        let what = format!("{} sent, {} lost: {:?}", d.sent, d.lost, trial.invalid);
        println!("trial {}: {what}{}", trial.number, if hit { ", starved" } else { "" });
        assert!(!(hit && trial.valid()), "trial {}: {what}", trial.number);
        flagged += u32::from(hit);
    }
    assert!(flagged > 0, "{faults:?}\n{}\n{}", ended.out, ended.err);
    assert!(matches!(ended.code, 0 | 1), "{}\n{}", ended.out, ended.err);
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
