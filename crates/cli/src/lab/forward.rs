//! `sonde lab forward`: attaches the XDP forwarder to two ports of the namespace in which it
//! runs, and tells its counters to whoever asks by standard input. It ends with that one.

use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result, anyhow};
use sonde_bpf::{ForwardPort, Forwarder};

use super::args::ForwardArgs;
use crate::exit::{Exit, Failure};

pub(super) fn run(args: &ForwardArgs) -> Result<Exit, Failure> {
    let [a, b] = &args.ports[..] else {
        return Err(Failure::Usage(anyhow!("two ports are wanted")));
    };
    let ports = [port(a)?, port(b)?];
    let forwarder = Forwarder::attach(ports).map_err(anyhow::Error::from)?;
    answer(&forwarder)?;
    Ok(Exit::Ok)
}

/// The words are those of `sonde_lab`'s console.
fn answer(forwarder: &Forwarder) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "sonde: ready").and_then(|()| out.flush())?;
    for line in std::io::stdin().lock().lines() {
        if line? == "counters" {
            let c = forwarder.counters()?;
            writeln!(out, "forwarded {}", c.forwarded)?;
            writeln!(out, "to_kernel {}", c.to_kernel)?;
            writeln!(out, "malformed {}", c.malformed)?;
            writeln!(out, "refused {}", c.refused)?;
        }
        writeln!(out, "sonde: end").and_then(|()| out.flush())?;
    }
    Ok(())
}

fn port(name: &str) -> Result<ForwardPort> {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/sys/class/net/{name}/{file}"))
            .with_context(|| format!("no interface '{name}' in this namespace"))
    };
    let ifindex = read("ifindex")?.trim().parse()?;
    let text = read("address")?;
    let bytes: Result<Vec<u8>, _> =
        text.trim().split(':').map(|b| u8::from_str_radix(b, 16)).collect();
    let mac = bytes.ok().and_then(|b| b.try_into().ok());
    let mac = mac.ok_or_else(|| anyhow!("{name} has no Ethernet address: '{}'", text.trim()))?;
    Ok(ForwardPort { ifindex, mac })
}
