//! The layers by name, and what each touches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An optimisation that is applied and reverted as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Generic receive offload at the device's ports, and with it NAPI.
    Gro,
    /// UDP packets of a flow are joined while they are forwarded.
    UdpGro,
    /// Receive threads of their own for the device's ports.
    ThreadedNapi,
    /// Receive threads and processes of the device on one processor.
    Pinning,
    /// IP's work for what the device receives on another processor than the sender's.
    Rps,
    /// Receive queues are polled again after a while, not by interrupt.
    NapiDefer,
    /// Sockets poll their queue while they wait.
    BusyPoll,
    /// Receive threads and processes of the device run before all ordinary ones; of a process
    /// the first thread before the others.
    RealTime,
    /// Packets that a processor may receive at a time.
    Budget,
    /// No netfilter hooks: no filters, no connection tracking.
    NoNetfilter,
    /// A virtual machine's memory in huge pages.
    Hugepages,
    /// The router in XDP instead of the kernel's.
    Xdp,
}

/// What a layer touches, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerScope {
    /// Settings of a running bed.
    Bed,
    /// The bed itself: it takes effect when it is built ([`Layer::build`]).
    Build,
    /// Settings of the whole host.
    Host,
}

impl Layer {
    /// In the order in which help and listings have them.
    pub const ALL: [Layer; 12] = [
        Layer::Gro,
        Layer::UdpGro,
        Layer::ThreadedNapi,
        Layer::Pinning,
        Layer::Rps,
        Layer::NapiDefer,
        Layer::BusyPoll,
        Layer::RealTime,
        Layer::Budget,
        Layer::NoNetfilter,
        Layer::Hugepages,
        Layer::Xdp,
    ];

    /// Its name, as a plan or the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Gro => "gro",
            Layer::UdpGro => "udp-gro",
            Layer::ThreadedNapi => "threaded-napi",
            Layer::Pinning => "pinning",
            Layer::Rps => "rps",
            Layer::NapiDefer => "napi-defer",
            Layer::BusyPoll => "busy-poll",
            Layer::RealTime => "real-time",
            Layer::Budget => "budget",
            Layer::NoNetfilter => "no-netfilter",
            Layer::Hugepages => "hugepages",
            Layer::Xdp => "xdp",
        }
    }

    /// What it does, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Layer::Gro => "generic receive offload (and NAPI) at the device's ports",
            Layer::UdpGro => "join UDP packets of a flow while forwarding (rx-udp-gro-forwarding)",
            Layer::ThreadedNapi => "a receive thread for each queue of the device's ports",
            Layer::Pinning => "the device's receive threads and processes on one processor",
            Layer::Rps => "IP's work for received packets on the device's processor (rps_cpus)",
            Layer::NapiDefer => {
                "poll receive queues again by timer (napi_defer_hard_irqs, gro_flush_timeout)"
            }
            Layer::BusyPoll => "sockets poll while they wait (net.core.busy_poll, busy_read)",
            Layer::RealTime => {
                "real-time classes: receive threads and main loops (FIFO 2), their workers (RR 1)"
            }
            Layer::Budget => "ten times as many packets a receive round (net.core.netdev_budget)",
            Layer::NoNetfilter => "no nftables rules, no connection tracking (of a firewall)",
            Layer::Hugepages => "a virtual machine's memory in huge pages",
            Layer::Xdp => "the router in XDP instead of the kernel's",
        }
    }

    /// What it touches, and when.
    pub fn scope(self) -> LayerScope {
        match self {
            Layer::Hugepages | Layer::Xdp => LayerScope::Build,
            Layer::BusyPoll | Layer::Budget => LayerScope::Host,
            _ => LayerScope::Bed,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Layer::ALL.into_iter().find(|l| l.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Layer::ALL.iter().map(|l| l.name()).collect();
            format!("'{text}' is no layer; choose {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_reads_as_it_is_written() {
        for layer in Layer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
            let json = serde_json::to_string(&layer).unwrap();
            assert_eq!(json.trim_matches('"'), layer.name());
        }
        assert!("turbo".parse::<Layer>().unwrap_err().contains("threaded-napi"));
    }
}
