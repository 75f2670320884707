//! The next hops of a set of routes: resolved, kept fresh, and followed.
//!
//! A change is never believed from its notification: the notification says only
//! which next hop to ask the kernel about. So none can be missed or applied twice.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::link::Links;
use super::neighbour::{Neighbour, Neighbours};
use super::route::Route;
use super::watch::{NetlinkEvent, NetlinkWatch};
use super::{Mac, Tag};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The interface, of VLAN devices the topmost.
    pub ifindex: u32,
    /// The device below any VLAN devices.
    pub lower_ifindex: u32,
    /// VLAN tags, outermost first.
    pub tags: Vec<Tag>,
    /// The gateway, or a host on the link; `None` where nobody needs to be resolved.
    pub address: Option<IpAddr>,
    /// The MAC addresses to send with; `None`: it cannot be reached now.
    pub macs: Option<Macs>,
    /// The interface is up and has a carrier.
    pub running: bool,
}

/// The two MAC addresses of a frame. Zeros on links that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Macs {
    /// That of the next hop, as the kernel has resolved it.
    pub destination: Mac,
    /// That of the interface by which it is reached.
    pub source: Mac,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The next hops whose MAC addresses changed, by index. `None`: it cannot be
    /// reached any more, or still not, but for another reason.
    pub macs: Vec<(usize, Option<Macs>)>,
    /// Routes or addresses changed: look the destinations up again.
    pub routes: bool,
}

/// The next hops of a set of routes.
pub struct NextHops {
    hops: Vec<NextHop>,
    watch: NetlinkWatch,
    neighbours: Neighbours,
    links: Links,
    /// Somebody else has the kernel look for neighbours: they are only looked at.
    passive: bool,
}

impl NextHops {
    /// Finds the next hops of `routes`, and waits at most `patience` until each is
    /// resolved. Those that are not by then may still be, see [`NextHops::poll`].
    ///
    /// Also returns the index of each route's next hop.
    ///
    /// The kernel keeps at most `net.ipv4.neigh.default.gc_thresh3` neighbours (1,024
    /// by default); for more next hops than that, this fails and says so.
    pub fn resolve(routes: &[Route], patience: Duration) -> io::Result<(Self, Vec<usize>)> {
        Self::find(routes, patience, false)
    }

    /// The same for somebody whose packets the kernel itself sends on their way: nobody is asked
    /// for (which would need a privilege), nothing waited for. A neighbour that the kernel does not
    /// know yet counts as unreachable until it does.
    pub fn watch(routes: &[Route]) -> io::Result<(Self, Vec<usize>)> {
        Self::find(routes, Duration::ZERO, true)
    }

    fn find(routes: &[Route], patience: Duration, passive: bool) -> io::Result<(Self, Vec<usize>)> {
        let mut next_hops = NextHops {
            hops: Vec::new(),
            // Before the first question, so that no later change is missed.
            watch: NetlinkWatch::open()?,
            neighbours: Neighbours::open()?,
            links: Links::open()?,
            passive,
        };
        let mut seen = std::collections::HashMap::new();
        let mut indices = Vec::with_capacity(routes.len());
        for route in routes {
            let address = (!route.local).then_some(route.next_hop);
            let index = *seen.entry((route.ifindex, address)).or_insert(next_hops.hops.len());
            if index == next_hops.hops.len() {
                next_hops.hops.push(NextHop {
                    ifindex: route.ifindex,
                    lower_ifindex: route.lower_ifindex,
                    tags: route.tags.clone(),
                    address,
                    macs: None,
                    running: false,
                });
            }
            indices.push(index);
        }
        for index in 0..next_hops.hops.len() {
            next_hops.hops[index].macs = next_hops.ask(index)?;
        }
        let deadline = Instant::now() + patience;
        while next_hops.hops.iter().any(|h| h.macs.is_none()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            readable(next_hops.fd(), left)?;
            next_hops.poll()?;
        }
        Ok((next_hops, indices))
    }

    /// The next hops, by index.
    pub fn all(&self) -> &[NextHop] {
        &self.hops
    }

    /// What has changed since the last call. Does not wait for anything to happen;
    /// costs a system call when nothing has. One that cannot be reached is asked for
    /// again whenever the kernel has given it up.
    pub fn poll(&mut self) -> io::Result<Changes> {
        let mut changes = Changes::default();
        let mut touched = std::collections::BTreeSet::new();
        let mut touch = |hops: &[NextHop], of: &dyn Fn(&NextHop) -> bool| {
            touched.extend(hops.iter().enumerate().filter(|(_, h)| of(h)).map(|(i, _)| i));
        };
        for event in self.watch.poll()? {
            match event {
                NetlinkEvent::Neighbour { ifindex, address, .. } => {
                    touch(&self.hops, &|h| h.ifindex == ifindex && h.address == Some(address));
                }
                NetlinkEvent::Link { ifindex, .. } => touch(&self.hops, &|h| h.ifindex == ifindex),
                NetlinkEvent::Route | NetlinkEvent::Address => changes.routes = true,
                NetlinkEvent::Overrun => {
                    changes.routes = true;
                    touch(&self.hops, &|_| true);
                }
            }
        }
        for index in touched {
            let before = self.hops[index].running;
            let macs = self.ask(index)?;
            if macs != self.hops[index].macs || before != self.hops[index].running {
                self.hops[index].macs = macs;
                changes.macs.push((index, macs));
            }
        }
        Ok(changes)
    }

    /// Reports to the kernel that the next hops are in use. So it goes on checking them, though no
    /// packet of ours passes through its stack. To be called every few seconds; what it finds comes
    /// from [`NextHops::poll`].
    pub fn refresh(&mut self) -> io::Result<()> {
        if self.passive {
            return Ok(());
        }
        for index in 0..self.hops.len() {
            let (ifindex, address) = (self.hops[index].ifindex, self.hops[index].address);
            let link = self.links.get(ifindex)?;
            if let Some(address) = address
                && link.is_some_and(|l| l.running && l.resolves)
            {
                self.solicit(ifindex, address)?;
            }
        }
        Ok(())
    }

    /// Becomes readable when there may be something to poll.
    pub fn fd(&self) -> RawFd {
        self.watch.fd()
    }

    /// What to send with to a next hop, as things stand.
    fn ask(&mut self, index: usize) -> io::Result<Option<Macs>> {
        let NextHop { ifindex, address, macs, .. } = self.hops[index];
        let link = self.links.get(ifindex)?.filter(|l| l.running);
        self.hops[index].running = link.is_some();
        let Some(link) = link else { return Ok(None) };
        let with = |destination| Some(Macs { destination, source: link.mac });
        let Some(address) = address.filter(|_| link.resolves) else { return Ok(with([0; 6])) };
        let before = macs.and_then(|m| with(m.destination));
        Ok(match self.neighbours.get(ifindex, address)? {
            Neighbour::Known { mac, .. } => with(mac),
            // Forgotten, to save space, is not gone: the address last known is good
            // until the kernel has asked in vain.
            Neighbour::Resolving => before,
            Neighbour::Absent => {
                self.solicit(ifindex, address)?;
                before
            }
            Neighbour::Failed => {
                self.solicit(ifindex, address)?;
                None
            }
        })
    }

    fn solicit(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()> {
        if self.passive {
            return Ok(());
        }
        match self.neighbours.solicit(ifindex, address) {
            // The interface vanished or was set down since it was looked at; the
            // notification of it is on its way.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENETDOWN)) => Ok(()),
            result => result,
        }
    }
}

/// Waits until `fd` can be read, at most `patience`.
fn readable(fd: RawFd, patience: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // Rounded up: rounding down would spin through the last millisecond.
    let ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
    // SAFETY: one valid pollfd.
    if unsafe { libc::poll(&mut poll, 1, ms) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}
