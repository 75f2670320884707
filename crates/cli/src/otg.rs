//! `sonde otg`: a traffic generator that speaks the Open Traffic Generator model, so that
//! its clients drive Sonde. docs/otg.md says what of the model is there.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use sonde_testbed::otg::{self, EtherType, Settings};
use sonde_wire::prefix::Prefix;

use crate::exit::{Exit, Failure};
use crate::signals;

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
    let context = signals::confined_context(Vec::new())?;
    let (about, serving) = otg::start(args.settings(), &context)?;
    sonde_errln!(INFO, "Open Traffic Generator at {}, until Ctrl-C", about.url);
    Exit::of(serving.last().1)
}

impl OtgArgs {
    /// The same for a server.
    fn settings(&self) -> Settings {
        let OtgArgs { listen, cert, key, ca, allow, allow_ethertype, token_file, runs } = self;
        Settings {
            listen: *listen,
            cert: cert.clone(),
            key: key.clone(),
            ca: ca.clone(),
            allow: allow.clone(),
            allow_ethertype: allow_ethertype.clone(),
            token_file: token_file.clone(),
            runs: runs.clone(),
        }
    }
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
