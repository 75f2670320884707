//! Collecting live, until the exporter has nothing more to say.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sonde_sys::udp;
use sonde_wire::ipfix;

use super::messages::Exporters;
use super::observed::Observed;
use super::settings::Listen;
use crate::running::Stop;

/// Collects until nothing came for `idle_ns` after something came, or the end is asked for.
pub(super) fn collect(
    listen: &Listen,
    idle_ns: i64,
    stop: &Stop,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&Observed),
) -> Result<()> {
    // Bounded: a flood waits in the kernel. What does not fit there is counted, and shows up
    // as gaps in the sequence numbers.
    let (give, get) = sync_channel::<Came>(QUEUE);
    let bound = match *listen {
        Listen::Udp(at) => udp(at, give),
        Listen::Tcp(at) => tcp(at, give),
    }?;
    tracing::info!("listening on {}", bound.words);
    let idle = Duration::from_nanos(idle_ns.max(0) as u64);
    until_idle(&get, idle, || stop.is_asked(), exporters, take);
    if let Some(socket) = &bound.socket {
        exporters.dropped(udp::dropped(socket).context("cannot count lost datagrams")?);
    }
    Ok(())
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
    take: &mut dyn FnMut(&Observed),
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

/// What is listened on.
struct Bound {
    words: String,
    /// Of datagrams, for what the kernel drops.
    socket: Option<UdpSocket>,
}

fn udp(at: SocketAddr, give: SyncSender<Came>) -> Result<Bound> {
    let socket = udp::bind(at, BUFFER).with_context(|| cannot(at))?;
    let bytes = udp::receive_buffer(&socket)?;
    let short = if bytes < BUFFER { ": root, or net.core.rmem_max, would give more" } else { "" };
    let words = format!("{} (receive buffer {} KiB{short})", socket.local_addr()?, bytes >> 10);
    let bound = Bound { words, socket: Some(socket.try_clone()?) };
    spawn(move || {
        let mut sessions = HashMap::new();
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            let next = FIRST | sessions.len().min(0xFFFF) as u32;
            let session = *sessions.entry(peer).or_insert(next);
            if give.send(Came::Message(session, buffer[..len].to_vec())).is_err() {
                return;
            }
        }
    })?;
    Ok(bound)
}

fn tcp(at: SocketAddr, give: SyncSender<Came>) -> Result<Bound> {
    let listener = TcpListener::bind(at).with_context(|| cannot(at))?;
    let bound = Bound { words: listener.local_addr()?.to_string(), socket: None };
    spawn(move || {
        for (i, stream) in listener.incoming().take(MOST_CONNECTIONS).enumerate() {
            let Ok(mut stream) = stream else { continue };
            let give = give.clone();
            let session = FIRST | i as u32;
            let started = spawn(move || {
                // If nobody takes it any more, it need not be read.
                messages(&mut stream, session, &mut |came| give.send(came).is_ok());
            });
            if started.is_err() {
                return;
            }
        }
    })?;
    Ok(bound)
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

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("sonde-collect".into()).spawn(work).map(drop)
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
const MOST_CONNECTIONS: usize = 65_536;
/// Between two looks at signals and the clock.
const LOOK: Duration = Duration::from_millis(100);

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
    fn parts_of_messages_are_told_and_so_is_an_end_within_one() {
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
