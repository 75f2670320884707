//! What a port is opened with: the same for every engine.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::PortError;

/// An enumeration whose values have names: one list from which all others are made.
macro_rules! named {
    ($(#[$meta:meta])* $Name:ident, $what:literal { $($(#[$doc:meta])* $Variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$doc])* $Variant,)+
        }

        impl $Name {
            /// All there are.
            pub const ALL: &[$Name] = &[$($Name::$Variant),+];

            /// As it is typed and written.
            pub fn name(self) -> &'static str {
                match self {
                    $($Name::$Variant => $name,)+
                }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $Name {
            type Err = PortError;
            fn from_str(name: &str) -> Result<Self, PortError> {
                Self::ALL.iter().find(|one| one.name() == name).copied().ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
                    let known = names.join(", ");
                    PortError::Config(format!("no {} named '{name}'; choose one of {known}", $what))
                })
            }
        }
    };
}

named! {
    /// The engines that work on an interface of this host. A further one appears in options,
    /// schemas and the findings of doctor by itself; what the compiler then asks for says the rest.
    Engine, "engine" {
        /// UDP sockets with kernel stamps. Needs no privilege for ports above 1023.
        Socket = "socket",
        /// TPACKET_V3 to receive, batched packet sockets to transmit.
        AfPacket = "af_packet",
        /// AF_XDP beside normal traffic.
        AfXdp = "af_xdp",
    }
}

impl Engine {
    /// Whether it has ports that only send ([`PortMode::Transmit`]).
    pub fn transmits(self) -> bool {
        match self {
            // The sockets are their UDP ports.
            Engine::Socket => false,
            Engine::AfPacket | Engine::AfXdp => true,
        }
    }
}

/// What a port is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortMode {
    /// It takes the packets of [`OpenSpec::filter`], and sends.
    #[default]
    Exchange,
    /// It takes every packet of the interface, whatever the filter says, cut to
    /// [`OpenSpec::snap`] bytes, and sends nothing. Frames begin as the interface has them (with
    /// the IP header on tun and its like).
    ///
    /// [`Engine::AfPacket`] sees incoming and outgoing packets and takes none away.
    /// [`Engine::AfXdp`] sees incoming ones, and takes them from the host: see
    /// [`OpenSpec::consume`].
    Watch,
    /// It sends, and takes nothing in: it has no filter, reserves no UDP port, and every packet
    /// that comes is the host's. For [`Engine::AfPacket`] and [`Engine::AfXdp`]: the sockets of
    /// [`Engine::Socket`] are their UDP ports.
    Transmit,
}

/// Which packets the port takes. All others go on to the kernel untouched.
///
/// A packet is taken when it is UDP over IPv4 or IPv6 (VLAN tags allowed) and not a fragment. Its
/// destination port must be in `local_ports`, its destination address in `local`, its source port
/// in `peer_ports`. An empty list: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Our addresses; empty: any address local to this host (for engines below the
    /// IP stack: any local address or prefix in the kernel's local table).
    pub local: Vec<IpAddr>,
    /// Our UDP ports; never empty in a port that takes packets by its filter.
    pub local_ports: Vec<u16>,
    /// The peers' UDP ports; empty: any.
    pub peer_ports: Vec<u16>,
}

named! {
    /// How the XDP program is attached and AF_XDP bound.
    #[derive(Default)]
    XdpMode, "XDP mode" {
        /// The best stamps that work: native copy, then generic. Never zero copy, which has
        /// no transmit stamps on the system's time scale.
        #[default]
        Auto = "auto",
        /// In the driver, zero copy, or fail.
        ZeroCopy = "zerocopy",
        /// In the driver, copying, or fail.
        Copy = "copy",
        /// In the generic hook, or fail.
        Generic = "generic",
    }
}

/// Everything an engine is opened with.
#[derive(Clone, Debug)]
pub struct OpenSpec {
    /// The device below any VLAN device; the socket engine needs none.
    pub interface: Option<String>,
    /// The socket engine takes and sends packets on `interface` alone.
    pub bind_device: bool,
    /// What it is for.
    pub mode: PortMode,
    /// Which packets to take, in [`PortMode::Exchange`].
    pub filter: Filter,
    /// In [`PortMode::Watch`]: packets need not reach the host. For ports that get copies of
    /// others' traffic; on any other the host would be cut off.
    pub consume: bool,
    /// In [`PortMode::Watch`]: bytes of each frame that are handed out, at most.
    pub snap: usize,
    /// Ask for transmit stamps where a cookie is given.
    pub tx_stamps: bool,
    /// Socket engine: hear of ICMP errors ([`crate::Port::take_icmp_errors`]). The others cannot:
    /// see [`crate::icmp::Listener`].
    pub icmp_errors: bool,
    /// Socket engine: the interface of each link-local destination, by its index; others go
    /// by `interface`.
    pub scopes: Vec<(std::net::Ipv6Addr, u32)>,
    /// Socket engine: packets longer than the MTU go in pieces; else they are refused.
    pub fragment: bool,
    /// Time and stamps are steady: they begin as TAI and go on whoever sets the clock, see
    /// [`crate::RxBurst::scale`]. Else they are the kernel's TAI.
    pub steady: bool,
    /// Receive and transmit ring, frames per queue; a power of two.
    pub ring: usize,
    /// AF_XDP: the queues to bind; empty: all that the interface has.
    pub queues: Vec<u32>,
    /// AF_XDP: how to attach and bind.
    pub xdp_mode: XdpMode,
    /// AF_XDP: SO_PREFER_BUSY_POLL with this budget; `None`: off (right for veth).
    pub busy_poll: Option<u32>,
}

impl OpenSpec {
    /// With the defaults: 4,096 frames, all queues, transmit stamps.
    pub fn new(interface: Option<String>, filter: Filter) -> Self {
        OpenSpec {
            interface,
            bind_device: false,
            mode: PortMode::Exchange,
            filter,
            consume: false,
            snap: Self::WATCHED_BYTES,
            tx_stamps: true,
            icmp_errors: false,
            scopes: Vec::new(),
            fragment: false,
            steady: false,
            ring: 4096,
            queues: Vec::new(),
            xdp_mode: XdpMode::Auto,
            busy_poll: None,
        }
    }

    /// `snap` unless said otherwise: headers with every tag, label and option that is common,
    /// also inside a tunnel.
    pub const WATCHED_BYTES: usize = 256;

    /// To watch all that passes `interface`.
    pub fn watching(interface: String) -> Self {
        OpenSpec {
            mode: PortMode::Watch,
            tx_stamps: false,
            ..OpenSpec::new(Some(interface), Filter::default())
        }
    }

    /// To send by `interface`, without transmit stamps, and to take nothing in.
    pub fn transmit(interface: String) -> Self {
        OpenSpec {
            mode: PortMode::Transmit,
            tx_stamps: false,
            ..OpenSpec::new(Some(interface), Filter::default())
        }
    }

    /// Refuses a port that takes packets by a filter without a UDP port: none could be its own.
    pub(crate) fn check(&self) -> Result<(), PortError> {
        match self.mode {
            PortMode::Exchange if self.filter.local_ports.is_empty() => Err(PortError::Config(
                "a filter without a UDP port takes nothing; name one, or open the port to transmit"
                    .into(),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_needs_a_port_and_a_sender_no_filter() {
        let refused = OpenSpec::new(None, Filter::default()).check().unwrap_err().to_string();
        assert!(refused.contains("UDP port"), "{refused}");
        let filter = Filter { local_ports: vec![862], ..Filter::default() };
        OpenSpec::new(None, filter).check().unwrap();
        OpenSpec::transmit("eth0".into()).check().unwrap();
        OpenSpec::watching("eth0".into()).check().unwrap();
    }
}
