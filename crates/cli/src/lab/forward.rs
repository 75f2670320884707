//! `sonde lab forward`: attaches the XDP forwarder to two ports of the namespace in which it
//! runs. It answers requests for its counters on standard input, and ends at its end.

use std::io::{BufRead as _, Write as _};

use anyhow::{Result, anyhow};
use sonde_testbed::forwarder::{self, Forwarder};

use super::args::ForwardArgs;
use crate::exit::{Exit, Failure};

pub(super) fn run(args: &ForwardArgs) -> Result<Exit, Failure> {
    let [a, b] = &args.ports[..] else {
        return Err(Failure::Usage(anyhow!(
            "two ports are wanted, not {}: sonde lab forward PORT PORT",
            args.ports.len()
        )));
    };
    answer(&forwarder::attach([a, b])?)?;
    Ok(Exit::Ok)
}

/// The commands and answers are those of `sonde_lab`'s console.
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
