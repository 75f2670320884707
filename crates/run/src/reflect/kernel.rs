//! The reflector in the kernel: attached, updated when the host changes, and checked against
//! the counters of the driver.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use sonde_bpf::reflect::{KernelReflector, KernelReflectorConfig, SharedSessions};
use sonde_bpf::{AttachMode, BpfError};
use sonde_meter::stamp::ReplyCounter;
use sonde_port::XdpMode;
use sonde_results::units::SECOND;
use sonde_sys::SysError;
use sonde_sys::clock::{self, ClockState};
use sonde_sys::driver_stats::DriverStats;
use sonde_sys::host::InterfaceFacts;
use sonde_sys::netlink::{Link, Links};
use sonde_wire::packet::SessionRequest;
use sonde_wire::prefix::Prefix;
use sonde_wire::{ErrorEstimate, TimestampFormat};

use super::addresses::{HostState as _, OwnAddresses};
use super::delivery::{Delivery, DriverCounts};
use super::settings::Settings;
use crate::error::RunError;
use crate::links::netlink;

/// The reflector in the kernel, on one interface.
pub struct Kernel {
    settings: Settings,
    reflector: KernelReflector,
    /// On which it answers.
    port: u16,
    interface: String,
    /// `None` while there is no interface.
    ifindex: Option<u32>,
    mode: AttachMode,
    links: Links,
    addresses: OwnAddresses,
    driver: DriverCount,
    /// One end of a veth pair.
    veth: bool,
    delivery: Delivery,
    checked: Instant,
    lost: u64,
    returned: u64,
}

/// The sessions of the program, as the reflector in user space sees them.
pub struct KernelSessions(SharedSessions);

impl ReplyCounter for KernelSessions {
    fn next_sequence(&mut self, request: &SessionRequest) -> Option<u32> {
        // Without an answer the reply copies the sender's, which claims nothing.
        self.0.next_sequence(request).ok().flatten()
    }
}

/// A reflector in the kernel, as the loop in user space sees it. Tests have one of their own.
pub trait InKernel {
    /// Looks whether the replies arrive; once a second also at the clock, at the addresses that
    /// are ours, and at the interface. What a user has to know is logged.
    ///
    /// # Errors
    /// Replies that cannot leave in the mode that was asked for; a kernel that does not say.
    fn follow(&mut self) -> Result<()>;

    /// What has been done so far.
    ///
    /// # Errors
    /// The kernel does not say.
    fn counts(&mut self) -> Result<KernelCounts>;

    /// The same at the end: what the last packets came to is waited for.
    ///
    /// # Errors
    /// The kernel does not say.
    fn last_counts(&mut self) -> Result<KernelCounts>;
}

/// Counters of the program and of the interface, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts(BTreeMap<&'static str, u64>);

impl KernelCounts {
    /// Of the program's counters. Replies that never left (`undelivered`) are not counted as
    /// reflected. The interface vanished and was there again so many times.
    pub fn new(
        program: impl Iterator<Item = (&'static str, u64)>,
        undelivered: u64,
        [lost, returned]: [u64; 2],
    ) -> Self {
        let mut all: BTreeMap<_, _> = program.collect();
        if let Some(reflected) = all.get_mut("reflected") {
            *reflected = reflected.saturating_sub(undelivered);
        }
        all.extend([
            ("dropped_undelivered", undelivered),
            ("interface_lost", lost),
            ("interface_returned", returned),
        ]);
        KernelCounts(all)
    }

    /// Replies that left the interface.
    pub fn reflected(&self) -> u64 {
        self.0.get("reflected").copied().unwrap_or(0)
    }

    /// Sessions begun: senders that have asked a second time, or again after their session's end.
    pub fn sessions(&self) -> u64 {
        self.0.get("new_sessions").copied().unwrap_or(0)
    }

    /// Name and value of each counter, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(name, n)| (*name, *n))
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
            session_timeout_s: u32::try_from(settings.session_timeout / SECOND).unwrap_or(u32::MAX),
            ..KernelReflectorConfig::new(port, &local)
        };
        let mut first_error = None;
        for &mode in modes(settings.engine.xdp_mode) {
            let mut driver = DriverCount::open(&interface, mode);
            let delivery = Delivery::of(DriverCounts::of(veth), driver.read(veth));
            match KernelReflector::attach(ifindex, &config, mode) {
                Ok(reflector) => {
                    let kernel = Kernel {
                        settings: settings.clone(),
                        reflector,
                        port,
                        interface,
                        ifindex: Some(ifindex),
                        mode,
                        links,
                        addresses,
                        driver,
                        veth,
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

    /// How the program is attached now: "native" or "generic".
    pub fn mode(&self) -> &'static str {
        self.mode.name()
    }

    /// The UDP port on which it answers.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What numbers the replies of the reflector in user space. That answers the same sessions
    /// where the program passes a request up, and while it is attached to nothing.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn sessions(&self) -> Result<KernelSessions, BpfError> {
        self.reflector.sessions().map(KernelSessions)
    }

    fn set_clock(&self, clock: ClockState) {
        let estimate = ErrorEstimate::from_error_ns(
            clock.max_error_ns,
            clock.synchronised,
            TimestampFormat::Ntp,
        );
        self.reflector.set_clock(clock.tai_offset_s, estimate.0);
    }

    /// The peer of a veth takes frames that XDP sends only where it polls (NAPI): with GRO or
    /// an XDP program of its own. Else the kernel drops every one of them without a count.
    fn mend_delivery(&mut self) -> Result<()> {
        let peer = self.peer_name();
        let name = peer.as_deref().unwrap_or("PEER");
        let why = format!(
            "no reply leaves {}: its peer{} takes none from XDP, having neither GRO nor an XDP \
             program",
            self.interface,
            peer.as_deref().map_or(String::new(), |name| format!(", {name},"))
        );
        let step = format!("'ethtool -K {name} gro on' where the peer is");
        if self.settings.engine.xdp_mode != XdpMode::Auto {
            return Err(anyhow!("{why}; {step} lets it, or leave `engine.xdp_mode` out"));
        }
        let Some(ifindex) = self.ifindex else { return Ok(()) };
        // Nothing is under way then, so that what was made and has not left is known.
        self.reflector.detach();
        self.settle()?;
        self.driver.close();
        self.mode = AttachMode::Generic;
        if let Err(error) = self.reflector.attach_to(ifindex, self.mode) {
            // One that is gone meanwhile is reported, and waited for.
            let is_there = self.ifindex_now()? == self.ifindex;
            return if is_there { Err(error.into()) } else { Ok(()) };
        }
        self.begin_delivery(self.mode);
        tracing::warn!(
            "{why}. Answering in generic mode from now on, which needs nothing of the peer but \
             is slower; {step} and a new start make native mode work"
        );
        Ok(())
    }

    /// What the program sends from now on, in this mode, is compared with the driver's count.
    fn begin_delivery(&mut self, mode: AttachMode) {
        self.driver = DriverCount::open(&self.interface, mode);
        let now = self.driver.read(self.veth);
        self.delivery.begin(DriverCounts::of(self.veth), now);
    }

    /// Replies that the program has made.
    fn made(&self) -> Result<u64> {
        Ok(self.reflector.counters()?.get("reflected"))
    }

    /// A look when nothing is under way any more.
    fn settle(&mut self) -> Result<()> {
        let made = self.made()?;
        // The second one compares with what the first one saw.
        for _ in 0..2 {
            self.delivery.look(made, self.driver.read(self.veth));
        }
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
    fn follow_interface(&mut self) -> Result<()> {
        let now = self.ifindex_now()?;
        if self.ifindex.is_some() && now != self.ifindex {
            self.ifindex = None;
            self.lost += 1;
            self.driver.close();
            // Under another name, or in another namespace, it would answer still.
            self.reflector.detach();
            tracing::warn!("{} is gone; the kernel reflector waits for it", self.interface);
        }
        let (None, Some(ifindex)) = (self.ifindex, now) else { return Ok(()) };
        self.veth = is_veth(&self.interface);
        for &mode in modes(self.settings.engine.xdp_mode) {
            self.begin_delivery(mode);
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
}

impl InKernel for Kernel {
    fn follow(&mut self) -> Result<()> {
        let made = self.made()?;
        let fails = self.ifindex.is_some() && self.delivery.look(made, self.driver.read(self.veth));
        // Nothing leaves an interface that is gone, either.
        if fails && self.ifindex_now()? == self.ifindex {
            self.mend_delivery()?;
        }
        if self.checked.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        self.checked = Instant::now();
        self.set_clock(clock::clock_state());
        if self.addresses.have_changed()? {
            let [local, others] = self.addresses.of_kernel(&self.settings)?;
            self.reflector.update_local(&pairs(&local), &pairs(&others))?;
        }
        self.follow_interface()
    }

    fn counts(&mut self) -> Result<KernelCounts> {
        let counters = self.reflector.counters()?;
        let interface = [self.lost, self.returned];
        Ok(KernelCounts::new(counters.iter(), self.delivery.undelivered(), interface))
    }

    fn last_counts(&mut self) -> Result<KernelCounts> {
        if self.ifindex.is_some() {
            self.settle()?;
        }
        self.counts()
    }
}

/// The driver's count of what XDP sends.
struct DriverCount(Option<DriverStats>);

impl DriverCount {
    fn open(interface: &str, mode: AttachMode) -> Self {
        DriverCount(match mode {
            AttachMode::Native => DriverStats::open(interface).ok(),
            // There it is the stack that sends, and it counts what it drops.
            AttachMode::Generic => None,
        })
    }

    /// `None`: this driver does not count it.
    fn read(&mut self, veth: bool) -> Option<u64> {
        let counts = DriverCounts::of(veth);
        self.0.as_mut()?.sum(|name| counts.include(name)).ok()
    }

    fn close(&mut self) {
        self.0 = None;
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
