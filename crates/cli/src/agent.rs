//! `sonde agent`: this host's ports as sources and sinks of somebody else's benchmark.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use sonde_testbed::agent::cert::{self, CertRequest};
use sonde_testbed::agent::{self, Settings, clock};
use sonde_wire::prefix::Prefix;

use crate::exit::{Exit, Failure};
use crate::signals;

#[derive(Args, Debug)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct AgentArgs {
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    #[command(flatten)]
    pub serve: Option<ServeArgs>,
}

/// What else there is.
#[derive(Subcommand, Debug)]
pub enum AgentCommand {
    /// Make certificates for a laboratory
    Cert(CertArgs),
}

#[derive(Args, Debug)]
#[command(after_help = CERT_HELP)]
pub struct CertArgs {
    /// Names or addresses of the agents' hosts, as the plan has them, each for one certificate;
    /// 'controller' is a controller's
    #[arg(value_name = "HOST", required_unless_present_any = ["controller", "renew"])]
    pub hosts: Vec<String>,
    /// A controller of this name; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub controller: Vec<String>,
    /// Sign the certificates that are there anew, for another year; of these hosts, or of all
    #[arg(long)]
    pub renew: bool,
    /// Where to write
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
}

/// Options of an agent that waits for a controller.
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
            let request = CertRequest {
                hosts: args.hosts.clone(),
                controllers: args.controller.clone(),
                renew: args.renew,
                dir: args.dir.clone(),
            };
            for path in cert::make(&request)? {
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
    // The programs of an ordinary build do not look.
    if cfg!(debug_assertions)
        && let Ok(ahead) = std::env::var(SKEW_VARIABLE)
    {
        clock::pretend(ahead.parse().map_err(|e| anyhow!("{SKEW_VARIABLE}: {e}"))?);
    }
    let context = signals::confined_context(Vec::new())?;
    let (about, serving) = agent::start(args.settings(), &context)?;
    if about.ends_soon {
        sonde_errln!(
            WARN,
            "{} is out of date within a month; 'sonde agent cert --renew' where it was made",
            args.cert.display()
        );
    }
    // Whoever waits for this line may rely on all of it.
    sonde_errln!(INFO, "agent at {}, until Ctrl-C", about.address);
    Exit::of(serving.last().1)
}

impl ServeArgs {
    /// The same for an agent.
    fn settings(&self) -> Settings {
        let ServeArgs { listen, cert, key, ca, allow } = self;
        Settings {
            listen: *listen,
            cert: cert.clone(),
            key: key.clone(),
            ca: ca.clone(),
            allow: allow.clone(),
        }
    }
}

/// For tests: by how much an agent pretends that its clock is ahead, ns.
pub const SKEW_VARIABLE: &str = "SONDE_TEST_CLOCK_SKEW_NS";

const HELP: &str = "\
Example:
  sonde agent cert --dir lab 192.0.2.1 192.0.2.2 controller
  sudo sonde agent --listen 192.0.2.1:8620 --cert lab/192.0.2.1.pem --key lab/192.0.2.1.key \\
      --ca lab/ca.pem
One controller at a time has the agent's ports: 'sonde bench' with a plan that names agents
(docs/agent.md). Exit codes: 0 ended by Ctrl-C, 2 usage, 3 cannot run.";

const CERT_HELP: &str = "\
Example:
  sonde agent cert --dir lab 192.0.2.1 192.0.2.2 controller
  sonde agent cert --dir lab --renew
Certificates are good for a year from now. Everybody in the laboratory needs ca.pem and a
certificate with its key; ca.key stays here, for further hosts and for --renew, whose
certificates fit the keys that are there: copy HOST.pem again, and start the agent again.";
