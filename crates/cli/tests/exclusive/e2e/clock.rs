//! Somebody sets the clock while a measurement runs. No test may set this machine's: a library
//! that is loaded before the others shows the program another one. The kernel's stamps stay as
//! they are, as if each packet had been stamped just before.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use sonde_results::caveat::Caveat;
use sonde_results::units::SECOND;

use super::net::{Net, SONDE, intervals, read_run};
use crate::process::Process;

/// What the library adds to UTC and to TAI, ns, which it looks up at every reading.
struct Clock(File);

impl Clock {
    fn set(&self, utc: i64, tai: i64) {
        let bytes = [utc.to_ne_bytes(), (utc + tai).to_ne_bytes()].concat();
        self.0.write_all_at(&bytes, 0).unwrap();
    }
}

/// Compiles the library; whether there is a compiler.
fn compile(to: &Path) -> bool {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exclusive/e2e/clock_preload.c");
    let mut clang = Command::new("clang");
    clang.args(["-O1", "-shared", "-fPIC", "-o"]).arg(to).arg(source);
    clang.status().is_ok_and(|status| status.success())
}

#[test]
fn setting_the_clock_disturbs_nothing_and_is_reported() {
    let Some(net) = Net::pair("setting_the_clock_disturbs_nothing_and_is_reported") else { return };
    let (library, shown) = (net.file("clock.so"), net.file("clock"));
    assert!(compile(&library), "clang, which the build needs anyway, compiles it");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&shown);
    let clock = Clock(file.unwrap());
    clock.set(0, 0);
    let _reflector = net.reflect("");
    let records = net.file("watched.jsonl");
    let mut command = net.topology.probe.command("env");
    command.arg(format!("LD_PRELOAD={}", library.display()));
    command.arg(format!("SONDE_TEST_CLOCK={}", shown.display()));
    command.arg(SONDE).args(["probe", "10.1.0.2", "--engine", "socket", "-i", "20ms"]);
    command.args(["--timeout", "500ms", "--record-interval", "200ms", "--json", "--jsonl"]);
    command.arg(&records);
    let mut process = Process::start(command);
    let answered = |count: usize| {
        let records = records.clone();
        move |_: &Process| {
            intervals(&records).iter().filter(|i| i.counters.received > 0).count() >= count
        }
    };
    process.until("replies", answered(3));
    for (n, (utc, tai)) in [(10, 0), (0, 0), (-10, 0), (-10, 37)]
        .map(|(u, t)| (u * SECOND, t * SECOND))
        .into_iter()
        .enumerate()
    {
        let before = intervals(&records);
        clock.set(utc, tai);
        process.until("the step", |_| {
            let stepped = |i: &&_| -> bool {
                let i: &sonde_results::Interval = i;
                i.caveats.contains(Caveat::ClockStepped)
            };
            intervals(&records).iter().skip(before.len()).any(|i| stepped(&i))
        });
        process.until("replies after it", answered(before.len() + 3 + n));
    }
    process.signal("INT");
    let run = read_run(&process.end(), "preloaded clock");
    let total = &run.overall;
    assert!(total.rtt.max < SECOND, "{:?}", total.rtt);
    assert!(total.rtt.min > 0 && total.rtt_net.min > -SECOND);
    assert_eq!(run.health.counters["sender_clock_steps"], 4);
    // 10, 10, 10 and 37 seconds.
    let stepped = run.health.counters["sender_clock_stepped_by_ms"];
    assert!((66_990..=67_010).contains(&stepped), "{stepped} ms");
    // The schedule went on, and records hold UTC as the clock had it at their time.
    let all = intervals(&records);
    let gaps: Vec<i64> = all.windows(2).map(|pair| pair[1].start_ns - pair[0].end_ns).collect();
    let steps =
        |by: i64| gaps.iter().filter(|&&gap| (gap - by * SECOND).abs() < 5 * SECOND).count();
    assert_eq!((steps(10), steps(-10)), (1, 2), "{gaps:?}");
    assert_eq!(steps(0), gaps.len() - 3, "{gaps:?}");
}

/// Intervals of the passive instruments go on, and a step is reported.
#[test]
fn passive_instruments_notice_a_clock_that_is_set() {
    let Some(net) = Net::pair("passive_instruments_notice_a_clock_that_is_set") else { return };
    let (library, shown) = (net.file("clock.so"), net.file("clock"));
    assert!(compile(&library), "clang, which the build needs anyway, compiles it");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&shown);
    let clock = Clock(file.unwrap());
    let rtt = ["rtt", "eth0", "--format", "jsonl", "-i", "100ms"];
    let flow = ["flow", "eth0", "-i", "100ms", "--json"];
    for (arguments, engine) in
        [(&rtt[..], None), (&rtt, Some("af_packet")), (&flow, None), (&flow, Some("header"))]
    {
        clock.set(0, 0);
        let mut command = net.topology.probe.command("env");
        command.arg(format!("LD_PRELOAD={}", library.display()));
        command.arg(format!("SONDE_TEST_CLOCK={}", shown.display()));
        command.arg(SONDE).args(arguments);
        command.args(engine.iter().flat_map(|engine| ["--engine", engine]));
        let mut process = Process::start(command);
        let mut ping = net.topology.probe.command("ping");
        ping.args(["-q", "-i", "0.02", "10.1.0.2"]);
        let ping = Process::start(ping);
        // A record or a line for each interval.
        let intervals = |p: &Process| {
            let lines = p.out().into_iter().chain(p.err());
            lines.filter(|l| l.contains("\"coverage\"") || l.contains("packets ")).count()
        };
        process.until("intervals", |p| intervals(p) >= 2);
        for utc in [-10 * SECOND, 10 * SECOND] {
            let before = intervals(&process);
            clock.set(utc, 0);
            process.until("intervals after the clock was set", |p| intervals(p) >= before + 15);
            // Set forward by 20 s, they do not come in a lump either.
            assert!(intervals(&process) < before + 100, "{arguments:?} {engine:?}");
        }
        ping.signal("INT");
        ping.end();
        process.signal("INT");
        let ended = process.end();
        assert!(ended.out.contains("\"clock_stepped\""), "{arguments:?} {engine:?}: {}", ended.out);
        // The pings went on through all of it: no time spans a step, and UTC is that of the end.
        let flows = flows(&ended.out);
        assert!(!flows.is_empty(), "{arguments:?} {engine:?}: {}", ended.out);
        let utc = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        for (start, end) in flows {
            let shown = format!("{arguments:?} {engine:?}: {start} {end}, {utc:?}");
            assert!((2 * SECOND..60 * SECOND).contains(&(end - start)), "{shown}");
            let ago = utc.as_nanos() as i64 + 10 * SECOND - end;
            assert!((0..10 * SECOND).contains(&ago), "{shown}");
        }
    }
}

/// Begin and end of each ICMP flow that `sonde rtt` or `sonde flow` printed.
fn flows(out: &str) -> Vec<(i64, i64)> {
    let integer = |value: &serde_json::Value| value.as_i64().unwrap();
    let lines = out.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let lines = lines.filter(|l| l["type"] == "flow" && l["flow"]["protocol"] == 1);
    let mut found: Vec<_> =
        lines.map(|l| (integer(&l["start_ns"]), integer(&l["end_ns"]))).collect();
    let run: Option<sonde_results::FlowRun> = serde_json::from_str(out).ok();
    let top = run.iter().flat_map(|run| &run.top).filter(|r| r.key.protocol == 1);
    found.extend(top.map(|record| (record.first_ns(), record.last_ns())));
    found
}
