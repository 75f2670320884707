//! Collecting live, until the exporter has nothing more to say.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sonde_port::collector;
use sonde_wire::ipfix;

use super::args::Listen;
use super::messages::Exporters;
use super::observed::Observed;
use crate::signals::Signals;

/// Collects until nothing came for `idle_ns` after something came, or Ctrl-C.
pub(super) fn collect(
    listen: &Listen,
    idle_ns: i64,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&Observed),
) -> Result<()> {
    let signals = Signals::catch()?;
    // Bounded: a flood waits in the kernel. What does not fit there is counted, and shows up
    // as gaps in the sequence numbers.
    let (give, get) = sync_channel::<(u32, Vec<u8>)>(QUEUE);
    let bound = match *listen {
        Listen::Udp(at) => udp(at, give),
        Listen::Tcp(at) => tcp(at, give),
    }?;
    eprintln!("listening on {}", bound.words);
    let idle = Duration::from_nanos(idle_ns.max(0) as u64);
    let mut last: Option<Instant> = None;
    loop {
        match get.recv_timeout(LOOK) {
            Ok((session, message)) => {
                exporters.message(session, &message, take);
                last = Some(Instant::now());
            }
            Err(RecvTimeoutError::Timeout) => {
                if signals.wait(Duration::ZERO) || last.is_some_and(|at| at.elapsed() >= idle) {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Some(socket) = &bound.socket {
        exporters.dropped(collector::dropped(socket).context("cannot count lost datagrams")?);
    }
    Ok(())
}

/// What is listened on.
struct Bound {
    words: String,
    /// Of datagrams, for what the kernel drops.
    socket: Option<UdpSocket>,
}

fn udp(at: SocketAddr, give: SyncSender<(u32, Vec<u8>)>) -> Result<Bound> {
    let socket = collector::bind(at, BUFFER).with_context(|| cannot(at))?;
    let bytes = collector::receive_buffer(&socket)?;
    let short = if bytes < BUFFER { ": root, or net.core.rmem_max, would give more" } else { "" };
    let words = format!("{} (receive buffer {} KiB{short})", socket.local_addr()?, bytes >> 10);
    let bound = Bound { words, socket: Some(socket.try_clone()?) };
    spawn(move || {
        let mut sessions = HashMap::new();
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            let next = FIRST | sessions.len().min(0xFFFF) as u32;
            let session = *sessions.entry(peer).or_insert(next);
            if give.send((session, buffer[..len].to_vec())).is_err() {
                return;
            }
        }
    })?;
    Ok(bound)
}

fn tcp(at: SocketAddr, give: SyncSender<(u32, Vec<u8>)>) -> Result<Bound> {
    let listener = TcpListener::bind(at).with_context(|| cannot(at))?;
    let bound = Bound { words: listener.local_addr()?.to_string(), socket: None };
    spawn(move || {
        for (i, stream) in listener.incoming().take(MOST_CONNECTIONS).enumerate() {
            let Ok(mut stream) = stream else { continue };
            let give = give.clone();
            let started = spawn(move || {
                while let Ok(message) = whole(&mut stream) {
                    if give.send((FIRST | i as u32, message)).is_err() {
                        return;
                    }
                }
            });
            if started.is_err() {
                return;
            }
        }
    })?;
    Ok(bound)
}

/// The next message of a stream; one that is none is handed on, and ends the stream.
fn whole(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut message = vec![0; ipfix::HEADER_LEN];
    stream.read_exact(&mut message)?;
    if let Ok(header) = ipfix::Header::parse(&message) {
        message.resize(usize::from(header.length), 0);
        stream.read_exact(&mut message[ipfix::HEADER_LEN..])?;
    }
    Ok(message)
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
