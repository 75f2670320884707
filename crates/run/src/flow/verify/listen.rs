//! Collecting live, until the exporter has nothing more to say.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sonde_sys::udp;
use sonde_wire::ipfix;

use super::messages::Exporters;
use super::observed::ObservedFlow;
use super::settings::Listen;
use crate::running::{SetOnDrop, Stop};

/// An address that is listened on.
pub(super) enum Bound {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

impl Bound {
    /// Takes the address: from now on the kernel keeps what comes there.
    pub fn to(listen: &Listen) -> Result<Bound> {
        Ok(match *listen {
            Listen::Udp(at) => {
                let socket = udp::bind(at, BUFFER).with_context(|| cannot(at))?;
                // Whoever receives looks whether it is to end.
                socket.set_read_timeout(Some(LOOK))?;
                Bound::Udp(socket)
            }
            Listen::Tcp(at) => {
                let listener = TcpListener::bind(at).with_context(|| cannot(at))?;
                listener.set_nonblocking(true)?;
                Bound::Tcp(listener)
            }
        })
    }

    /// Collects until nothing came for `idle_ns` after something came, or the end is asked for.
    pub fn collect(
        self,
        idle_ns: i64,
        stop: &Stop,
        exporters: &mut Exporters,
        take: &mut dyn FnMut(&ObservedFlow),
    ) -> Result<()> {
        // Bounded: a flood waits in the kernel. What does not fit there is counted, and shows up
        // as gaps in the sequence numbers.
        let (give, get) = sync_channel::<Came>(QUEUE);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            let _end = SetOnDrop(&ended);
            // Gone before those who give are waited for.
            let get = get;
            match &self {
                Bound::Udp(socket) => spawn(scope, || datagrams(socket, give, &ended)),
                Bound::Tcp(listener) => spawn(scope, || connections(scope, listener, give, &ended)),
            }
            .context("cannot start a thread; 'ulimit -u' bounds them")?;
            tracing::info!("listening on {}", self.describe()?);
            let idle = Duration::from_nanos(idle_ns.max(0) as u64);
            until_idle(&get, idle, || stop.is_asked(), exporters, take);
            Ok(())
        })?;
        if let Bound::Udp(socket) = &self {
            exporters.dropped(
                udp::dropped(socket)
                    .context("cannot ask the kernel how many datagrams it dropped")?,
            );
        }
        Ok(())
    }

    fn describe(&self) -> Result<String> {
        let socket = match self {
            Bound::Udp(socket) => socket,
            Bound::Tcp(listener) => return Ok(listener.local_addr()?.to_string()),
        };
        let bytes = udp::receive_buffer(socket)?;
        let short =
            if bytes < BUFFER { ": root, or net.core.rmem_max, would give more" } else { "" };
        let address = socket.local_addr()?;
        Ok(format!("{address} (receive buffer {} KiB{short})", bytes >> 10))
    }
}

/// What came from a session.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// A whole message, or what is none.
    Message(u32, Vec<u8>),
    /// A part of one, so far.
    Part(u32),
    /// The session has ended within a message.
    CutOff(u32),
}

/// Takes what comes until nothing came for `idle` after something came, be it only a part of
/// a message, or `stop` says so.
fn until_idle(
    get: &Receiver<Came>,
    idle: Duration,
    stop: impl Fn() -> bool,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&ObservedFlow),
) {
    let mut last: Option<Instant> = None;
    let mut begun = HashSet::new();
    loop {
        match get.recv_timeout(LOOK.min(idle)) {
            Ok(came) => {
                last = Some(Instant::now());
                match came {
                    Came::Message(session, message) => {
                        begun.remove(&session);
                        exporters.message(session, &message, take);
                    }
                    Came::Part(session) => drop(begun.insert(session)),
                    Came::CutOff(session) => {
                        begun.remove(&session);
                        exporters.unreadable();
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if stop() || last.is_some_and(|at| at.elapsed() >= idle) {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    begun.iter().for_each(|_| exporters.unreadable());
}

fn datagrams(socket: &UdpSocket, give: SyncSender<Came>, ended: &AtomicBool) {
    let mut sessions = HashMap::new();
    let mut buffer = vec![0; usize::from(u16::MAX)];
    while !ended.load(Ordering::Relaxed) {
        let (len, peer) = match socket.recv_from(&mut buffer) {
            Ok(came) => came,
            Err(e) if is_pause(&e) => continue,
            Err(_) => return,
        };
        let next = FIRST | sessions.len().min(0xFFFF) as u32;
        let session = *sessions.entry(peer).or_insert(next);
        if give.send(Came::Message(session, buffer[..len].to_vec())).is_err() {
            return;
        }
    }
}

fn connections<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    listener: &TcpListener,
    give: SyncSender<Came>,
    ended: &'scope AtomicBool,
) {
    let mut session = FIRST;
    while !ended.load(Ordering::Relaxed) && session - FIRST < MOST_CONNECTIONS {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LISTEN);
            continue;
        };
        let (give, own) = (give.clone(), session);
        session += 1;
        if stream.set_read_timeout(Some(LOOK)).is_err() {
            continue;
        }
        let started = spawn(scope, move || {
            // If nobody takes it any more, it need not be read.
            let mut stream = Connection { stream, ended };
            messages(&mut stream, own, &mut |came| give.send(came).is_ok());
        });
        if started.is_err() {
            return;
        }
    }
}

/// A stream that is over when the collecting is.
struct Connection<'a> {
    stream: TcpStream,
    ended: &'a AtomicBool,
}

impl Read for Connection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(e) if is_pause(&e) && !self.ended.load(Ordering::Relaxed) => {}
                Err(e) if is_pause(&e) => return Ok(0),
                done => return done,
            }
        }
    }
}

/// Nothing came for a while.
fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Hands over the messages of a stream, until it ends, is no stream of messages, or `give`
/// wants no more.
fn messages(stream: &mut impl Read, session: u32, give: &mut dyn FnMut(Came) -> bool) {
    loop {
        let mut message = vec![0; ipfix::HEADER_LEN];
        if !fill(stream, &mut message, 0, session, give) {
            return;
        }
        let header = ipfix::Header::parse(&message);
        if let Ok(header) = &header {
            message.resize(usize::from(header.length), 0);
            if !fill(stream, &mut message, ipfix::HEADER_LEN, session, give) {
                return;
            }
        }
        if !give(Came::Message(session, message)) || header.is_err() {
            return;
        }
    }
}

/// Reads until a part of a message is all there. False: the stream or the interest in it ends.
fn fill(
    stream: &mut impl Read,
    message: &mut [u8],
    mut got: usize,
    session: u32,
    give: &mut dyn FnMut(Came) -> bool,
) -> bool {
    while got < message.len() {
        match stream.read(&mut message[got..]) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(n) if n > 0 => {
                got += n;
                if got < message.len() && !give(Came::Part(session)) {
                    return false;
                }
            }
            _ => {
                if got > 0 {
                    give(Came::CutOff(session));
                }
                return false;
            }
        }
    }
    true
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    std::thread::Builder::new().name("sonde-collect".into()).spawn_scoped(scope, work).map(drop)
}

fn cannot(at: SocketAddr) -> String {
    format!("cannot listen on {at}; 'ss -lntu' shows who does")
}

/// Bytes of a UDP socket's receive buffer: a second of half a million flow records.
const BUFFER: usize = 64 << 20;
/// Messages that may wait.
const QUEUE: usize = 4096;
/// Sessions of sockets are numbered from here, those of files below.
const FIRST: u32 = 1 << 31;
const MOST_CONNECTIONS: u32 = 65_536;
/// Between two looks at whether it is to end, and the clock.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks for a connection.
const LISTEN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its octets in pieces of so many.
    struct Pieces(Vec<u8>, usize);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0.drain(..n);
            Ok(n)
        }
    }

    /// A message without sets.
    fn message() -> Vec<u8> {
        let mut message = vec![0; ipfix::HEADER_LEN];
        let header = ipfix::Header { length: 16, export_time: 1, sequence: 0, domain: 7 };
        header.emit(&mut message).unwrap();
        message
    }

    fn read(octets: Vec<u8>, piece: usize) -> Vec<Came> {
        let mut all = Vec::new();
        messages(&mut Pieces(octets, piece), 5, &mut |came| {
            all.push(came);
            true
        });
        all
    }

    #[test]
    fn parts_of_messages_are_reported_and_so_is_an_end_within_one() {
        let whole = || Came::Message(5, message());
        assert_eq!(read([message(), message()].concat(), 99), [whole(), whole()]);
        let part = || Came::Part(5);
        assert_eq!(read(message(), 6), [part(), part(), whole()]);
        assert_eq!(read(message()[..7].to_vec(), 9), [part(), Came::CutOff(5)]);
        // Something else than messages.
        let garbage = vec![0xFF; 40];
        assert_eq!(read(garbage.clone(), 99), [Came::Message(5, garbage[..16].to_vec())]);
    }

    /// Also where no message ever is whole.
    #[test]
    fn collecting_ends_when_only_parts_came() {
        let (give, get) = sync_channel(9);
        give.send(Came::Part(1)).unwrap();
        give.send(Came::CutOff(2)).unwrap();
        let mut exporters = Exporters::default();
        let idle = Duration::from_millis(1);
        until_idle(&get, idle, || false, &mut exporters, &mut |_| panic!("no flow came"));
        assert_eq!(exporters.counters().unreadable, 2);
        drop(give);
    }
}
