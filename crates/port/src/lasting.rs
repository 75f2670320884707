//! A port that outlives its interface.
//!
//! An interface may be made again under its name while a measurement runs. A VLAN device is
//! changed, a virtual machine's link is plugged anew, a driver is reset. Sockets and programs stay
//! with the one that is gone, and say nothing. This port looks at the name from time to time, opens
//! its engine again when the interface has returned, and counts both. In between nothing comes, and
//! what is sent is dropped and counted. It also gives the engine the ones which addresses are this
//! host's, as they come and go.

use std::cell::Cell;

use sonde_sys::clock::{steady_now, tai_now};
use sonde_sys::netlink::{NetlinkEvent, NetlinkWatch, Routes};
use sonde_sys::syscall;
use sonde_wire::prefix::Prefix;
use sonde_wire::{NotSent, Time};

use crate::refusal::Refusals;
use crate::{
    Caps, Engine, OpenSpec, Port, PortError, PortMode, PortStats, RxBurst, TxBurst, TxDesc,
    open_once,
};

/// An engine on an interface, opened again when that is made again.
pub(crate) struct Lasting {
    engine: Engine,
    spec: OpenSpec,
    name: String,
    /// Of the interface that it is open on.
    index: u32,
    /// `None` while there is no interface.
    port: Option<Box<dyn Port>>,
    caps: Caps,
    /// What the ports before this one have counted.
    before: PortStats,
    lost: u64,
    returned: u64,
    /// A failure that the next call looks into.
    failed: Option<PortError>,
    addresses: Option<Addresses>,
    /// The time that was last asked for, so that no packet costs a look at the clock.
    now: Cell<Time>,
    looked: Time,
    /// Buffers for what is sent while there is no interface, so that the sender goes on.
    nowhere: Box<[u8]>,
    free: [TxDesc; NOWHERE],
    used: usize,
    refusals: Refusals,
}

/// Follows this host's addresses, for engines below the IP stack that are to take packets to
/// all of them.
struct Addresses {
    watch: NetlinkWatch,
    routes: Routes,
    known: Vec<Prefix>,
}

impl Lasting {
    /// Opens `engine` on the interface that `spec` names.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(engine: Engine, spec: &OpenSpec, name: &str) -> Result<Lasting, PortError> {
        let index = syscall::interface_index(name)?;
        let port = open_once(engine, spec)?;
        let (caps, now) = (port.caps().clone(), port.now());
        let follow = spec.mode == PortMode::Exchange
            && spec.filter.local.is_empty()
            && engine != Engine::Socket;
        let addresses = follow.then(Addresses::follow).transpose().map_err(|e| {
            PortError::io("follow this host's addresses", e, "; name them with --bind instead")
        })?;
        Ok(Lasting {
            engine,
            spec: spec.clone(),
            name: name.to_owned(),
            index,
            port: Some(port),
            caps,
            before: PortStats::default(),
            lost: 0,
            returned: 0,
            failed: None,
            addresses,
            now: Cell::new(now),
            looked: now,
            nowhere: Box::default(),
            free: [TxDesc::default(); NOWHERE],
            used: 0,
            refusals: Refusals::new(spec.ring + 2 * NOWHERE),
        })
    }

    /// Sees from time to time whether the interface is still the one that is open.
    fn look(&mut self) -> Result<(), PortError> {
        let now = self.now.get();
        // The clock may be set back.
        if (now - self.looked).abs() < PERIOD && self.failed.is_none() {
            return Ok(());
        }
        self.looked = now;
        let index = syscall::interface_index(&self.name).ok();
        if self.port.is_some() && index != Some(self.index) {
            self.close();
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match (&mut self.port, index) {
            (Some(port), _) => {
                if let Some(addresses) = &mut self.addresses
                    && addresses.have_changed()
                {
                    port.set_local(&addresses.known)?;
                }
            }
            (None, Some(index)) => {
                // It may not be up yet, or have another program on it: then again later.
                if let Ok(port) = open_once(self.engine, &self.spec) {
                    self.caps = port.caps().clone();
                    self.port = Some(port);
                    self.index = index;
                    self.returned += 1;
                    if let Some(addresses) = &mut self.addresses {
                        // The engine knows those of this moment: what comes next is news to it,
                        // be it what was there before the interface went.
                        addresses.known.clear();
                    }
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some(mut port) = self.port.take() {
            // What the engine refused last, or took back, is not shown by it any more.
            if let Ok(burst) = port.rx() {
                burst.refused().iter().for_each(|r| self.refusals.add(r.cookie, r.why));
            }
            self.before = self.before.plus(&port.stats());
            self.lost += 1;
            let capacity = self.caps.max_frame;
            self.nowhere = vec![0; capacity * NOWHERE].into();
            self.free = std::array::from_fn(|i| TxDesc {
                offset: i * capacity,
                capacity,
                ..TxDesc::default()
            });
        }
        self.failed = None;
    }

    /// A failure of the interface that is gone is none of the port.
    fn survive(&mut self, done: Result<(), PortError>) -> Result<(), PortError> {
        let Err(error) = done else { return Ok(()) };
        self.failed = Some(error);
        self.look()
    }
}

impl Addresses {
    fn follow() -> std::io::Result<Self> {
        // The watch first, so that no change falls between the two.
        let (watch, mut routes) = (NetlinkWatch::open()?, Routes::open()?);
        let known = routes.local_prefixes()?;
        Ok(Addresses { watch, routes, known })
    }

    fn have_changed(&mut self) -> bool {
        let concerns_it = |e: &NetlinkEvent| {
            matches!(e, NetlinkEvent::Route | NetlinkEvent::Address | NetlinkEvent::Overrun)
        };
        if !self.watch.poll().is_ok_and(|events| events.iter().any(concerns_it)) {
            return false;
        }
        match self.routes.local_prefixes() {
            Ok(prefixes) if prefixes != self.known => {
                self.known = prefixes;
                true
            }
            _ => false,
        }
    }
}

impl Port for Lasting {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        self.look()?;
        let Lasting { port, failed, refusals, .. } = self;
        refusals.begin();
        // Those of the port before this one are shown first.
        if refusals.is_empty() {
            match port.as_mut().map(|port| port.rx()) {
                Some(Ok(burst)) => return Ok(burst),
                Some(Err(error)) => *failed = Some(error),
                None => {}
            }
        }
        Ok(RxBurst::new(&mut [], &mut [], &[]).with_refused(refusals.show()))
    }

    fn tx(&mut self) -> TxBurst<'_> {
        match &mut self.port {
            Some(port) => port.tx(),
            None => TxBurst::new(&mut self.nowhere, &mut self.free, &mut self.used),
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        for frame in &self.free[..self.used] {
            self.refusals.add(frame.cookie, NotSent::LinkDown);
        }
        self.before.tx_dropped += std::mem::take(&mut self.used) as u64;
        let done = self.port.as_mut().map_or(Ok(()), |port| port.flush());
        self.survive(done)
    }

    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        let now = self.now();
        let until = until.min(now + PERIOD);
        let done = match &mut self.port {
            Some(port) => port.wait(until),
            None => {
                let nanos = u64::try_from(until - now).unwrap_or(0);
                std::thread::sleep(std::time::Duration::from_nanos(nanos));
                Ok(())
            }
        };
        self.survive(done)
    }

    fn now(&self) -> Time {
        let alone = || if self.spec.steady { steady_now() } else { tai_now() };
        let now = self.port.as_ref().map_or_else(alone, |port| port.now());
        self.now.set(now);
        now
    }

    fn take_icmp_errors(&mut self, each: &mut dyn FnMut(crate::icmp::IcmpError)) {
        if let Some(port) = &mut self.port {
            port.take_icmp_errors(each);
        }
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn stats(&mut self) -> PortStats {
        let now = self.port.as_mut().map_or_else(PortStats::default, |port| port.stats());
        PortStats {
            interface_lost: self.lost,
            interface_returned: self.returned,
            ..self.before.plus(&now)
        }
    }
}

/// Buffers: more than a sender fills at once.
const NOWHERE: usize = 64;
/// Between looks, ns.
const PERIOD: i64 = 200_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, open};
    use sonde_lab::scratch::{in_namespace, ip};
    use sonde_wire::build::emit_udp_ip;
    use std::net::SocketAddr;
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    const LIMIT: Duration = Duration::from_secs(20);

    fn pair(address: &str) {
        ip("link add a0 type veth peer name b0 address 02:00:00:00:00:0b");
        for name in ["a0", "b0"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            ip(&format!("link set {name} up"));
        }
        if !address.is_empty() {
            ip(&format!("address add {address}/24 dev b0"));
        }
    }

    /// Sends a datagram for the reflector's port out of `a0`.
    fn send(to: &str) {
        let mut frame = [0u8; 14 + 28 + 44];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 1, 8, 0]);
        let from: SocketAddr = "10.9.0.1:50000".parse().unwrap();
        emit_udp_ip(&mut frame[14..], from, format!("{to}:8862").parse().unwrap(), 0, 64, 44)
            .unwrap();
        let socket = syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).unwrap();
        // SAFETY: plain data, for which all zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = syscall::interface_index("a0").unwrap() as i32;
        // SAFETY: both buffers are valid for the lengths given.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }

    /// Turns the port until `done`.
    fn until(port: &mut dyn Port, what: &str, mut done: impl FnMut(&mut dyn Port, usize) -> bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let now = port.now();
            let frames = port.rx().unwrap().len();
            if done(port, frames) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {:?}", port.stats());
            if frames == 0 {
                port.wait(now + 20_000_000).unwrap();
            }
        }
    }

    fn receives(port: &mut dyn Port, to: &str, what: &str) {
        until(port, what, |_, frames| {
            send(to);
            frames > 0
        });
    }

    fn spec() -> OpenSpec {
        let filter = Filter { local_ports: vec![8862], ..Filter::default() };
        OpenSpec { ring: 64, ..OpenSpec::new(Some("b0".into()), filter) }
    }

    #[test]
    fn an_interface_that_is_made_again_is_opened_again() {
        in_namespace(|| {
            for engine in [Engine::AfPacket, Engine::AfXdp] {
                pair("10.9.0.2");
                let mut port = open(engine, &spec()).unwrap();
                receives(&mut *port, "10.9.0.2", "at first");
                let before = port.stats().rx_frames;
                for round in 1..=2 {
                    ip("link del a0");
                    until(&mut *port, "gone", |port, _| port.stats().interface_lost == round);
                    // A sender is not held up by it.
                    let dropped = port.stats().tx_dropped;
                    let mut free = port.tx();
                    free.slot().unwrap()[0] = 1;
                    free.commit(60, 1);
                    port.flush().unwrap();
                    assert_eq!(port.stats().tx_dropped, dropped + 1);
                    // It comes without its address, which follows.
                    pair("");
                    until(&mut *port, "back", |port, _| port.stats().interface_returned == round);
                    ip("address add 10.9.0.2/24 dev b0");
                    receives(&mut *port, "10.9.0.2", "again");
                }
                assert!(port.stats().rx_frames > before, "what was counted stays");
                drop(port);
                ip("link del a0");
            }
        });
    }

    #[test]
    fn an_address_that_comes_later_is_served() {
        in_namespace(|| {
            for engine in [Engine::AfPacket, Engine::AfXdp] {
                pair("10.9.0.2");
                let mut port = open(engine, &spec()).unwrap();
                receives(&mut *port, "10.9.0.2", "at first");
                ip("address add 10.9.0.7/24 dev b0");
                receives(&mut *port, "10.9.0.7", "another address");
                drop(port);
                ip("link del a0");
            }
        });
    }
}
