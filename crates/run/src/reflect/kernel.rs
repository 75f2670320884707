//! The reflector in the kernel: attached, updated when the host changes, and checked against
//! the counters of the driver.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use sonde_bpf::AttachMode;
use sonde_bpf::reflect::{KernelReflector, KernelReflectorConfig, ReflectorCounters};
use sonde_port::XdpMode;
use sonde_sys::SysError;
use sonde_sys::clock::{self, ClockState};
use sonde_sys::driver_stats::DriverStats;
use sonde_sys::host::InterfaceFacts;
use sonde_sys::netlink::{Link, Links};
use sonde_wire::prefix::Prefix;
use sonde_wire::{ErrorEstimate, TimestampFormat};

use super::addresses::OwnAddresses;
use super::settings::Settings;
use crate::error::RunError;
use crate::links::netlink;

/// The reflector in the kernel, on one interface.
pub struct Kernel {
    reflector: KernelReflector,
    interface: String,
    /// `None` while there is no interface.
    ifindex: Option<u32>,
    mode: AttachMode,
    links: Links,
    addresses: OwnAddresses,
    delivery: Delivery,
    checked: Instant,
    lost: u64,
    returned: u64,
}

/// Counters of the program and of the interface.
pub struct KernelCounts {
    /// Counters of the program.
    pub counters: ReflectorCounters,
    /// Of the replies, those that never left: not counted as reflected.
    pub undelivered: u64,
    /// Times that the interface vanished, and was there again.
    pub interface: [u64; 2],
}

impl KernelCounts {
    /// Replies that left.
    pub fn reflected(&self) -> u64 {
        self.counters.get("reflected").saturating_sub(self.undelivered)
    }

    /// Names and values, those of the program with the replies that left.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counters = self.counters.iter().map(|(name, n)| match name {
            "reflected" => (name, self.reflected()),
            _ => (name, n),
        });
        let [lost, returned] = self.interface;
        counters.chain([
            ("dropped_undelivered", self.undelivered),
            ("interface_lost", lost),
            ("interface_returned", returned),
        ])
    }
}

impl Kernel {
    /// Attaches to the interface that the arguments name.
    ///
    /// # Errors
    /// No such interface, no mode that works.
    pub fn attach(settings: &Settings, clock: ClockState) -> Result<Self, RunError> {
        let port =
            *settings.port.first().context("there is no port to answer on; name one in `port`")?;
        let interface = settings.engine.iface.clone().unwrap_or_default();
        let mut links = Links::open().with_context(|| netlink("ask the kernel for interfaces"))?;
        let ifindex = find(&mut links, &interface)?
            .ok_or_else(|| anyhow::Error::from(SysError::NoInterface(interface.clone())))?
            .ifindex;
        let mut addresses = OwnAddresses::follow(settings)?;
        let [local, others] =
            addresses.of_kernel(settings).with_context(|| netlink("list the local addresses"))?;
        let [local, others, allow] = [&local, &others, &settings.allow].map(|list| pairs(list));
        let limit = |limit: super::settings::Limit| {
            let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            limit.0.map(|r| (narrow(r.pps), narrow(r.burst)))
        };
        let veth = is_veth(&interface);
        let config = KernelReflectorConfig {
            veth,
            stateful: !settings.stateless,
            allow: &allow,
            others: &others,
            rate_limit: limit(settings.rate_limit),
            total_limit: limit(settings.total_rate_limit),
            max_sessions: settings.max_sessions,
            session_timeout_s: u32::try_from(settings.session_timeout / NANOS).unwrap_or(u32::MAX),
            ..KernelReflectorConfig::new(port, &local)
        };
        let mut first_error = None;
        for &mode in modes(settings.engine.xdp_mode) {
            let delivery = Delivery::of(&interface, veth, mode);
            match KernelReflector::attach(ifindex, &config, mode) {
                Ok(reflector) => {
                    let kernel = Kernel {
                        reflector,
                        interface,
                        ifindex: Some(ifindex),
                        mode,
                        links,
                        addresses,
                        delivery,
                        checked: Instant::now(),
                        lost: 0,
                        returned: 0,
                    };
                    kernel.set_clock(clock);
                    return Ok(kernel);
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(match first_error {
            Some(error) => RunError::Host(anyhow::Error::from(error)),
            None => RunError::Host(anyhow!(
                "no XDP program can be attached to {interface}; leave `kernel` out"
            )),
        })
    }

    /// "native" or "generic".
    pub fn mode(&self) -> &'static str {
        self.mode.name()
    }

    fn set_clock(&self, clock: ClockState) {
        let estimate = ErrorEstimate::from_error_ns(
            clock.max_error_ns,
            clock.synchronised,
            TimestampFormat::Ntp,
        );
        self.reflector.set_clock(clock.tai_offset_s, estimate.0);
    }

    /// Looks whether the replies arrive; once a second also at the clock, at the addresses that
    /// are ours, and at the interface. What a user has to know is logged.
    ///
    /// # Errors
    /// Replies that cannot leave in the mode that was asked for; a kernel that does not say.
    pub fn follow(&mut self, settings: &Settings) -> Result<()> {
        let reflected = self.reflector.counters()?.get("reflected");
        let fails = self.ifindex.is_some() && self.delivery.fails(reflected);
        // Nothing leaves an interface that is gone, either.
        if fails && self.ifindex_now()? == self.ifindex {
            self.mend_delivery(settings)?;
        }
        if self.checked.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        self.checked = Instant::now();
        self.set_clock(clock::clock_state());
        if self.addresses.have_changed()? {
            let [local, others] = self.addresses.of_kernel(settings)?;
            self.reflector.update_local(&pairs(&local), &pairs(&others))?;
        }
        self.follow_interface(settings)
    }

    /// The peer of a veth takes frames that XDP sends only where it polls (NAPI): with GRO or
    /// an XDP program of its own. Else the kernel drops every one of them without a count.
    fn mend_delivery(&mut self, settings: &Settings) -> Result<()> {
        let peer = self.peer_name();
        let name = peer.as_deref().unwrap_or("PEER");
        let why = format!(
            "no reply leaves {}: its peer{} takes none from XDP, having neither GRO nor an XDP \
             program",
            self.interface,
            peer.as_deref().map_or(String::new(), |name| format!(", {name},"))
        );
        let step = format!("'ethtool -K {name} gro on' where the peer is");
        if settings.engine.xdp_mode != XdpMode::Auto {
            return Err(anyhow!("{why}; {step} lets it, or leave `engine.xdp_mode` out"));
        }
        let Some(ifindex) = self.ifindex else { return Ok(()) };
        // Nothing is under way then, so that what was made and has not left is known.
        self.reflector.detach();
        self.delivery.settle(self.reflector.counters()?.get("reflected"));
        self.delivery.end();
        self.mode = AttachMode::Generic;
        if let Err(error) = self.reflector.attach_to(ifindex, self.mode) {
            // One that is gone meanwhile is reported, and waited for.
            let is_there = self.ifindex_now()? == self.ifindex;
            return if is_there { Err(error.into()) } else { Ok(()) };
        }
        self.delivery.begin(&self.interface, true, self.mode);
        tracing::warn!(
            "{why}. Answering in generic mode from now on, which needs nothing of the peer but \
             is slower; {step} and a new start make native mode work"
        );
        Ok(())
    }

    /// The other end of a veth, if that is in this network namespace.
    fn peer_name(&mut self) -> Option<String> {
        let link = find(&mut self.links, &self.interface).ok()??;
        Some(self.links.get(link.link?).ok()??.name)
    }

    /// The index of the interface that has the name now.
    fn ifindex_now(&mut self) -> Result<Option<u32>> {
        Ok(find(&mut self.links, &self.interface)?.map(|link| link.ifindex))
    }

    /// An interface that is made again gets the program again, with all sessions.
    fn follow_interface(&mut self, settings: &Settings) -> Result<()> {
        let now = self.ifindex_now()?;
        if self.ifindex.is_some() && now != self.ifindex {
            self.ifindex = None;
            self.lost += 1;
            self.delivery.end();
            tracing::warn!("{} is gone; the kernel reflector waits for it", self.interface);
        }
        let (None, Some(ifindex)) = (self.ifindex, now) else { return Ok(()) };
        let veth = is_veth(&self.interface);
        for &mode in modes(settings.engine.xdp_mode) {
            self.delivery.begin(&self.interface, veth, mode);
            // It may not be ready yet, or have another program on it: then again in a second.
            if self.reflector.attach_to(ifindex, mode).is_ok() {
                (self.ifindex, self.mode) = (Some(ifindex), mode);
                self.returned += 1;
                tracing::warn!("{} is there again: answering ({})", self.interface, mode.name());
                break;
            }
        }
        Ok(())
    }

    /// What has been done so far.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn counts(&mut self) -> Result<KernelCounts> {
        let counters = self.reflector.counters()?;
        let undelivered = self.delivery.undelivered();
        Ok(KernelCounts { counters, undelivered, interface: [self.lost, self.returned] })
    }

    /// The same at the end: what the last packets came to is waited for.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn last_counts(&mut self) -> Result<KernelCounts> {
        let reflected = self.reflector.counters()?.get("reflected");
        if self.ifindex.is_some() {
            self.delivery.settle(reflected);
        }
        self.counts()
    }
}

/// Whether what the program sends leaves the interface.
struct Delivery {
    stats: Option<DriverStats>,
    /// On veth in native mode the driver counts what has left; elsewhere, if at all, what has
    /// not.
    counts_departures: bool,
    /// The driver's count when this began, and the program's.
    driver_before: u64,
    reflected_before: Option<u64>,
    /// The program's count at the last look: what is under way now is in neither count.
    reflected: u64,
    /// What has left since this began, at the last look.
    departed: u64,
    undelivered: u64,
    earlier: u64,
}

impl Delivery {
    fn of(interface: &str, veth: bool, mode: AttachMode) -> Self {
        let mut delivery = Delivery {
            stats: None,
            counts_departures: false,
            driver_before: 0,
            reflected_before: None,
            reflected: 0,
            departed: 0,
            undelivered: 0,
            earlier: 0,
        };
        delivery.begin(interface, veth, mode);
        delivery.reflected_before = Some(0);
        delivery
    }

    /// Begins anew, on an interface without the program.
    fn begin(&mut self, interface: &str, veth: bool, mode: AttachMode) {
        self.counts_departures = veth;
        self.stats = match mode {
            AttachMode::Native => DriverStats::open(interface).ok(),
            // There it is the stack that sends, and it counts what it drops.
            AttachMode::Generic => None,
        };
        self.reflected_before = None;
        (self.reflected, self.departed) = (0, 0);
        self.driver_before = self.driver().unwrap_or(0);
    }

    fn end(&mut self) {
        self.earlier += std::mem::take(&mut self.undelivered);
        self.stats = None;
    }

    fn driver(&mut self) -> Option<u64> {
        let departures = self.counts_departures;
        let wanted = |name: &str| match departures {
            true => name.starts_with("tx_queue_") && name.ends_with("_xdp_xmit"),
            false => {
                name.contains("xdp_tx")
                    && ["err", "full", "drop"].iter().any(|part| name.contains(part))
            }
        };
        self.stats.as_mut()?.sum(wanted).ok()
    }

    /// A look; `reflected` is the program's count just now. True when replies were made and
    /// none of them has left.
    fn fails(&mut self, reflected: u64) -> bool {
        let before = *self.reflected_before.get_or_insert(reflected);
        let made_by_then = std::mem::replace(&mut self.reflected, reflected - before);
        let Some(now) = self.driver() else { return false };
        let transmitted = now.saturating_sub(self.driver_before);
        if !self.counts_departures {
            self.undelivered = transmitted;
            return false;
        }
        let departed = std::mem::replace(&mut self.departed, transmitted);
        let left = transmitted - departed.min(transmitted);
        let missing = made_by_then.saturating_sub(transmitted);
        let more = missing.saturating_sub(self.undelivered);
        self.undelivered = self.undelivered.max(missing);
        more > 0 && left == 0
    }

    /// A look when nothing is under way any more.
    fn settle(&mut self, reflected: u64) {
        self.fails(reflected);
        // This one compares with what the first one saw.
        self.fails(reflected);
    }

    fn undelivered(&self) -> u64 {
        self.earlier + self.undelivered
    }
}

/// As the program takes them.
fn pairs(prefixes: &[Prefix]) -> Vec<(IpAddr, u8)> {
    prefixes.iter().map(|&prefix| prefix.into()).collect()
}

fn find(links: &mut Links, interface: &str) -> Result<Option<Link>> {
    let all = links.all().with_context(|| netlink("list the interfaces"))?;
    Ok(all.into_iter().find(|link| link.name == interface))
}

fn is_veth(interface: &str) -> bool {
    InterfaceFacts::read(interface).is_ok_and(|facts| facts.driver.as_deref() == Some("veth"))
}

fn modes(mode: XdpMode) -> &'static [AttachMode] {
    match mode {
        XdpMode::Auto => &[AttachMode::Native, AttachMode::Generic],
        XdpMode::Generic => &[AttachMode::Generic],
        XdpMode::Copy | XdpMode::ZeroCopy => &[AttachMode::Native],
    }
}

const NANOS: i64 = 1_000_000_000;
