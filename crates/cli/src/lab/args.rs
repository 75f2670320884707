//! What can be typed after `sonde lab`.

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use sonde_lab::device::DeviceSpec;
use sonde_lab::tune::Layer;

use crate::choice::named;
use crate::number::{processor, whole};

#[derive(Args, Debug)]
#[command(after_help = LAB_HELP)]
pub struct LabCommand {
    #[command(subcommand)]
    pub action: LabAction,
}

#[derive(Subcommand, Debug)]
pub enum LabAction {
    /// Make a test bed with a device, and hold it until Ctrl-C
    #[command(after_help = UP_HELP)]
    Up(UpArgs),
    /// List the kinds of devices, and the beds that are up
    #[command(after_help = LIST_HELP)]
    List(PrintArgs),
    /// Apply and revert optimisations of a bed that is up
    #[command(after_help = TUNE_HELP)]
    Tune(TuneCommand),
    /// Remove what killed processes left: namespaces, processes, settings of the host
    #[command(after_help = DOWN_HELP)]
    Down(PrintArgs),
    /// The XDP forwarder of a device, in its namespace
    #[command(hide = true, after_help = FORWARD_HELP)]
    Forward(ForwardArgs),
}

#[derive(Args, Debug)]
pub struct UpArgs {
    /// The device: loop, router[:routes=N], bridge, nft[:filters=N,conntrack=BOOL], nat, xdp,
    /// ovs-kernel, ovs-netdev or vm
    pub device: DeviceSpec,
    /// Devices in series
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = whole(1..=2_u8))]
    pub chain: u8,
    /// The devices' processor [default: the last one]
    #[arg(long, value_name = "N", conflicts_with = "inline", value_parser = processor())]
    pub cpu: Option<usize>,
    /// The processor on which the tester's ports receive [default: the first one]
    #[arg(long, value_name = "N", conflicts_with = "inline", value_parser = processor())]
    pub tester_cpu: Option<usize>,
    /// Leave the devices on their sender's processor, where they cannot drop
    #[arg(long)]
    pub inline: bool,
    /// Largest IP packet on all links, octets
    #[arg(long, value_name = "OCTETS", default_value_t = 1500, value_parser = whole(0..=u32::MAX))]
    pub mtu: u32,
    /// Receive and transmit queues of each port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(0..=u32::MAX))]
    pub queues: u32,
    /// Apply these layers ('sonde lab tune list')
    #[arg(long, value_name = "LAYER", value_delimiter = ',', value_parser = layer())]
    pub with: Vec<Layer>,
    /// Allow layers that change the whole host
    #[arg(long)]
    pub host: bool,
    /// Print the bed as JSON
    #[arg(long)]
    pub json: bool,
}

/// How a list is printed.
#[derive(Args, Debug)]
pub struct PrintArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct TuneCommand {
    #[command(subcommand)]
    pub action: TuneAction,
}

#[derive(Subcommand, Debug)]
pub enum TuneAction {
    /// List the layers: what each does, and whether it applies to the bed
    #[command(after_help = TUNE_HELP)]
    List(TuneListArgs),
    /// Apply layers
    #[command(after_help = TUNE_HELP)]
    Apply(ApplyArgs),
    /// Restore what layers have changed
    #[command(after_help = TUNE_HELP)]
    Revert(RevertArgs),
}

#[derive(Args, Debug)]
pub struct TuneListArgs {
    /// The bed, by its name [default: the one that is up]
    #[arg(long, value_name = "NAME")]
    pub bed: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// The layers, in their order
    #[arg(required = true, value_name = "LAYER", value_parser = layer())]
    pub layers: Vec<Layer>,
    /// The bed, by its name [default: the one that is up]
    #[arg(long, value_name = "NAME")]
    pub bed: Option<String>,
    /// Allow layers that change the whole host
    #[arg(long)]
    pub host: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct RevertArgs {
    /// The layers [default: all that are applied, those of the host too]
    #[arg(value_name = "LAYER", value_parser = layer())]
    pub layers: Vec<Layer>,
    /// The bed, by its name [default: all that are up]
    #[arg(long, value_name = "NAME")]
    pub bed: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ForwardArgs {
    /// The two ports
    #[arg(num_args = 2, value_names = ["IF", "IF"])]
    pub ports: Vec<String>,
}

/// Takes a layer by its name.
fn layer() -> impl TypedValueParser<Value = Layer> {
    named(Layer::ALL.map(Layer::name))
}

const LAB_HELP: &str = "\
Example:
  sudo sonde lab up router
  sudo sonde lab tune apply real-time
Everything lies in network namespaces of the bed and is removed with it. Needs root.";

const UP_HELP: &str = "\
Example:
  sudo sonde lab up router:routes=1000 --chain 2
  sudo sonde lab up nft:filters=25 --with udp-gro,real-time
It prints where the tester's ports a and b are. Test addresses are 198.18.0.0/16 (a) and
198.19.0.0/16 (b), 2001:2::/49 (a) and 2001:2:0:8000::/49 (b), as RFC 6815 asks.";

const LIST_HELP: &str = "\
Example:
  sonde lab list
  sonde lab list --json";

const TUNE_HELP: &str = "\
Example:
  sudo sonde lab tune list
  sudo sonde lab tune apply real-time
  sudo sonde lab tune revert
Former values are in a journal below /run/sonde: revert restores them, also after a kill.";

const DOWN_HELP: &str = "\
Example:
  sudo sonde lab down
A bed that is up ends with the process that holds it (Ctrl-C); this removes those whose
process is gone.";

const FORWARD_HELP: &str = "\
Example:
  sonde lab forward eth0 eth1
For 'sonde lab up xdp', which talks to it by standard input and output.";
