//! Where a reflector answers: at which addresses, on which interface; and from where nobody
//! can ask it.

use std::net::IpAddr;

use anyhow::Context as _;
use sonde_port::{Engine, Filter, OpenSpec};
use sonde_sys::clock::{self, ClockState};
use sonde_sys::netlink::{Links, NetlinkEvent, NetlinkWatch, Routes};
use sonde_wire::prefix::Prefix;

use super::settings::Settings;
use crate::error::{RunError, SettingsError};
use crate::links::netlink;

/// What is to be answered, as the engine is opened with it.
///
/// # Errors
/// An address that is not of this host.
pub fn spec(settings: &Settings) -> Result<OpenSpec, RunError> {
    let socket = settings.engine.engine == Engine::Socket;
    // All are on one interface.
    let of_bind = || settings.bind.iter().find_map(|bind| bind.interface.clone());
    let interface = settings.engine.iface.clone().or_else(of_bind);
    let local: Vec<IpAddr> = settings.bind.iter().map(|bind| bind.address).collect();
    if !socket || settings.kernel {
        // A socket is refused an address that is not this host's; what is below is not.
        let host = OwnAddresses::routes()?
            .local_prefixes()
            .with_context(|| netlink("list own addresses"))?;
        if let Some(address) = local.iter().find(|&&a| !host.iter().any(|p| p.contains(a))) {
            let why = format!(
                "{address} is not an address of this host; 'ip address' lists those it has"
            );
            return Err(SettingsError::new("bind", why).into());
        }
    }
    let filter = Filter { local, local_ports: settings.port.clone(), ..Filter::default() };
    let bind_device = match &settings.engine.iface {
        // The kernel's program hands up what came with a VLAN tag, too, and the stack gives
        // that to the VLAN device.
        Some(name) if settings.kernel => !carries_vlans(name)?,
        named => named.is_some(),
    };
    Ok(OpenSpec {
        bind_device,
        queues: settings.engine.queues.clone(),
        xdp_mode: settings.engine.xdp_mode,
        busy_poll: settings.engine.busy_poll,
        steady: true,
        // A request that is longer than the MTU came in pieces: so goes its answer.
        fragment: true,
        ..OpenSpec::new(interface, filter)
    })
}

/// Whether VLAN devices stand on the interface.
fn carries_vlans(name: &str) -> anyhow::Result<bool> {
    let all = Links::open()
        .and_then(|mut links| links.all())
        .with_context(|| netlink("list interfaces"))?;
    let below = all.iter().find(|link| link.name == name).map(|link| link.ifindex);
    Ok(all.iter().any(|link| link.vlan.is_some() && link.link.is_some() && link.link == below))
}

/// This host's addresses, as they come and go.
pub struct OwnAddresses {
    watch: NetlinkWatch,
    routes: Routes,
    /// Whoever asks by this engine may be this host itself.
    own_may_ask: bool,
}

/// What a reflector follows of its host. Tests have a host of their own.
pub trait HostState {
    /// How its clock stands.
    fn clock(&mut self) -> ClockState;

    /// Whether addresses have come or gone since the last call.
    ///
    /// # Errors
    /// The kernel does not say.
    fn have_changed(&mut self) -> anyhow::Result<bool>;

    /// Addresses that the reflector of user space has no request from. Of a network that is routed
    /// to this host, senders may be in it.
    ///
    /// # Errors
    /// The kernel does not say.
    fn no_senders(&mut self) -> anyhow::Result<Vec<Prefix>>;
}

impl HostState for OwnAddresses {
    fn clock(&mut self) -> ClockState {
        clock::clock_state()
    }

    fn have_changed(&mut self) -> anyhow::Result<bool> {
        let concerns = |e: &NetlinkEvent| {
            matches!(e, NetlinkEvent::Route | NetlinkEvent::Address | NetlinkEvent::Overrun)
        };
        Ok(self.watch.poll()?.iter().any(concerns))
    }

    fn no_senders(&mut self) -> anyhow::Result<Vec<Prefix>> {
        let mut all = self.routes.shared_addresses()?;
        if !self.own_may_ask {
            all.extend(self.routes.local_prefixes()?.into_iter().filter(|p| p.is_host()));
        }
        Ok(all)
    }
}

impl OwnAddresses {
    /// Follows them from now on.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn follow(settings: &Settings) -> Result<Self, RunError> {
        let watch =
            NetlinkWatch::open().with_context(|| netlink("follow the kernel's addresses"))?;
        // Between its own addresses a host talks by the loopback, where every engine but
        // that of sockets sees what the stack would refuse elsewhere.
        let own_may_ask = settings.engine.engine == Engine::Socket
            || settings.engine.iface.as_deref() == Some("lo");
        Ok(OwnAddresses { watch, routes: Self::routes()?, own_may_ask })
    }

    fn routes() -> Result<Routes, RunError> {
        Ok(Routes::open().with_context(|| netlink("ask the kernel for its addresses"))?)
    }

    /// For the reflector in the kernel: what it answers for, and what else no request comes
    /// from.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn of_kernel(&mut self, settings: &Settings) -> anyhow::Result<[Vec<Prefix>; 2]> {
        let (mut local, mut others) =
            (self.routes.local_prefixes()?, self.routes.shared_addresses()?);
        if !settings.bind.is_empty() {
            others.extend(local.iter().filter(|p| p.is_host()));
            local = settings.bind.iter().map(|bind| Prefix::of(bind.address)).collect();
        }
        Ok([local, others])
    }
}
