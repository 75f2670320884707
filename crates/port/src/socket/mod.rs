//! The engine "socket": UDP sockets with the kernel's stamps. It needs no privilege
//! for ports above 1023, and works wherever a program may send UDP.
//!
//! A received datagram gets the headers that it had, as far as the kernel reports them. Link
//! addresses are 0 (or the interface of a link-local packet); IP addresses, TTL, DSCP and ECN are
//! as received. There is no UDP checksum over IPv4 and a partial one over IPv6. A frame to be sent
//! is read for the same fields, and its payload goes to the kernel uncopied.

mod endpoint;
mod probe;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use sonde_sys::syscall::{self, SockAddr};
use sonde_wire::{NotSent, Stamp, StampSource, Time, TxDone, Verdict, parse_udp};

use crate::errqueue::{BATCH, Batch, ToTai, is_drop, may_be_earlier};
use crate::icmp::IcmpError;
use crate::refusal::{Refusals, why};
use crate::{
    Caps, FrameDesc, OpenSpec, Port, PortError, PortMode, PortStats, RxBurst, TxBurst, TxDesc,
};
use endpoint::{Endpoint, Options};

/// One UDP socket for each family and local port.
pub struct SocketPort {
    endpoints: Vec<Endpoint>,
    /// Endpoint by family and source port.
    by_port: [Box<[u16]>; 2],
    poll: OwnedFd,
    events: Box<[libc::epoll_event]>,
    /// Endpoints with datagrams, and those whose error queue is to be read.
    ready: Vec<u16>,
    stamped: Vec<u16>,
    batch: Batch,
    memory: Box<[u8]>,
    frames: Vec<FrameDesc>,
    done: Vec<TxDone>,
    refusals: Refusals,
    free: Box<[TxDesc]>,
    used: usize,
    queue: Vec<Outgoing>,
    peers: Option<Box<[bool]>>,
    local: Vec<IpAddr>,
    scope: u32,
    /// Interfaces of link-local destinations.
    scopes: HashMap<Ipv6Addr, u32>,
    tx_stamps: bool,
    /// The call before brought no frame, or was one to wait.
    idle: bool,
    /// ICMP errors that nobody has taken yet.
    errors: Vec<IcmpError>,
    icmp_errors: bool,
    tai: ToTai,
    caps: Caps,
    stats: PortStats,
}

/// A frame on its way out: which endpoint, which position in the order, where its parts lie.
#[derive(Clone, Copy)]
struct Outgoing {
    endpoint: u16,
    order: u16,
    payload: (usize, usize),
    to: SockAddr,
    source: IpAddr,
    /// The interface that link-local addresses belong to.
    scope: u32,
    tos: u8,
    ttl: u8,
    cookie: u64,
    /// Its transmit stamp is asked for.
    stamped: bool,
}

impl SocketPort {
    /// Binds a socket for every port of the filter.
    ///
    /// # Errors
    /// [`PortError::Config`] for another mode than [`PortMode::Exchange`]. Else a port in use, a
    /// port below 1024 without CAP_NET_BIND_SERVICE, an address that is not this host's, an unknown
    /// interface.
    pub fn open(spec: &OpenSpec) -> Result<SocketPort, PortError> {
        spec.check()?;
        if spec.mode != PortMode::Exchange {
            return Err(PortError::Config(
                "engine socket exchanges packets by UDP ports of its own; use af_packet or af_xdp"
                    .into(),
            ));
        }
        let io = |what: &'static str| move |e| syscall::error(what, e, "CAP_NET_ADMIN");
        let scopes: HashMap<Ipv6Addr, u32> = spec.scopes.iter().copied().collect();
        let scope = match &spec.interface {
            Some(name) => syscall::interface_index(name)?,
            None => spec.scopes.first().map_or(0, |&(_, ifindex)| ifindex),
        };
        let found = probe::probe(spec.tx_stamps);
        syscall::raise_descriptor_limit(2 * spec.filter.local_ports.len())
            .map_err(io("raise the limit of open files"))?;
        let endpoints = Endpoint::open_all(
            &spec.filter,
            scope,
            (spec.tx_stamps, found.chosen_ids),
            Options {
                fragment: spec.fragment,
                icmp_errors: spec.icmp_errors,
                device: spec.interface.as_deref().filter(|_| spec.bind_device),
            },
        )?;
        let mut by_port = [(); 2].map(|()| vec![NONE; 1 << 16].into_boxed_slice());
        // SAFETY: no memory is passed.
        let poll = syscall::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
            .map_err(io("create an epoll instance"))?;
        // SAFETY: a new descriptor that nobody else owns.
        let poll = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(poll) };
        for (i, endpoint) in endpoints.iter().enumerate() {
            by_port[usize::from(endpoint.v6)][usize::from(endpoint.port)] = i as u16;
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: i as u64 };
            let fd = endpoint.fd.as_raw_fd();
            // SAFETY: the kernel reads one event.
            let rc = unsafe {
                libc::epoll_ctl(poll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
            };
            syscall::check(rc).map_err(io("watch a socket"))?;
        }
        let free: Box<[TxDesc]> = (0..TX_SLOTS)
            .map(|i| TxDesc {
                offset: (BATCH + i) * STRIDE,
                capacity: MAX_FRAME,
                ..TxDesc::default()
            })
            .collect();
        let peers = (!spec.filter.peer_ports.is_empty()).then(|| {
            let mut known = vec![false; 1 << 16].into_boxed_slice();
            spec.filter.peer_ports.iter().for_each(|&p| known[usize::from(p)] = true);
            known
        });
        let count = endpoints.len();
        let caps = Caps {
            engine: "socket",
            mode: format!("{count} UDP sockets, batches of {BATCH}{}", found.remark),
            rx_stamp: found.rx,
            tx_stamp: found.tx,
            max_frame: MAX_FRAME,
            link_layer: false,
        };
        Ok(SocketPort {
            endpoints,
            by_port,
            poll,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH].into(),
            ready: Vec::with_capacity(BATCH),
            stamped: Vec::with_capacity(count),
            batch: Batch::new(),
            memory: vec![0; (BATCH + TX_SLOTS) * STRIDE].into(),
            frames: Vec::with_capacity(BATCH),
            done: Vec::with_capacity(DONE),
            refusals: Refusals::new(BATCH + 2 * TX_SLOTS),
            free,
            used: 0,
            queue: Vec::with_capacity(BATCH + TX_SLOTS),
            peers,
            local: spec.filter.local.clone(),
            scope,
            scopes,
            tx_stamps: found.tx != StampSource::User,
            idle: false,
            errors: Vec::with_capacity(if spec.icmp_errors { ERRORS } else { 0 }),
            icmp_errors: spec.icmp_errors,
            tai: ToTai::new(spec.steady),
            caps,
            stats: PortStats::default(),
        })
    }

    /// Which sockets have something, into `ready` and `stamped`.
    fn look(&mut self, timeout_ns: i64) -> Result<(), PortError> {
        self.ready.clear();
        let time = libc::timespec {
            tv_sec: timeout_ns / 1_000_000_000,
            tv_nsec: timeout_ns % 1_000_000_000,
        };
        // SAFETY: room for `events.len()` events, one timespec, no signal mask.
        let rc = unsafe {
            libc::epoll_pwait2(
                self.poll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as i32,
                &raw const time,
                std::ptr::null(),
            )
        };
        let n = match syscall::check(rc) {
            Ok(n) => n as usize,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => 0,
            Err(e) => return Err(syscall::error("wait for packets", e, "CAP_NET_ADMIN").into()),
        };
        for event in &self.events[..n] {
            let (events, i) = (event.events, event.u64 as u16);
            if events & libc::EPOLLIN as u32 != 0 {
                self.ready.push(i);
            }
            if events & libc::EPOLLERR as u32 != 0 {
                let endpoint = &mut self.endpoints[usize::from(i)];
                if !std::mem::replace(&mut endpoint.listed, true) {
                    self.stamped.push(i);
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), PortError> {
        self.frames.clear();
        if self.endpoints.len() <= FEW {
            self.ready.clear();
            self.ready.extend(0..self.endpoints.len() as u16);
            // The next call begins with another socket, so that none is starved.
            let turn = self.stats.rx_frames as usize / BATCH % self.endpoints.len().max(1);
            self.ready.rotate_left(turn);
        } else {
            self.look(0)?;
        }
        let mut slot = 0;
        let mut late = None;
        for &i in &self.ready {
            if slot == BATCH {
                break;
            }
            let endpoint = &mut self.endpoints[usize::from(i)];
            let headers = endpoint.header_len();
            let room = (slot * STRIDE + headers, STRIDE, MAX_FRAME - headers);
            // An error that a socket has pending (a link that went down) is not the end:
            // reading it has cleared it.
            let n = self
                .batch
                .receive(endpoint.fd.as_raw_fd(), &mut self.memory, room, BATCH - slot)
                .unwrap_or(0);
            for j in 0..n {
                let at = (slot + j) * STRIDE;
                let Some(found) = endpoint.received(&self.batch, j, self.tai) else {
                    self.stats.rx_invalid += 1;
                    continue;
                };
                let stranger =
                    self.peers.as_ref().is_some_and(|p| !p[usize::from(found.source.port())])
                        || !(self.local.is_empty() || self.local.contains(&found.destination.ip()));
                if stranger {
                    continue;
                }
                let end = at + headers + found.len;
                let Some(len) = found.write_headers(&mut self.memory[at..end]) else {
                    self.stats.rx_invalid += 1;
                    continue;
                };
                let stamp = found.stamp.unwrap_or_else(|| Stamp {
                    at: *late.get_or_insert_with(|| self.tai.now()),
                    source: StampSource::User,
                });
                let verdict = Verdict::Release;
                self.frames.push(FrameDesc {
                    offset: at,
                    len,
                    wire_len: len,
                    segment: 0,
                    stamp,
                    verdict,
                });
            }
            slot += n;
        }
        self.stats.rx_frames += self.frames.len() as u64;
        Ok(())
    }

    fn read_stamps(&mut self) -> Result<(), PortError> {
        self.done.clear();
        let SocketPort { endpoints, stamped, batch, done, tai, errors, stats, .. } = self;
        let mut failed = None;
        stamped.retain(|&i| {
            let endpoint = &mut endpoints[usize::from(i)];
            let fd = endpoint.fd.as_raw_fd();
            if let Err(e) = endpoint.awaited.drain(fd, batch, *tai, done, &mut |error| {
                let error = IcmpError { source_port: endpoint.port, ..error };
                match errors.len() < errors.capacity() {
                    true => errors.push(error),
                    false => stats.icmp_untold += 1,
                }
            }) {
                failed = Some(e);
            }
            endpoint.listed = endpoint.awaited.outstanding > 0;
            endpoint.listed
        });
        self.stats.tx_stamps += done.len() as u64;
        let error = |e| syscall::error("read transmit stamps", e, "CAP_NET_ADMIN");
        failed.map_or(Ok(()), |e| Err(error(e).into()))
    }

    /// Reads a frame's headers into the queue.
    fn enqueue(&mut self, offset: usize, len: usize, cookie: u64) {
        let found = parse_udp(&self.memory[offset..offset + len]).ok().and_then(|f| {
            let endpoint = self.by_port[usize::from(f.is_ipv6)][usize::from(f.source_port)];
            (endpoint != NONE).then_some((endpoint, f))
        });
        let Some((endpoint, f)) = found else {
            self.stats.tx_dropped += 1;
            self.refusals.add(cookie, NotSent::Other);
            return;
        };
        // A packet that is turned round goes back by the interface it came by.
        let link = &self.memory[offset..offset + 12];
        let mut source = [0; 6];
        source.copy_from_slice(&link[6..]);
        let scope = endpoint::mac_as_scope(source).unwrap_or_else(|| match f.destination {
            IpAddr::V6(a) if a.is_unicast_link_local() => {
                self.scopes.get(&a).copied().unwrap_or(self.scope)
            }
            _ => self.scope,
        });
        self.queue.push(Outgoing {
            endpoint,
            order: self.queue.len() as u16,
            payload: (offset + f.payload.start, offset + f.payload.end),
            to: SockAddr::new(f.destination, f.destination_port, scope),
            source: f.source,
            scope,
            tos: f.dscp << 2 | f.ecn,
            ttl: f.ttl,
            cookie,
            stamped: self.tx_stamps && cookie != 0,
        });
    }

    /// Sends the packets of the queue from `first` on that share a socket, at most a
    /// batch; how many those were.
    fn send_run(&mut self, first: usize) -> Result<usize, PortError> {
        let rest = &self.queue[first..];
        let n = rest.iter().take(BATCH).take_while(|o| o.endpoint == rest[0].endpoint).count();
        let run = &rest[..n];
        let endpoint = &mut self.endpoints[usize::from(run[0].endpoint)];
        let (mut sent, mut retried) = (0, None);
        while sent < n {
            // Prepared again after a refusal, because the ids of the rest may change.
            let mut asked = 0;
            for (i, o) in run.iter().enumerate().skip(sent) {
                let payload = &self.memory[o.payload.0..o.payload.1];
                self.batch.outgoing(i, payload, Some((o.to, endpoint.v6)));
                endpoint.describe(&mut self.batch, i, (o.source, o.scope), o.tos, o.ttl);
                if o.stamped {
                    endpoint.awaited.ask(&mut self.batch, i, asked);
                    asked += 1;
                }
            }
            // SAFETY: the payloads lie in `self.memory`, which is not touched meanwhile.
            let result = unsafe { self.batch.send(endpoint.fd.as_raw_fd(), sent, n) };
            let count = *result.as_ref().unwrap_or(&0);
            self.stats.tx_frames += count as u64;
            for o in run[sent..sent + count].iter().filter(|o| o.stamped) {
                self.stats.tx_stamp_missing += u64::from(endpoint.awaited.sent(o.cookie));
                if !std::mem::replace(&mut endpoint.listed, true) {
                    self.stamped.push(run[0].endpoint);
                }
            }
            sent += count;
            match result {
                // An earlier packet's ICMP error is reported by the next call, which then sends
                // nothing: tried again, this packet's own fate is heard.
                Err(e) if self.icmp_errors && may_be_earlier(&e) && retried != Some(sent) => {
                    retried = Some(sent);
                }
                Err(e) if is_drop(&e) => {
                    if run[sent].stamped {
                        endpoint.awaited.refused(&e);
                    }
                    self.refusals.add(run[sent].cookie, why(&e, true));
                    self.stats.tx_dropped += 1;
                    sent += 1;
                }
                Err(e) => return Err(syscall::error("send", e, "CAP_NET_ADMIN").into()),
                Ok(_) => {}
            }
        }
        Ok(n)
    }
}

impl Port for SocketPort {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        if self.frames.iter().any(|f| f.verdict != Verdict::Release) {
            self.flush()?;
        }
        self.refusals.begin();
        self.tai.turn();
        // Frames first: whatever they answer has its stamp in an error queue by then.
        self.receive()?;
        // Without a frame nothing needs them yet, and a few together cost one call less each.
        let waiting: usize =
            self.stamped.iter().map(|&i| self.endpoints[usize::from(i)].awaited.outstanding).sum();
        if !self.frames.is_empty() || waiting >= STAMPS_TOGETHER || self.idle {
            self.read_stamps()?;
        } else {
            self.done.clear();
        }
        self.idle = self.frames.is_empty();
        let burst = RxBurst::new(&mut self.memory, &mut self.frames, &self.done);
        Ok(burst.with_refused(self.refusals.show()).with_scale(self.tai.scale()))
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.stats.tx_full += u64::from(self.used == self.free.len());
        TxBurst::new(&mut self.memory, &mut self.free, &mut self.used)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.queue.clear();
        for i in 0..self.frames.len() {
            let frame = self.frames[i];
            if let Verdict::Transmit { cookie } = frame.verdict {
                self.frames[i].verdict = Verdict::Release;
                self.enqueue(frame.offset, frame.len, cookie);
            }
        }
        for i in 0..std::mem::take(&mut self.used) {
            let TxDesc { offset, len, cookie, .. } = self.free[i];
            self.enqueue(offset, len, cookie);
        }
        if self.endpoints.len() > 1 {
            self.queue.sort_unstable_by_key(|o| (o.endpoint, o.order));
        }
        let mut first = 0;
        while first < self.queue.len() {
            first += self.send_run(first)?;
        }
        Ok(())
    }

    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        let now = self.tai.now();
        self.tai.refresh(now);
        // Whoever waits is in no hurry: the next call takes whatever there is.
        self.idle = true;
        if until > now { self.look(until - now) } else { Ok(()) }
    }

    fn now(&self) -> Time {
        self.tai.now()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn take_icmp_errors(&mut self, each: &mut dyn FnMut(IcmpError)) {
        self.errors.drain(..).for_each(each);
    }

    fn stats(&mut self) -> PortStats {
        self.tai.refresh(self.tai.now());
        self.stats.rx_dropped += self.endpoints.iter_mut().map(Endpoint::new_drops).sum::<u64>();
        self.stats
    }
}

/// The index where there is no endpoint.
const NONE: u16 = u16::MAX;
/// So few sockets are read without asking first which of them have something.
const FEW: usize = 4;
const TX_SLOTS: usize = 256;
/// The longest IP packet behind an Ethernet header with two VLAN tags. What the path takes is for
/// the route to say, and for whoever lets packets go in pieces.
const MAX_FRAME: usize = 65_535 + 22;
/// Between buffers: an odd number of cache lines, so that their beginnings spread over
/// all cache sets. Of a buffer only the pages that are used take memory.
const STRIDE: usize = 1025 * 64;
/// ICMP errors kept for whoever asks.
const ERRORS: usize = 256;
/// So many transmit stamps are fetched though no frame has come.
const STAMPS_TOGETHER: usize = 32;
/// Transmit stamps taken by one call; beyond that they wait for the next.
const DONE: usize = 8192;

#[cfg(test)]
mod tests;
