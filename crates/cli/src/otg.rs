//! `sonde otg`: a traffic generator that speaks the Open Traffic Generator model, so that
//! its clients drive Sonde. docs/otg.md says what of the model is there.

mod details;
mod devices;
mod flow;
mod frames;
mod generator;
mod plans;
mod port;
mod receiver;
mod runs;
mod sender;
mod sizes;
mod tally;
mod values;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::Args;
use sonde_server::http::{Server, Stop};
use sonde_server::otg::Otg;
use sonde_server::runs::WithRuns;
use sonde_wire::signature::Secret;

use self::frames::Allowed;
use self::generator::Generator;
use self::runs::PlanRuns;
use crate::args::Prefix;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::tls;

/// `sonde otg`
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct OtgArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    pub listen: SocketAddr,
    /// HTTPS: this server's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// HTTPS: the certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// HTTPS: only clients with a certificate of this authority, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub ca: Option<PathBuf>,
    /// Allow addresses in this prefix, too, besides 198.18.0.0/15 and 2001:2::/48 (RFC 6815);
    /// may be given more than once
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<Prefix>,
    /// Take plans of 'sonde bench' over the network, too, and keep their runs in this folder
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,
}

/// Serves until Ctrl-C.
pub fn run(args: &OtgArgs) -> Result<Exit, Failure> {
    let tls = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let config = tls::server(cert, key, args.ca.as_deref()).map_err(Failure::Usage)?;
            Some(Arc::new(config))
        }
        _ => None,
    };
    if args.ca.is_none() && !args.listen.ip().is_loopback() {
        return Err(Failure::Usage(anyhow!(
            "whoever reaches {} could send traffic: the model has no passwords; listen on \
             127.0.0.1, or give --cert, --key and --ca, so that clients need certificates",
            args.listen
        )));
    }
    let allowed = allowed(&args.allow)?;
    let generator = Arc::new(Generator::new(allowed.clone(), secret()));
    let open = |folder| PlanRuns::open(folder, allowed, generator.clone()).map(Arc::new);
    let runs = args.runs.as_deref().map(open).transpose()?;
    let service = WithRuns::new(runs.clone(), Otg::new(generator.clone()));
    let signals = Signals::catch()?;
    let secure = tls.is_some();
    let server = Server::bind(args.listen, tls)
        .with_context(|| format!("cannot listen on {}; see --listen", args.listen))?;
    let address = server.address().context("cannot tell the own address")?;
    let stop = Stop::new();
    let stopper = stop.clone();
    signals.then(move || stopper.stop())?;
    let scheme = if secure { "https" } else { "http" };
    errln!("sonde: Open Traffic Generator at {scheme}://{address}, until Ctrl-C");
    let served = server.serve(Arc::new(service), &stop).context("the server failed");
    if let Some(runs) = runs {
        runs.end();
    }
    served?;
    Ok(Exit::Ok)
}

/// The ranges for benchmarks (RFC 2544 appendix C, RFC 5180 section 8), and those allowed.
fn allowed(more: &[Prefix]) -> anyhow::Result<Allowed> {
    let own: Result<Vec<Prefix>, String> =
        crate::benchmark_range::PREFIXES.iter().map(|p| p.parse()).collect();
    let all = own.map_err(|e| anyhow!(e))?.into_iter().chain(more.iter().copied());
    let (v4, v6): (Vec<Prefix>, Vec<Prefix>) = all.partition(|p| p.address.is_ipv4());
    let bounds = |list: Vec<Prefix>| list.into_iter().map(Prefix::bounds).collect();
    Ok(Allowed { v4: bounds(v4), v6: bounds(v6) })
}

/// Drawn anew by every server, so that frames of another one are told apart.
fn secret() -> Secret {
    // The standard library seeds these from the system's source of randomness.
    Secret([(); 2].map(|()| RandomState::new().build_hasher().finish()))
}

const HELP: &str = "\
Example:
  sudo sonde otg
  sudo sonde otg --runs runs
  sudo sonde otg --listen 192.0.2.1:8443 --cert host.pem --key host.key --ca lab-ca.pem
A port's location is INTERFACE or NAMESPACE/INTERFACE. While it is configured, all that
comes in there is taken away from the host.
With snappi (PyPI): api = snappi.api(location='http://127.0.0.1:8443')
GET /sonde/v1/flows has percentiles, jitter, reordering and duplicates of every flow.
With --runs, POST /sonde/v1/runs takes {\"plan\": \"the text of a plan\"}: docs/otg.md.
Exit codes: 0 ended by Ctrl-C, 2 usage, 3 cannot run.";
