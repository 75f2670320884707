//! `sonde doctor`: the instrument measures itself. How fine is the clock, how long does
//! this machine stand still, which stamps do the engines give here, what is the floor?
//!
//! Whatever can be tried is tried: an engine is opened, a program loaded, a packet sent.

mod ceiling;
mod judge;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use serde_json::json;
use sonde_bpf::reflect::{KernelReflector, KernelReflectorConfig};
use sonde_port::{Engine, Filter, OpenSpec, Port, PortError};
use sonde_results::{Hist, Host};
use sonde_sys::clock::{self, ClockState};
use sonde_sys::host::{HostFacts, InterfaceFacts};
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::output::style::{Style, Tone};
use sonde_run::header::describe_host;

/// How an engine is opened: [`sonde_port`]'s function, or a test's.
pub type Opener<'a> = &'a dyn Fn(Engine, &OpenSpec) -> Result<Box<dyn Port>, PortError>;

/// Whether a finding is worth a worry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be, or of no weight.
    Ok,
    /// Numbers will suffer.
    Warn,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at; stable, for programs.
    pub check: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found, for people.
    pub found: String,
    /// What to do about it, where there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'static str>,
}

/// Examines this host and prints what it finds. Ends with 0 whatever that is: the
/// verdicts are in the output.
pub fn run(args: &DoctorArgs, open: Opener<'_>) -> Result<Exit, Failure> {
    let interface = match &args.iface {
        Some(name) => Some(InterfaceFacts::read(name).map_err(|e| anyhow!(e))?),
        None => None,
    };
    let (facts, state) = (HostFacts::read(), clock::clock_state());
    let mut findings = examine(&facts, &state)?;
    findings.push(judge::engine(Engine::Socket, "lo", opened(Engine::Socket, Some("lo"), open)));
    for engine in [Engine::Socket, Engine::AfPacket, Engine::AfXdp] {
        let measured = ceiling::measure(engine, CEILING, open).map_err(|e| format!("{e:#}"));
        findings.push(judge::ceiling(engine, measured));
    }
    if let (Some(name), Some(facts)) = (&args.iface, &interface) {
        findings.extend(judge::interface(name, facts));
        for engine in [Engine::Socket, Engine::AfPacket, Engine::AfXdp] {
            findings.push(judge::engine(engine, name, opened(engine, Some(name), open)));
        }
    }
    let host = describe_host(&facts, &state);
    let mut out = crate::console::out();
    let printed = if args.json {
        let warnings = findings.iter().filter(|f| f.verdict == Verdict::Warn).count();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": host,
            "interface": args.iface,
            "warnings": warnings,
            "findings": findings,
        });
        serde_json::to_writer_pretty(&mut out, &report)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        print(&mut out, &host, args.iface.is_some(), &findings, Style::for_stdout())
    };
    printed.context("cannot print the findings")?;
    Ok(Exit::Ok)
}

/// What can be found without an interface.
fn examine(facts: &HostFacts, state: &ClockState) -> anyhow::Result<Vec<Finding>> {
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
) -> Result<judge::Opened, PortError> {
    // Any port will do that nobody has: ask the kernel for one.
    let free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|s| s.local_addr())
        .map_or(crate::settings::DEFAULT_SOURCE_PORT, |a| a.port());
    let filter = Filter { local_ports: vec![free], ..Filter::default() };
    let port = open(engine, &OpenSpec::new(interface.map(String::from), filter))?;
    let caps = port.caps();
    Ok(judge::Opened { mode: caps.mode.clone(), rx: caps.rx_stamp, tx: caps.tx_stamp })
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

/// Round trips over the loopback interface by one thread and two plain sockets: what
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

fn print(
    out: &mut impl Write,
    host: &Host,
    interface: bool,
    findings: &[Finding],
    style: Style,
) -> std::io::Result<()> {
    let title = format!(
        "sonde {} on {}: kernel {}, {} processors, {}",
        env!("CARGO_PKG_VERSION"),
        host.name,
        host.kernel,
        host.cpus,
        host.cpu
    );
    writeln!(out, "{}", style.paint(Tone::Head, &title))?;
    for finding in findings {
        let (word, tone) = match finding.verdict {
            Verdict::Ok => ("OK  ", Tone::Good),
            Verdict::Warn => ("WARN", Tone::Warn),
        };
        writeln!(out, "{}  {:<22} {}", style.paint(tone, word), finding.check, finding.found)?;
        if let Some(advice) = finding.advice {
            writeln!(out, "{:29}{}", "", style.paint(Tone::Dim, advice))?;
        }
    }
    let warnings = findings.iter().filter(|f| f.verdict == Verdict::Warn).count();
    writeln!(out, "{} checks, {warnings} warnings", findings.len())?;
    if !interface {
        writeln!(
            out,
            "af_packet and af_xdp were tried on loopback only: name an interface with --iface"
        )?;
    }
    Ok(())
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
    fn a_missing_interface_is_code_3_and_named() {
        let args = DoctorArgs { iface: Some("nosuchif0".into()), json: false };
        let open = |_: Engine, _: &OpenSpec| -> Result<Box<dyn Port>, PortError> {
            Err(PortError::Config("not reached".into()))
        };
        match run(&args, &open) {
            Err(failure @ Failure::CannotRun(_)) => {
                assert!(failure.message().contains("nosuchif0"), "{}", failure.message());
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_text() {
        let findings = [
            Finding {
                check: "clock source",
                verdict: Verdict::Ok,
                found: "tsc".into(),
                advice: None,
            },
            Finding {
                check: "clock sync",
                verdict: Verdict::Warn,
                found: "not synchronised".into(),
                advice: Some("run chrony"),
            },
        ];
        let host = Host {
            name: "h".into(),
            kernel: "6".into(),
            cpus: 2,
            cpu: "c".into(),
            ..Host::default()
        };
        let mut out = Vec::new();
        print(&mut out, &host, true, &findings, Style::default()).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!(
                "sonde {version} on h: kernel 6, 2 processors, c\n\
                 OK    clock source           tsc\n\
                 WARN  clock sync             not synchronised\n                             run chrony\n\
                 2 checks, 1 warnings\n"
            )
        );
    }
}
