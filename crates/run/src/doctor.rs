//! The instrument measures itself. How fine is the clock, how long does this machine stand still,
//! which stamps do the engines give here, what is the floor?
//!
//! Whatever can be tried is tried: an engine is opened, a program loaded, a packet sent. It is one
//! reading of a few seconds, so [`examine`] is a function and not a running instrument.

mod ceiling;
mod judge;

use std::borrow::Cow;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use sonde_bpf::reflect::{KernelReflector, KernelReflectorConfig};
use sonde_port::{Engine, Filter, OpenSpec, Port, PortError};
use sonde_results::{Hist, HostInfo};
use sonde_sys::clock::{self, ClockState};
use sonde_sys::host::{HostFacts, InterfaceFacts};

use crate::error::RunError;
use crate::header::describe_host;
use crate::probe::settings::DEFAULT_SOURCE_PORT;

/// How an engine is opened: [`sonde_port`]'s function, or a test's.
pub type Opener<'a> = &'a dyn Fn(Engine, &OpenSpec) -> Result<Box<dyn Port>, PortError>;

/// Whether a finding is worth a worry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DoctorVerdict {
    /// As it should be, or of no weight.
    Ok,
    /// It works, with less accuracy or speed.
    Warn,
}

/// The result of one check of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// What was looked at; stable, for programs.
    pub check: &'static str,
    /// Whether it degrades measuring.
    pub verdict: DoctorVerdict,
    /// What was found, for people.
    pub found: String,
    /// What to do about it, where there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Cow<'static, str>>,
}

/// What was looked at, on this host.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The machine that was looked at.
    pub host: HostInfo,
    /// What was found, in the order in which it was looked at.
    pub findings: Vec<DoctorFinding>,
}

/// Examines this host, and one interface of it if it is named.
///
/// # Errors
/// No such interface; no loopback interface.
pub fn examine(interface: Option<&str>) -> Result<Examined, RunError> {
    examine_by(interface, &sonde_port::open)
}

/// What can be found of this host without load, so that who measures meanwhile is not disturbed: no
/// engine is tried, no packet sent. An interface of these that is not there is a warning.
pub fn glance<'a>(interfaces: impl IntoIterator<Item = &'a str>) -> Vec<DoctorFinding> {
    let (facts, state) = (HostFacts::read(), clock::clock_state());
    let mut findings = vec![
        judge::clock_source(&facts.clock_source),
        judge::resolution(&clock::resolution()),
        judge::synchronisation(&state),
        judge::tai_offset(&state),
        judge::governors(&facts.governors),
        judge::isolated(&facts.isolated_cpus, facts.cpus),
        judge::huge_pages(&facts.huge_pages),
    ];
    for name in interfaces {
        match InterfaceFacts::read(name) {
            Ok(facts) => findings.extend(judge::interface(name, &facts)),
            Err(error) => findings.push(DoctorFinding {
                check: "interface",
                verdict: DoctorVerdict::Warn,
                found: error.to_string(),
                advice: Some("make it, or name another one ('ip link' lists them)".into()),
            }),
        }
    }
    findings
}

fn examine_by(interface: Option<&str>, open: Opener<'_>) -> Result<Examined, RunError> {
    let driver = match interface {
        Some(name) => Some((name, InterfaceFacts::read(name).map_err(|e| anyhow!(e))?)),
        None => None,
    };
    let (facts, state) = (HostFacts::read(), clock::clock_state());
    let mut findings = of_host(&facts, &state)?;
    findings.push(judge::engine(Engine::Socket, "lo", opened(Engine::Socket, Some("lo"), open)));
    for &engine in Engine::ALL {
        let measured = ceiling::measure(engine, CEILING, open).map_err(|e| format!("{e:#}"));
        findings.push(judge::ceiling(engine, measured));
    }
    if let Some((name, facts)) = &driver {
        findings.extend(judge::interface(name, facts));
        for &engine in Engine::ALL {
            findings.push(judge::engine(engine, name, opened(engine, Some(name), open)));
        }
    }
    Ok(Examined { host: describe_host(&facts, &state), findings })
}

/// What can be found without an interface.
fn of_host(facts: &HostFacts, state: &ClockState) -> anyhow::Result<Vec<DoctorFinding>> {
    let pauses = clock::measure_pauses(WATCHED, PAUSE_THRESHOLD);
    let stolen = HostFacts::read().stolen.saturating_sub(facts.stolen);
    Ok(vec![
        judge::clock_source(&facts.clock_source),
        judge::resolution(&clock::resolution()),
        judge::synchronisation(state),
        judge::tai_offset(state),
        judge::pauses(&pauses),
        judge::stolen(stolen),
        judge::loopback(&loopback(ROUND_TRIPS)?),
        judge::program(load_program()),
        judge::governors(&facts.governors),
        judge::isolated(&facts.isolated_cpus, facts.cpus),
        judge::huge_pages(&facts.huge_pages),
    ])
}

/// Opens the engine as an instrument would, and lets it go again.
fn opened(
    engine: Engine,
    interface: Option<&str>,
    open: Opener<'_>,
) -> Result<judge::OpenedEngine, PortError> {
    // Any port will do that nobody has: ask the kernel for one.
    let free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|s| s.local_addr())
        .map_or(DEFAULT_SOURCE_PORT, |a| a.port());
    let filter = Filter { local_ports: vec![free], ..Filter::default() };
    let port = open(engine, &OpenSpec::new(interface.map(String::from), filter))?;
    let caps = port.caps();
    Ok(judge::OpenedEngine { mode: caps.mode.clone(), rx: caps.rx_stamp, tx: caps.tx_stamp })
}

/// Loads the reflector's program, attached to nothing.
fn load_program() -> Result<(), String> {
    let any = [(Ipv4Addr::LOCALHOST.into(), 32)];
    KernelReflector::load(&KernelReflectorConfig {
        max_sessions: 16,
        ..KernelReflectorConfig::new(862, &any)
    })
    .map(drop)
    .map_err(|e| e.to_string())
}

/// Round trips over the loopback interface by one thread and two plain sockets. They show what
/// system calls and the network stack cost here, without a wire or a wake-up.
fn loopback(rounds: usize) -> anyhow::Result<Hist> {
    let trip = || -> std::io::Result<Hist> {
        let a = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let b = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        a.connect(b.local_addr()?)?;
        b.connect(a.local_addr()?)?;
        for socket in [&a, &b] {
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        }
        let mut hist = Hist::default();
        let mut packet = [0; 122];
        for round in 0..rounds + WARM_UP {
            let start = Instant::now();
            a.send(&packet)?;
            b.recv(&mut packet)?;
            b.send(&packet)?;
            a.recv(&mut packet)?;
            if round >= WARM_UP {
                hist.add(start.elapsed().as_nanos() as i64);
            }
        }
        Ok(hist)
    };
    trip().context("no round trip over loopback; is 'lo' up ('ip link set lo up')?")
}

const WATCHED: Duration = Duration::from_secs(1);
/// Longer than anything the loop itself does, shorter than what spoils a measurement.
const PAUSE_THRESHOLD: Duration = Duration::from_micros(10);
const ROUND_TRIPS: usize = 2_000;
const WARM_UP: usize = 100;

/// How long each engine's ceiling is tried.
const CEILING: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_really_measured() {
        let hist = loopback(50).unwrap();
        assert_eq!(hist.count, 50);
        assert!(hist.min > 0);
    }

    #[test]
    fn a_glance_names_an_interface_that_is_missing_and_tries_no_engine() {
        let findings = glance(["lo", "nosuchif0"]);
        let missing = findings.last().unwrap();
        assert_eq!((missing.check, missing.verdict), ("interface", DoctorVerdict::Warn));
        assert!(missing.found.contains("nosuchif0"), "{missing:?}");
        let has = |check: &str| findings.iter().any(|finding| finding.check == check);
        assert!(has("clock source") && !has("pauses"), "{findings:?}");
    }

    #[test]
    fn a_missing_interface_is_named() {
        let open = |_: Engine, _: &OpenSpec| -> Result<Box<dyn Port>, PortError> {
            Err(PortError::Config("not reached".into()))
        };
        match examine_by(Some("nosuchif0"), &open) {
            Err(RunError::Host(error)) => {
                assert!(error.to_string().contains("nosuchif0"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}
