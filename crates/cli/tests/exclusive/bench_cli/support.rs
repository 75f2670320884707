//! What the tests of this folder run, and what they look at.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sonde_lab::{Host, Lab, LinkOptions};
use sonde_results::bench::{BenchRun, Measurement};
use sonde_results::trial::{Invalid, Trial};
use sonde_results::units::format_mac;
use sonde_sys::schedule::pin_to_cpu;
use sonde_testbed::store;

use crate::process::{Ended, Process};
use crate::turn::{self, Turn};

const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

/// A folder of one test, with its plan and its run; removed when dropped.
pub struct Folder(PathBuf, #[expect(dead_code, reason = "held")] Turn);

impl Folder {
    pub fn with_plan(plan: &str) -> Folder {
        Folder::new(plan, turn::shared())
    }

    /// For a test that takes the whole host's processors: others' trials would be invalid.
    pub fn alone(plan: &str) -> Folder {
        Folder::new(plan, turn::alone())
    }

    fn new(plan: &str, turn: Turn) -> Folder {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("sonde-bench-{}-{serial}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let folder = Folder(path, turn);
        std::fs::write(folder.file("plan.toml"), plan).unwrap();
        folder
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where the run is.
    pub fn run(&self) -> PathBuf {
        self.file("run")
    }

    /// `sonde bench` with the plan.
    pub fn command(&self) -> Command {
        let mut command = Command::new(SONDE);
        command.arg("bench").arg(self.file("plan.toml")).arg("--out").arg(self.run());
        command
    }

    pub fn start(&self) -> Process {
        Process::start(self.command())
    }

    /// Runs the plan, or what is left of it, to its end.
    pub fn bench(&self) -> Ended {
        self.finish(self.start())
    }

    /// The same in which the process leaves nothing behind, and what it saved is consistent.
    pub fn whole_run(&self) -> (Ended, BenchRun) {
        let process = self.start();
        let pid = process.id();
        let ended = self.finish(process);
        assert_nothing_left(pid);
        let run = self.read();
        assert_consistent(&run);
        (ended, run)
    }

    /// Waits for the end of a run of this folder, as long as it tries trial after trial.
    pub fn finish(&self, process: Process) -> Ended {
        let file = self.run().join("trials.jsonl");
        process.end_of(|| std::fs::metadata(&file).map_or(0, |m| m.len() as usize))
    }

    pub fn read(&self) -> BenchRun {
        store::read(&self.run()).unwrap()
    }

    /// Whole lines of `trials.jsonl` so far.
    pub fn trials(&self) -> Vec<String> {
        lines(&self.run().join("trials.jsonl"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

/// Polls until `condition` holds, or the process has ended; whether it holds.
pub fn until(process: &mut Process, mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while process.is_running() {
        if condition() {
            return true;
        }
        assert!(begin.elapsed() < BOUND, "hangs: {:#?}\n{:#?}", process.out(), process.err());
        std::thread::sleep(Duration::from_millis(2));
    }
    condition()
}

/// The calling thread runs on that processor only, before any of a tester's.
pub fn intrude(cpu: usize) {
    pin_to_cpu(cpu).unwrap();
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let mut prefer = Command::new("chrt");
    prefer.args(["-f", "-p", "50"]).arg(thread.file_name().unwrap());
    assert!(prefer.status().unwrap().success());
}

/// `sonde` with other arguments, to its end.
pub fn sonde(arguments: &[&str]) -> Ended {
    let mut command = Command::new(SONDE);
    command.args(arguments);
    Process::start(command).end()
}

/// A router of the lab, and loads that any host can offer. `more` has the procedures.
pub fn router(more: &str) -> String {
    format!("{}[[device]]\nname = 'router'\nkind = 'router'\n{more}", head("5k", "100ms"))
}

/// The head of a plan: short rests, many tries, since the host of a test is never quiet.
pub fn head(max_rate: &str, drain: &str) -> String {
    format!(
        "title = 'test'\n[bed]\nengine = 'af_packet'\nmax_rate = '{max_rate}'\ndrain = \
         '{drain}'\n[run]\nloop = false\nattempts = 30\nback_off = '20ms'\nwarm_up = '50ms'\n"
    )
}

/// Measurements of one trial each.
pub fn fixed(loads: &[&str], trial: &str) -> String {
    format!("[[procedure]]\nkind = 'fixed_load'\nloads = {loads:?}\ntrial = '{trial}'\n")
}

/// A device that is there: a namespace between the tester's ports, in which a test does what
/// it likes. It forwards nothing until then.
pub struct Between {
    pub a: Host,
    pub device: Host,
    pub b: Host,
    macs: [String; 4],
    _lab: Lab,
}

impl Between {
    /// `None` without root.
    pub fn new(test: &str) -> Option<Between> {
        if sonde_lab::skip(test) {
            return None;
        }
        let mut lab = Lab::new("benchcli").unwrap();
        let [a, device, b] = ["a", "dut", "b"].map(|name| lab.host(name).unwrap());
        for host in [&a, &device, &b] {
            // No packets of their own.
            host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        }
        let options = LinkOptions::default();
        let (mac_a, mac_1) = lab.link(&a, "eth0", &device, "eth1", &options).unwrap();
        let (mac_2, mac_b) = lab.link(&device, "eth2", &b, "eth0", &options).unwrap();
        Some(Between {
            a,
            device,
            b,
            macs: [mac_a, mac_1, mac_2, mac_b].map(format_mac),
            _lab: lab,
        })
    }

    pub fn route(&self) {
        self.device.sysctl(&["net.ipv4.ip_forward=1"]).unwrap();
        for (interface, network) in [("eth1", "198.18.0"), ("eth2", "198.19.0")] {
            self.device.add_address(interface, &format!("{network}.1/24")).unwrap();
        }
        self.device.set_neighbour("eth2", "198.19.0.2", &self.macs[3]).unwrap();
        self.device.add_route("198.19.0.0/16", &["via", "198.19.0.2"]).unwrap();
    }

    /// Its table in a plan, with the ports as a router or as a wire needs them.
    pub fn table(&self, router: bool) -> String {
        let hops = if router { [1, 2] } else { [3, 0] };
        self.table_with(hops.map(|n| format!("mac = '{}'", self.macs[n])))
    }

    /// The same, with the next hop of either port as the plan writes it.
    pub fn table_with(&self, next: [String; 2]) -> String {
        let port = |name, host: &Host, address, next: &str| {
            format!(
                "ports.{name} = {{ interface = 'eth0', netns = '{}', addresses = ['{address}'], \
                 {next} }}\n",
                host.name()
            )
        };
        format!(
            "[[device]]\nname = 'dut'\nkind = 'external'\n{}{}",
            port("a", &self.a, "198.18.0.2/24", &next[0]),
            port("b", &self.b, "198.19.0.2/24", &next[1])
        )
    }
}

/// No name of a namespace of that process.
pub fn assert_nothing_left(pid: u32) {
    let left = namespaces(pid);
    assert!(left.is_empty(), "{left:?}");
}

pub fn namespaces(pid: u32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.split('.').any(|part| part == pid.to_string())).collect()
}

/// Every measurement's trials are there and consistent: a load is tried again only after
/// a try that did not count.
pub fn assert_consistent(run: &BenchRun) {
    let numbers: Vec<u64> = run.trials.iter().map(|t| t.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let mut ids: Vec<&str> = run.measurements.iter().map(|m| m.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), run.measurements.len(), "{ids:?}");
    for m in &run.measurements {
        let own: Vec<&Trial> = run.trials.iter().filter(|t| t.measurement == m.id).collect();
        assert_eq!(m.trials, own.iter().map(|t| t.number).collect::<Vec<_>>(), "{}", m.id);
        for pair in own.windows(2).filter(|p| p[1].attempt > 1) {
            assert!(!pair[0].valid() && pair[0].offer == pair[1].offer, "{pair:?}");
        }
    }
}

/// A load whose measurement has one trial.
pub fn valid_trials<'a>(run: &'a BenchRun, m: &Measurement) -> Vec<&'a Trial> {
    run.trials.iter().filter(|t| t.measurement == m.id && t.valid()).collect()
}

pub fn is_interrupted(trial: &Trial) -> bool {
    trial.invalid == [Invalid::Interrupted]
}

const BOUND: Duration = Duration::from_secs(300);
