//! `sonde doctor`: has the instrument measure itself, and prints what it finds.

use std::io::Write;

use anyhow::Context as _;
use serde_json::json;
use sonde_results::HostInfo;
use sonde_run::doctor::{DoctorFinding, DoctorVerdict, Examined, examine};

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::options;
use crate::output::style::{Style, Tone};

/// Examines this host and prints what it finds. Ends with 0 whatever that is: the
/// verdicts are in the output.
pub fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let Examined { host, mut findings } = examine(args.iface.as_deref())?;
    for advice in findings.iter_mut().filter_map(|finding| finding.advice.as_mut()) {
        *advice = options::named(advice).into_owned().into();
    }
    let mut out = crate::console::out();
    let printed = if args.json {
        let warnings = findings.iter().filter(|f| f.verdict == DoctorVerdict::Warn).count();
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

fn print(
    out: &mut impl Write,
    host: &HostInfo,
    interface: bool,
    findings: &[DoctorFinding],
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
            DoctorVerdict::Ok => ("OK  ", Tone::Good),
            DoctorVerdict::Warn => ("WARN", Tone::Warn),
        };
        writeln!(out, "{}  {:<22} {}", style.paint(tone, word), finding.check, finding.found)?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "{:29}{}", "", style.paint(Tone::Dim, advice))?;
        }
    }
    let warnings = findings.iter().filter(|f| f.verdict == DoctorVerdict::Warn).count();
    writeln!(out, "{} checks, {warnings} warnings", findings.len())?;
    if !interface {
        writeln!(
            out,
            "af_packet and af_xdp were tried on loopback only: name an interface with --iface"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text() {
        let findings = [
            DoctorFinding {
                check: "clock source",
                verdict: DoctorVerdict::Ok,
                found: "tsc".into(),
                advice: None,
            },
            DoctorFinding {
                check: "clock sync",
                verdict: DoctorVerdict::Warn,
                found: "not synchronised".into(),
                advice: Some("run chrony".into()),
            },
        ];
        let host = HostInfo {
            name: "h".into(),
            kernel: "6".into(),
            cpus: 2,
            cpu: "c".into(),
            ..HostInfo::default()
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
