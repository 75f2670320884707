//! One connection to a collector: sequence numbers that begin with it, and what of it has
//! arrived.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use sonde_sys::stream::{abort, connect_sctp, connect_tcp, is_closed, is_silent, unacknowledged};
use sonde_wire::ipfix::{Header, set_sequence};

use super::segments::Waiting;
use super::tls::{TlsClient, TlsSession};
use crate::flow::collector_address::{CollectorAddress, CollectorTransport};

/// A connection, and what is on its way over it.
pub struct Connection {
    wire: Wire,
    transport: CollectorTransport,
    tls: Option<TlsSession>,
    /// What was put in and not written yet.
    out: Vec<u8>,
    written: usize,
    /// Where in the octets of the connection messages end that were written and have not
    /// arrived, and their lengths; the oldest first.
    under_way: VecDeque<(u64, u64)>,
    /// Length of the message that is being written.
    writing: u64,
    /// The sequence number that counts as 0 here, by domain.
    bases: Vec<(u32, u32)>,
    series: Option<u64>,
    patience: Duration,
}

/// The socket, below TLS if there is any. Counts the octets written.
struct Wire {
    stream: TcpStream,
    octets: u64,
}

impl Connection {
    /// Connects, and makes the session of TLS if there is to be one. A collector that
    /// answers nothing for `patience` counts as dead.
    pub fn open(
        target: &CollectorAddress,
        tls: Option<&TlsClient>,
        patience: Duration,
    ) -> io::Result<Connection> {
        let peer = target.resolve().map_err(|e| io::Error::other(format!("{e:#}")))?;
        let stream = match target.transport {
            CollectorTransport::Sctp => connect_sctp(peer, CONNECTING)?,
            _ => connect_tcp(peer, CONNECTING, patience)?,
        };
        stream.set_write_timeout(Some(CONNECTING))?;
        stream.set_read_timeout(Some(CONNECTING))?;
        let tls = tls.map(|tls| tls.handshake(&stream)).transpose()?;
        stream.set_write_timeout(Some(WRITING))?;
        Ok(Connection {
            wire: Wire { stream, octets: 0 },
            transport: target.transport,
            tls,
            out: Vec::new(),
            written: 0,
            under_way: VecDeque::new(),
            writing: 0,
            bases: Vec::new(),
            series: None,
            patience,
        })
    }

    /// Puts in the messages that begin the connection.
    pub fn put_first(&mut self, templates: &[u8]) -> io::Result<()> {
        self.enter(templates)
    }

    /// Whether a message's sequence numbers belong to those sent here.
    pub fn continues(&self, waiting: &Waiting) -> bool {
        self.series.is_none_or(|series| series == waiting.series)
    }

    /// Puts in a message. To be written, and then said to be [`Connection::sent`].
    pub fn put(&mut self, waiting: &Waiting) -> io::Result<()> {
        self.series = Some(waiting.series);
        let mut bytes = waiting.bytes.clone();
        let Header { sequence, domain, .. } = Header::parse(&bytes).map_err(io::Error::other)?;
        let known = self.bases.iter().find(|(of, _)| *of == domain).map(|(_, base)| *base);
        let base = known.unwrap_or_else(|| {
            self.bases.push((domain, sequence));
            sequence
        });
        set_sequence(&mut bytes, sequence.wrapping_sub(base)).map_err(io::Error::other)?;
        self.writing = bytes.len() as u64;
        self.enter(&bytes)
    }

    fn enter(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(session) => session.enter(bytes),
            None => {
                self.out.clear();
                self.out.extend_from_slice(bytes);
                self.written = 0;
                Ok(())
            }
        }
    }

    /// Writes what was put in, for a short time. Whether all of it is written.
    pub fn write(&mut self) -> io::Result<bool> {
        let result = match &mut self.tls {
            Some(session) => session.write(&mut self.wire),
            None => match &self.out[self.written..] {
                [] => return Ok(true),
                rest => self.wire.write(rest).map(|n| {
                    self.written += n;
                    self.written == self.out.len()
                }),
            },
        };
        match result {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(false)
            }
            other => other,
        }
    }

    /// The message put in last is on its way.
    pub fn sent(&mut self) {
        self.under_way.push_back((self.wire.octets, self.writing));
    }

    /// Messages that have not arrived.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Octets of the connection that the collector's kernel has acknowledged.
    pub fn acknowledged(&self) -> io::Result<u64> {
        let left = unacknowledged(&self.wire.stream, self.transport == CollectorTransport::Sctp)?;
        Ok(self.wire.octets.saturating_sub(left as u64))
    }

    /// Takes the oldest message off if it ends within what was acknowledged: its length.
    pub fn arrived(&mut self, acknowledged: u64) -> Option<u64> {
        let &(end, length) = self.under_way.front()?;
        if end > acknowledged {
            return None;
        }
        self.under_way.pop_front();
        Some(length)
    }

    /// Fails if the collector has closed, or does not answer any more.
    pub fn check(&mut self) -> io::Result<()> {
        if !is_closed(&self.wire.stream) {
            // SCTP finds out by itself: heartbeats (RFC 9260, section 8.3).
            if self.transport != CollectorTransport::Sctp
                && is_silent(&self.wire.stream, self.patience)?
            {
                let text = format!("no answer for {} s", self.patience.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            return Ok(());
        }
        if let Some(session) = &mut self.tls {
            session.farewell(&self.wire.stream)?;
        }
        // What the kernel found: a reset, a time-out.
        if let Some(error) = self.wire.stream.take_error()? {
            return Err(error);
        }
        Err(io::Error::new(ErrorKind::ConnectionAborted, "the collector has closed"))
    }

    /// Closes in order, after all has arrived.
    pub fn close(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            session.close(&mut self.wire)?;
        }
        let stream = &mut self.wire.stream;
        stream.shutdown(Shutdown::Write)?;
        // When the collector closes, it has read everything.
        stream.set_read_timeout(Some(CLOSING))?;
        let mut buffer = [0; 1024];
        while stream.read(&mut buffer)? > 0 {}
        Ok(())
    }

    /// Gives up the connection: what has not arrived will not, since it is sent again over
    /// another one.
    pub fn abort(self) {
        abort(self.wire.stream);
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.stream.write(bytes)?;
        self.octets += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To connect, and for the handshake of TLS.
const CONNECTING: Duration = Duration::from_secs(5);
/// Of one write: then it is looked around.
const WRITING: Duration = Duration::from_millis(100);
/// For the collector to close after us.
const CLOSING: Duration = Duration::from_secs(2);
