//! `sonde agent`: this host's ports as sources and sinks of somebody else's benchmark.
//!
//! The order of reading: `protocol` what is said, `serve` the agent, `clock` how their clocks
//! are compared, `link` and `rig` the controller, which is a [`crate::bench::runner::Rig`].

pub mod cert;
pub mod clock;
pub mod link;
pub mod protocol;
pub mod remote;
pub mod rig;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use sonde_sys::schedule::prefer_this_process;
use sonde_wire::prefix::{BENCHMARK_PREFIXES, Prefix};

use self::cert::{CertArgs, Role};
use self::serve::Agent;
use crate::confined::{Uses, give_up};
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::tls;

/// `sonde agent`
#[derive(Args, Debug)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct AgentArgs {
    /// Something else than to serve.
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    /// How to serve.
    #[command(flatten)]
    pub serve: Option<ServeArgs>,
}

/// What else there is.
#[derive(Subcommand, Debug)]
pub enum AgentCommand {
    /// Make certificates for a laboratory
    Cert(CertArgs),
}

/// How to serve.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Address and port to listen on, for the controller
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    /// This agent's certificate, PEM; it carries the address by which the plan names it
    #[arg(long, value_name = "FILE")]
    pub cert: PathBuf,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The authority by which controllers are trusted, PEM
    #[arg(long, value_name = "FILE")]
    pub ca: PathBuf,
    /// Allow addresses in this prefix, too, besides 198.18.0.0/15 and 2001:2::/48 (RFC 6815);
    /// may be given more than once
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<Prefix>,
}

/// Serves until Ctrl-C, or makes certificates.
pub fn run(args: &AgentArgs) -> Result<Exit, Failure> {
    match (&args.command, &args.serve) {
        (Some(AgentCommand::Cert(args)), _) => {
            for path in cert::make(args).map_err(Failure::Usage)? {
                outln!("{}", path.display());
            }
            Ok(Exit::Ok)
        }
        (None, Some(args)) => serve(args),
        (None, None) => Err(Failure::Usage(anyhow!(
            "an agent needs --listen, --cert, --key and --ca; 'sonde agent cert' makes certificates"
        ))),
    }
}

fn serve(args: &ServeArgs) -> Result<Exit, Failure> {
    let tls = tls::server(&args.cert, &args.key, Some(&args.ca)).map_err(Failure::Usage)?;
    tls::fit(&args.cert, &args.ca, Role::Agent, SystemTime::now()).map_err(Failure::Usage)?;
    let mut allowed = BENCHMARK_PREFIXES.to_vec();
    allowed.extend(&args.allow);
    let signals = Signals::catch()?;
    let agent = Agent::bind(args.listen, tls, allowed)?;
    let address = agent.address().context("cannot tell the own address")?;
    let stop = signals.into_flag()?;
    if tls::ends_soon(&args.cert, &args.ca, Role::Agent) {
        errln!(
            "sonde: {} is out of date within a month; 'sonde agent cert --renew' where it was made",
            args.cert.display()
        );
    }
    // Other work on this host would make trials invalid. All threads that serve come from this one.
    if let Err(e) = prefer_this_process() {
        errln!("sonde: this agent's trials do not go before other work of this host: {e}");
    }
    give_up(&[Uses::Trials, Uses::Namespaces], Vec::new())?;
    // Whoever waits for this line may rely on all of it.
    errln!("sonde: agent at {address}, until Ctrl-C");
    agent.serve(&stop);
    Ok(Exit::Ok)
}

const HELP: &str = "\
Example:
  sonde agent cert --dir lab 192.0.2.1 192.0.2.2 controller
  sudo sonde agent --listen 192.0.2.1:8620 --cert lab/192.0.2.1.pem --key lab/192.0.2.1.key \\
      --ca lab/ca.pem
One controller at a time has the agent's ports: 'sonde bench' with a plan that names agents
(docs/agent.md). Exit codes: 0 ended by Ctrl-C, 2 usage, 3 cannot run.";
