//! From what was found to a verdict and one line of advice. Pure functions.

use sonde_port::{Engine, PortError};
use sonde_results::units::{format_count, format_ns, format_ns_or_dash, format_percent};
use sonde_results::{Caveat, Hist};
use sonde_sys::clock::{ClockResolution, ClockState, PauseReport};
use sonde_sys::host::{HugePages, InterfaceFacts};
use sonde_wire::StampSource;
use std::time::Duration;

use super::ceiling::Ceiling;
use super::{DoctorFinding, DoctorVerdict};

/// What an engine turned out to be once open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedEngine {
    /// The engine's mode, as its port names it.
    pub mode: String,
    /// Where it stamps what it receives.
    pub rx: StampSource,
    /// Where it stamps what it sends.
    pub tx: StampSource,
}

pub fn clock_source(name: &str) -> DoctorFinding {
    let good = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    finding(
        "clock source",
        good.contains(&name),
        if name.is_empty() { "unknown".into() } else { name.into() },
        "each reading is a system call or slower; see 'dmesg | grep -i tsc' for why tsc is not used",
    )
}

pub fn resolution(r: &ClockResolution) -> DoctorFinding {
    finding(
        "clock resolution",
        r.read_ns <= DEAR_READ && r.claimed_ns <= 1,
        format!(
            "steps of {}, a reading costs {}",
            format_ns(r.step_ns as f64),
            format_ns(r.read_ns as f64)
        ),
        "user-space stamps suffer; prefer engines whose stamps the kernel or the card takes",
    )
}

pub fn synchronisation(state: &ClockState) -> DoctorFinding {
    let bound = format_ns(state.max_error_ns as f64);
    finding(
        "clock synchronised",
        state.synchronised,
        match state.synchronised {
            true => format!("yes, to within {bound}"),
            false => format!("no; the kernel bounds its error by {bound}"),
        },
        Caveat::LocalClockUnsynchronised.advice(),
    )
}

pub fn tai_offset(state: &ClockState) -> DoctorFinding {
    let found = match state.tai_offset_s {
        0 => "not set: the kernel's TAI is UTC (of no weight but at a leap second)".to_string(),
        seconds => format!("TAI - UTC = {seconds} s"),
    };
    finding("TAI offset", true, found, "")
}

pub fn pauses(report: &PauseReport) -> DoctorFinding {
    let watched = report.watched_ns.max(1) as f64;
    let lost = report.stats.total_ns as f64 / watched;
    finding(
        "pauses",
        report.stats.max_ns <= LONG_PAUSE && lost <= 0.01,
        format!(
            "{} over 10 us in {}, longest {}, {} of the time",
            format_count(report.stats.count),
            format_ns(watched),
            format_ns(report.stats.max_ns as f64),
            format_percent(lost)
        ),
        "maxima will show them; use an idle host or isolated cores (isolcpus, `engine.cpu`)",
    )
}

pub fn stolen(time: Duration) -> DoctorFinding {
    finding(
        "stolen time",
        time.is_zero(),
        format!("{} while watching", format_ns(time.as_nanos() as f64)),
        "the hypervisor gives this machine's processors to others; ask for dedicated ones",
    )
}

/// What an engine carries over loopback; the error is why it could not be tried.
pub fn ceiling(engine: Engine, measured: Result<Ceiling, String>) -> DoctorFinding {
    let check = match engine {
        Engine::Socket => "ceiling of socket",
        Engine::AfPacket => "ceiling of af_packet",
        Engine::AfXdp => "ceiling of af_xdp",
    };
    match measured {
        Ok(c) => finding(
            check,
            c.per_second >= LEAST_CEILING,
            format!(
                "{} packets/s sent and received on one core over loopback, {} lost at that",
                format_count(c.per_second as u64),
                format_percent(c.lost)
            ),
            "plan for half of it at most; a busy host or a slow one sets this",
        ),
        Err(why) => finding(check, true, format!("not tried: {why}"), ""),
    }
}

pub fn loopback(hist: &Hist) -> DoctorFinding {
    let at = |q| format_ns_or_dash(hist.quantile(q));
    finding(
        "loopback floor",
        hist.quantile(0.5).is_some_and(|p50| p50 <= SLOW_LOOPBACK),
        format!(
            "round trip by plain sockets: min {}, p50 {}, p99 {}, max {}",
            format_ns_or_dash(hist.min()),
            at(0.5),
            at(0.99),
            format_ns_or_dash(hist.max())
        ),
        "system calls are slow here; firewall rules, mitigations or a busy host may be why",
    )
}

pub fn program(loaded: Result<(), String>) -> DoctorFinding {
    match loaded {
        Ok(()) => finding("BPF programs", true, "load".into(), ""),
        Err(e) => finding(
            "BPF programs",
            false,
            format!("do not load: {}", e.lines().next().unwrap_or_default()),
            "needed by af_xdp, 'sonde reflect --kernel', 'sonde rtt IFACE' (but with --engine af_packet) and 'sonde flow --engine header'; run as root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN)",
        ),
    }
}

pub fn governors(governors: &[String]) -> DoctorFinding {
    let found = if governors.is_empty() {
        "the frequency is not the kernel's to set".into()
    } else {
        governors.join(", ")
    };
    finding(
        "frequency governor",
        governors.iter().all(|g| g == "performance"),
        found,
        "processors that slow down add delay: 'cpupower frequency-set -g performance'",
    )
}

pub fn isolated(list: &str, cpus: u32) -> DoctorFinding {
    let found = match list {
        "" => format!("none of {cpus}"),
        list => list.to_string(),
    };
    finding(
        "isolated processors",
        !list.is_empty(),
        found,
        "for the least lateness boot with isolcpus=N and run with `engine.cpu = N`",
    )
}

pub fn huge_pages(pages: &HugePages) -> DoctorFinding {
    let found = format!(
        "{} of {} free, {} KiB each (not needed: transparent ones are used)",
        pages.free, pages.total, pages.size_kib
    );
    finding("huge pages", true, found, "")
}

/// What the driver of an interface says about itself.
pub fn interface(name: &str, facts: &InterfaceFacts) -> Vec<DoctorFinding> {
    let queues = |n: Option<u32>| n.map_or("?".to_string(), |n| n.to_string());
    let yes = |on: bool| if on { "yes" } else { "no" };
    let wait = facts.rx_coalesce_us.unwrap_or(0);
    vec![
        finding(
            "interface",
            true,
            format!(
                "{name}: driver {}, {} receive and {} transmit queues",
                facts.driver.as_deref().unwrap_or("unknown"),
                queues(facts.rx_queues),
                queues(facts.tx_queues)
            ),
            "",
        ),
        finding(
            "stamps by the card",
            true,
            format!(
                "received {}, transmitted {}{}",
                yes(facts.stamps.rx_hardware),
                yes(facts.stamps.tx_hardware),
                facts.stamps.phc.map_or(String::new(), |n| format!(", clock /dev/ptp{n}"))
            ),
            "",
        ),
        finding(
            "interrupt delay",
            wait == 0,
            format!("{wait} us"),
            "receive stamps by software come late by up to this: 'ethtool -C IF adaptive-rx off rx-usecs 0'",
        ),
        finding(
            "large receive offload",
            facts.offloads.lro != Some(true),
            yes(facts.offloads.lro == Some(true)).to_string(),
            "XDP cannot attach: 'ethtool -K IF lro off'",
        ),
    ]
}

/// What became of opening an engine.
pub fn engine(
    engine: Engine,
    interface: &str,
    opened: Result<OpenedEngine, PortError>,
) -> DoctorFinding {
    let check = match engine {
        Engine::Socket => "engine socket",
        Engine::AfPacket => "engine af_packet",
        Engine::AfXdp => "engine af_xdp",
    };
    match opened {
        Ok(o) => finding(
            check,
            o.rx != StampSource::User && o.tx != StampSource::User,
            format!(
                "on {interface}: {}; received stamped by {}, transmitted by {}",
                o.mode,
                format!("{:?}", o.rx).to_lowercase(),
                format!("{:?}", o.tx).to_lowercase()
            ),
            "stamps by user space include this host's scheduling; another engine may do better",
        ),
        Err(e) => finding(
            check,
            false,
            format!("on {interface}: {e}"),
            "choose another engine, or mend this",
        ),
    }
}

/// User-space stamps err by at least this much anyway, ns.
const DEAR_READ: i64 = 200;
/// The maximum that a time stamp may be off by, ns: the goal of the project.
const LONG_PAUSE: i64 = 50_000;
const SLOW_LOOPBACK: i64 = 50_000;

fn finding(check: &'static str, good: bool, found: String, advice: &'static str) -> DoctorFinding {
    DoctorFinding {
        check,
        verdict: if good { DoctorVerdict::Ok } else { DoctorVerdict::Warn },
        found,
        advice: (!good).then_some(advice.into()),
    }
}

/// Packets a second below which the smallest of the usual loads is at risk.
const LEAST_CEILING: f64 = 20_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_sys::SysError;
    use sonde_sys::clock::PauseStats;
    use sonde_sys::host::Offloads;

    fn warns(finding: &DoctorFinding) -> bool {
        assert_eq!(finding.advice.is_some(), finding.verdict == DoctorVerdict::Warn);
        assert!(finding.advice.as_ref().is_none_or(|a| !a.is_empty()));
        finding.verdict == DoctorVerdict::Warn
    }

    #[test]
    fn clocks() {
        assert!(!warns(&clock_source("tsc")) && warns(&clock_source("hpet")));
        assert!(!warns(&resolution(&ClockResolution { claimed_ns: 1, step_ns: 20, read_ns: 22 })));
        assert!(warns(&resolution(&ClockResolution { claimed_ns: 1, step_ns: 800, read_ns: 800 })));
        let mut state = ClockState {
            tai_offset_s: 37,
            synchronised: true,
            max_error_ns: 1_500_000,
            est_error_ns: 0,
        };
        assert_eq!(synchronisation(&state).found, "yes, to within 1.50 ms");
        assert_eq!(tai_offset(&state).found, "TAI - UTC = 37 s");
        state.synchronised = false;
        assert!(warns(&synchronisation(&state)));
    }

    #[test]
    fn whoever_needs_bpf_programs_is_named_with_the_capabilities() {
        let refused = program(Err("this process lacks CAP_BPF\nsecond line".into()));
        assert!(warns(&refused) && refused.found == "do not load: this process lacks CAP_BPF");
        for part in [
            "af_xdp",
            "reflect --kernel",
            "rtt IFACE",
            "flow --engine header",
            "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN",
        ] {
            let advice = refused.advice.as_deref().unwrap_or_default();
            assert!(advice.contains(part), "{part}: {advice}");
        }
    }

    #[test]
    fn pauses_are_judged_by_the_longest_and_by_their_share() {
        let report = |count, total_ns, max_ns| PauseReport {
            watched_ns: 1_000_000_000,
            stats: PauseStats { count, total_ns, max_ns },
            pauses: Vec::new(),
        };
        assert!(!warns(&pauses(&report(0, 0, 0))));
        assert!(warns(&pauses(&report(1, 761_000, 761_000))));
        assert!(warns(&pauses(&report(1_000, 20_000_000, 20_000))));
        assert_eq!(
            pauses(&report(1, 761_000, 761_000)).found,
            "1 over 10 us in 1.00 s, longest 761 us, 0.0761% of the time"
        );
        assert!(warns(&stolen(Duration::from_millis(10))) && !warns(&stolen(Duration::ZERO)));
    }

    #[test]
    fn tuning() {
        assert!(!warns(&governors(&[])) && warns(&governors(&["powersave".into()])));
        assert!(warns(&isolated("", 2)) && !warns(&isolated("1", 2)));
        assert!(warns(&program(Err("no\nmore".into()))));
        let facts = InterfaceFacts {
            rx_coalesce_us: Some(30),
            offloads: Offloads { lro: Some(true), ..Offloads::default() },
            ..InterfaceFacts::default()
        };
        assert_eq!(interface("eth0", &facts).iter().filter(|f| warns(f)).count(), 2);
    }

    #[test]
    fn engines() {
        let mut opened = OpenedEngine {
            mode: "copy mode".into(),
            rx: StampSource::Driver,
            tx: StampSource::Kernel,
        };
        let good = engine(Engine::AfXdp, "eth0", Ok(opened.clone()));
        assert!(!warns(&good));
        assert_eq!(
            good.found,
            "on eth0: copy mode; received stamped by driver, transmitted by kernel"
        );
        opened.tx = StampSource::User;
        assert!(warns(&engine(Engine::AfXdp, "eth0", Ok(opened))));
        assert!(warns(&engine(
            Engine::AfPacket,
            "x",
            Err(SysError::NoInterface("x".into()).into())
        )));
    }
}
