//! A network to test in, and the commands that run in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sonde_lab::{Host, LinkOptions, Topology};
use sonde_results::caveat::Caveat;
use sonde_results::record::Interval;
use sonde_results::run::Run;
use sonde_wire::capture;

use crate::process::{Ended, Process};
use crate::turn::{self, Turn};

pub const ENGINES: [&str; 3] = ["socket", "af_packet", "af_xdp"];

/// A topology and a folder for files, both removed when dropped.
pub struct Net {
    pub topology: Topology,
    folder: PathBuf,
    _turn: Turn,
}

impl Net {
    /// Makes the link of a pair whose interfaces were removed again, under the same names.
    pub fn make_link_again(&self) {
        let (near, far) = (&self.topology.probe, &self.topology.reflector);
        let end = |host: &sonde_lab::Host| ["name", "eth0", "netns", host.name()].map(String::from);
        let made = Command::new("ip")
            .args(["link", "add"])
            .args(end(near))
            .args(["type", "veth", "peer"])
            .args(end(far))
            .status();
        assert!(made.unwrap().success());
        for (host, address) in [(near, "10.1.0.1/24"), (far, "10.1.0.2/24")] {
            host.set_feature("eth0", "gro", true).unwrap();
            host.set_up("eth0", true).unwrap();
            host.add_address("eth0", address).unwrap();
        }
    }

    /// Probe and reflector on one link; `None` without root.
    pub fn pair(test: &str) -> Option<Net> {
        Net::make(test, Topology::pair)
    }

    /// Probe, router, reflector; `None` without root.
    pub fn three_hosts(test: &str) -> Option<Net> {
        Net::make(test, Topology::three_hosts)
    }

    fn make(
        test: &str,
        topology: impl Fn(&str, &LinkOptions) -> Result<Topology, sonde_lab::LabError>,
    ) -> Option<Net> {
        if sonde_lab::skip(test) {
            return None;
        }
        let turn = turn::alone();
        let topology = topology("e2e", &LinkOptions::default()).unwrap();
        let name = topology.probe.name();
        let folder = std::env::temp_dir().join(format!("{name}.files"));
        std::fs::create_dir_all(&folder).unwrap();
        Some(Net { topology, folder, _turn: turn })
    }

    /// A file that goes with the network.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts `sonde reflect` with counters as JSON, and waits until it reflects.
    pub fn reflect(&self, arguments: &str) -> Reflector {
        let mut command = self.topology.reflector.command(SONDE);
        command.arg("reflect").args(arguments.split_whitespace());
        let mut process = Process::start(json_reports(command));
        process.until("the first report", |p| !p.out().is_empty());
        Reflector(process)
    }

    pub fn start(&self, arguments: &str) -> Process {
        let mut command = self.topology.probe.command(SONDE);
        command.arg("probe").args(arguments.split_whitespace());
        Process::start(command)
    }

    /// Runs `sonde probe` to its end.
    pub fn probe(&self, arguments: &str) -> Ended {
        self.start(arguments).end()
    }

    /// Runs `sonde probe`, which must succeed, and reads the run that it prints.
    pub fn measure(&self, arguments: &str) -> Run {
        read_run(&self.probe(&format!("{arguments} --json")), arguments)
    }

    /// Starts a capture on a host's interface, and waits until it captures.
    pub fn capture(&self, host: &Host, interface: &str) -> Capture {
        let file = self.file("capture.pcap");
        let mut command = host.command("tcpdump");
        command.args([
            "-i",
            interface,
            "-U",
            "--immediate-mode",
            "-B",
            "16384",
            "-Z",
            "root",
            "-w",
        ]);
        command.arg(&file).args(["udp", "port", "862"]);
        let mut process = Process::start(command);
        process.until("the capture", |p| p.err().iter().any(|l| l.contains("listening on")));
        Capture { process, file }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Adds what makes a reflector report as JSON several times a second.
pub fn json_reports(mut command: Command) -> Command {
    command.args(["--json", "--report-interval", "100ms"]);
    command
}

/// The run that `sonde probe --json` printed, if it went well.
pub fn read_run(ended: &Ended, what: &str) -> Run {
    let run = serde_json::from_str::<Run>(&ended.out)
        .unwrap_or_else(|e| panic!("{what}: {e}: {}{}", ended.out, ended.err));
    let seen = (&run.overall.counters, &run.health.counters, &run.caveats);
    assert_eq!(ended.code, 0, "{what}: {seen:?} {}", ended.err);
    run
}

/// A running `sonde reflect`.
pub struct Reflector(pub Process);

impl Reflector {
    /// The latest of its reports.
    pub fn report(&self) -> Value {
        serde_json::from_str(self.0.out().last().unwrap()).unwrap()
    }

    /// A value in it, by its path: "/user/reflected".
    pub fn count(&self, path: &str) -> u64 {
        let report = self.report();
        report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {report}"))
    }

    /// Waits until a value is at least `n`.
    pub fn until(&mut self, path: &str, n: u64) {
        self.0.until(&format!("{path} >= {n}"), |p| {
            let report: Value = serde_json::from_str(p.out().last().unwrap()).unwrap();
            report.pointer(path).and_then(Value::as_u64).is_some_and(|v| v >= n)
        });
    }

    /// Ends it by Ctrl-C, which must go well.
    pub fn stop(self) -> Ended {
        self.0.signal("INT");
        let ended = self.0.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        ended
    }
}

pub struct Capture {
    process: Process,
    file: PathBuf,
}

impl Capture {
    /// Waits for `count` frames, which must be all, and ends it; the frames, with their
    /// times in ns.
    pub fn frames(mut self, count: usize) -> Vec<(i64, Vec<u8>)> {
        let file = self.file.clone();
        let frames = move || {
            let bytes = std::fs::read(&file).unwrap();
            let reader = capture::Reader::new(&bytes).unwrap();
            // The last one may be half written.
            reader.map_while(Result::ok).map(|r| (r.unix_nanos, r.data.to_vec())).collect()
        };
        let counted = frames.clone();
        self.process.until(&format!("{count} frames"), |_| {
            let so_far: Vec<_> = counted();
            so_far.len() >= count
        });
        self.process.signal("INT");
        let ended = self.process.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let frames: Vec<_> = frames();
        assert_eq!(frames.len(), count, "{}", ended.err);
        frames
    }
}

/// A counter of the instrument or the engine.
pub fn health(run: &Run, name: &str) -> u64 {
    *run.health.counters.get(name).unwrap_or_else(|| panic!("{name}: {:?}", run.health.counters))
}

/// Every probe of every stream was sent, answered once, and accounted for.
pub fn assert_clean(run: &Run, streams: usize, probes: u64, what: &str) {
    assert_eq!((run.streams.len(), run.totals.len()), (streams, streams), "{what}");
    for (info, total) in run.streams.iter().zip(&run.totals) {
        let c = &total.counters;
        let what = || {
            let (to, dscp, health) = (info.destination, info.dscp, &run.health.counters);
            format!("{what}: {to} {dscp}: {c:?} {:?} {health:?}", total.caveats)
        };
        assert_eq!((c.sent, c.received, c.lost), (probes, probes, 0), "{}", what());
        assert_eq!(c.lost_unknown, 0, "{}", what());
        assert_eq!((c.duplicated, c.late), (0, 0), "{}", what());
        assert_eq!(total.rtt.count, probes, "{}", what());
        assert!(total.rtt.min > 0, "{}", what());
        // Over veth the AF_XDP engine's transmit stamp is taken when the far side takes
        // the frame: if the machine pauses just then, T1 follows T2. Said, and not counted.
        let said = total.caveats.contains(Caveat::ReflectorTimesWrong);
        assert!(total.rtt_net.count == probes || said, "{}", what());
        assert!(total.rtt_net.max <= total.rtt.max, "{}", what());
        assert!(total.rtt_net.sum <= total.rtt.sum, "{}", what());
    }
    let all = probes * streams as u64;
    assert!(run.overall.rtt_net.count * 2 >= all, "{what}: {}", run.overall.rtt_net.count);
    assert_eq!((run.overall.counters.sent, run.overall.counters.received), (all, all), "{what}");
    for name in ["port_rx_dropped", "port_rx_invalid", "port_tx_dropped", "sender_unresolved"] {
        assert_eq!(health(run, name), 0, "{what}: {name}: {:?}", run.health.counters);
    }
    for name in ["forged", "malformed", "short", "wrong_session", "histogram_refused"] {
        assert_eq!(health(run, &format!("sender_{name}")), 0, "{what}: {name}");
    }
    for caveat in [Caveat::OwnDrops, Caveat::InvalidReplies, Caveat::NoReply, Caveat::SendsFailed] {
        assert!(!run.caveats.contains(caveat), "{what}: {caveat:?}");
    }
}

/// The interval records in a JSON Lines file so far; half a line is left for later.
pub fn intervals(file: &Path) -> Vec<Interval> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let records = whole.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let of_type = |r: &Value| r["type"] == "interval";
    records.filter(of_type).map(|r| serde_json::from_value(r).unwrap()).collect()
}

/// The binary under test.
pub const SONDE: &str = env!("CARGO_BIN_EXE_sonde");
