//! `sonde otg`: a traffic generator that speaks the Open Traffic Generator model, so that
//! its clients drive Sonde. docs/otg.md says what of the model is there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::Args;
use ring::rand::{SecureRandom as _, SystemRandom};
use sonde_run::confined::{Uses, give_up};
use sonde_run::engine::Engine::{AfPacket, AfXdp};
use sonde_server::http::{Access, Server, Stop};
use sonde_server::{otg, runs as plans};
use sonde_sys::schedule::prefer_this_process;
use sonde_testbed::otg::{Allowed, EtherType, Generator, PlanRuns, token};
use sonde_testbed::tls;
use sonde_wire::prefix::{BENCHMARK_PREFIXES, Prefix};
use sonde_wire::signature::Secret;

use crate::exit::{Exit, Failure};
use crate::signals;

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
    /// Allow frames of this EtherType without headers that Sonde could check: a name ("arp",
    /// "lldp") or a number ("0x88f7"); may be given more than once
    #[arg(long, value_name = "TYPE")]
    pub allow_ethertype: Vec<EtherType>,
    /// Keep the token that clients show in this file; made, for its owner alone, where there is
    /// none. Without it every start draws another one, and prints it
    #[arg(long, value_name = "FILE", conflicts_with = "ca")]
    pub token_file: Option<PathBuf>,
    /// Take plans of 'sonde bench' over the network, too, and keep their runs in this folder
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,
}

/// Serves until Ctrl-C.
pub fn run(args: &OtgArgs) -> Result<Exit, Failure> {
    let tls = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let config = tls::server(cert, key, args.ca.as_deref())?;
            Some(Arc::new(config))
        }
        _ => None,
    };
    if args.ca.is_none() && !args.listen.ip().is_loopback() {
        return Err(Failure::Usage(anyhow!(
            "{} can be reached by others; listen on 127.0.0.1, or give --cert, --key and --ca, so \
             that clients need certificates",
            args.listen
        )));
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (access, shown) = match tls {
        Some(tls) if args.ca.is_some() => (Access::Certificates(tls), String::new()),
        tls => {
            let token = token::of(args.token_file.as_deref())?;
            // Who keeps it in a file need not see it in a log.
            let shown = match args.token_file {
                Some(_) => String::new(),
                None => format!("sonde:{}@", token.text()),
            };
            let access = match tls {
                Some(tls) => Access::TlsToken(tls, token),
                None => Access::Token(token),
            };
            (access, shown)
        }
    };
    let allowed = Allowed {
        prefixes: BENCHMARK_PREFIXES.iter().chain(&args.allow).copied().collect(),
        types: args.allow_ethertype.iter().map(|t| t.0).collect(),
    };
    let generator = Arc::new(Generator::new(allowed.clone(), secret()?));
    let open = |folder| {
        PlanRuns::open(folder, allowed, generator.clone(), signals::invocation()).map(Arc::new)
    };
    let runs = args.runs.as_deref().map(open).transpose()?;
    let routes = otg::routes(generator).merge(plans::routes(runs.clone()));
    let asked = signals::stop()?;
    let server = Server::bind(args.listen, access)
        .with_context(|| format!("cannot listen on {}; see --listen", args.listen))?;
    let address = server.address().context("cannot tell which address was taken")?;
    let stop = Stop::new();
    let stopper = stop.clone();
    signals::then(asked, move || stopper.stop())?;
    // As an agent: all threads that serve, and those of the ports, come from this one.
    if let Err(e) = prefer_this_process() {
        errln!("sonde: flows do not go before other work of this host: {e}");
    }
    let uses = match args.runs {
        // A plan makes laboratories of network namespaces.
        Some(_) => vec![Uses::Commands],
        None => {
            let engines = [AfPacket, AfXdp].map(Uses::Engine).into_iter();
            engines.chain([Uses::Trials, Uses::Namespaces]).collect()
        }
    };
    give_up(&uses, &[])?;
    errln!("sonde: Open Traffic Generator at {scheme}://{shown}{address}, until Ctrl-C");
    let served = server.serve(routes, &stop).context("the server failed");
    if let Some(runs) = runs {
        runs.end();
    }
    served?;
    Ok(Exit::Ok)
}

/// Drawn anew by every server, so that frames of another one are told apart.
fn secret() -> anyhow::Result<Secret> {
    let mut drawn = [[0; 8]; 2];
    for half in &mut drawn {
        SystemRandom::new()
            .fill(half)
            .map_err(|_| anyhow!("the kernel gives no random numbers (getrandom)"))?;
    }
    Ok(Secret(drawn.map(u64::from_ne_bytes)))
}

const HELP: &str = "\
Example:
  sudo sonde otg
  sudo sonde otg --runs runs
  sudo sonde otg --listen 192.0.2.1:8443 --cert host.pem --key host.key --ca lab-ca.pem
A port's location is INTERFACE or NAMESPACE/INTERFACE. While it is configured, all that
comes in there is taken away from the host.
Clients show a token, which the address that is printed at the start contains. With snappi (PyPI):
  api = snappi.api(location='http://sonde:TOKEN@127.0.0.1:8443')
GET /sonde/v1/flows has percentiles, jitter, reordering and duplicates of every flow.
With --runs, POST /sonde/v1/runs takes {\"plan\": \"the text of a plan\"}: docs/otg.md.
Exit codes: 0 ended by Ctrl-C, 2 usage, 3 cannot run.";
