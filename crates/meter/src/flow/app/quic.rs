//! QUIC (RFC 9000, RFC 9369): the ClientHello in the client's Initial packets. It may be cut into
//! CRYPTO frames of any order and spread over several packets.

use std::sync::Arc;

use sonde_results::flow::{App, TlsInfo};
use sonde_wire::quic::{Long, PacketType};

use super::hello::{CLIENT_HELLO, ClientHello, message_end};
use super::initial::{InitialKeys, bounds, varint};
use super::parse::{Input, Parse, Step};
use super::stream::Stream;
use super::text::ByteReader;
use super::tls::client_info;

/// The Initial packets of a connection, until the client's hello is whole.
#[derive(Clone, Default)]
pub(super) struct Quic {
    version: u32,
    /// Those of the client's first Initial, and its direction.
    keys: Option<(Arc<InitialKeys>, bool)>,
    crypto: Stream,
    tls: TlsInfo,
}

impl Quic {
    /// A client's first packet: an Initial of version 1 or 2. Its identifier has 8 octets or more
    /// (RFC 9000, section 7.2), its datagram 1200 or more (section 14.1). Or 0-RTT data with such
    /// an identifier, which may overtake the Initial. The fixed bit may be greased in both (RFC
    /// 9287, section 3).
    pub(super) fn begins(input: &Input<'_>) -> bool {
        let Ok(long) = Long::parse(input.data) else { return false };
        let sound = match long.kind() {
            PacketType::Initial => input.length >= MIN_DATAGRAM,
            PacketType::ZeroRtt => true,
            _ => false,
        };
        sound
            && long.destination.len() >= MIN_IDENTIFIER
            && bounds(input.data, &long)
                .is_some_and(|span| span.len() >= MIN_PROTECTED && span.end <= input.length)
    }

    /// A connection may begin with a later packet: the client's in a version that is not known. Or
    /// it is the server's answer with those that it knows (RFC 8999, section 6).
    pub(super) fn may_begin_later(input: &Input<'_>) -> bool {
        let Ok(long) = Long::parse(input.data) else { return false };
        match long.kind() {
            PacketType::VersionNegotiation => {
                let versions = input.length.saturating_sub(long.buffer_len());
                versions >= 4 && versions.is_multiple_of(4)
            }
            PacketType::Unknown => {
                long.destination.len() >= MIN_IDENTIFIER && input.length >= MIN_DATAGRAM
            }
            _ => false,
        }
    }

    /// A client's Initial packet at the start of `datagram`; where it ends.
    fn initial(&mut self, datagram: &[u8], long: &Long<'_>, reverse: bool) -> Option<usize> {
        let span = bounds(datagram, long)?;
        // A client takes another version only because the server asked for it, which was not seen.
        let other = long.version != self.version
            && self.keys.as_ref().is_some_and(|keys| keys.1 == reverse)
            && long.destination.len() >= MIN_IDENTIFIER;
        if other {
            *self = Quic::default();
        }
        if self.keys.is_none() {
            self.version = long.version;
            let keys = InitialKeys::client(long.version, long.destination)?;
            self.keys = Some((Arc::new(keys), reverse));
        }
        let (keys, client) = self.keys.as_ref()?;
        if *client == reverse && long.version == self.version && span.end <= MAX_PACKET {
            let mut packet = [0; MAX_PACKET];
            let packet = &mut packet[..span.end];
            packet.copy_from_slice(datagram.get(..span.end)?);
            if let Some(frames) = keys.open(packet, span.start) {
                read_frames(frames, &mut self.crypto);
            }
        }
        Some(span.end)
    }

    /// The hello, if it is whole by now; a part of it where nothing further will come.
    fn hello(&mut self, last: bool) -> bool {
        let data = self.crypto.data();
        let end = match message_end(data) {
            Some(end) => end,
            None if last && data.len() > 4 => data.len(),
            None => return false,
        };
        if data[0] == CLIENT_HELLO
            && let Some(hello) = ClientHello::parse(&data[4..end])
        {
            self.tls = client_info(&hello, 'q');
        }
        true
    }
}

impl Parse for Quic {
    fn input(&mut self, input: &Input<'_>) -> Step {
        let mut rest = input.data;
        // Packets may share a datagram (RFC 9000, section 12.2).
        for _ in 0..MAX_COALESCED {
            let Ok(long) = Long::parse(rest) else { break };
            match long.kind() {
                PacketType::Initial => match self.initial(rest, &long, input.reverse) {
                    Some(end) => rest = rest.get(end..).unwrap_or(&[]),
                    None => break,
                },
                PacketType::ZeroRtt => {
                    if self.keys.is_none() {
                        self.version = long.version;
                    }
                    match bounds(rest, &long) {
                        Some(span) => rest = rest.get(span.end..).unwrap_or(&[]),
                        None => break,
                    }
                }
                PacketType::Retry | PacketType::VersionNegotiation => {
                    // The client begins anew, with other keys (RFC 9001, section 5.2).
                    let server = self.keys.as_ref().is_some_and(|keys| keys.1 != input.reverse);
                    if server {
                        *self = Quic { version: self.version, ..Quic::default() };
                    }
                    break;
                }
                _ => break,
            }
        }
        // Nothing can come of a hello that cannot be put together.
        if self.hello(self.crypto.is_full()) { Step::Done } else { Step::More }
    }

    fn finish(&mut self) -> Option<App> {
        if self.tls == TlsInfo::default() {
            self.hello(true);
        }
        Some(App::Quic { version: self.version, tls: std::mem::take(&mut self.tls) })
    }

    fn held(&self) -> usize {
        size_of::<Quic>() + self.crypto.held()
    }
}

/// Takes the CRYPTO frames out of an Initial's payload (RFC 9000, section 19; which frames
/// there can be, section 12.4).
fn read_frames(frames: &[u8], crypto: &mut Stream) -> Option<()> {
    let mut reader = ByteReader(frames);
    while !reader.0.is_empty() {
        match varint(&mut reader)? {
            // PADDING, PING.
            0 | 1 => {}
            kind @ (2 | 3) => {
                // ACK: largest, delay, ranges, first; of each range two; counts of ECN.
                let (_, _, ranges, _) = (
                    varint(&mut reader)?,
                    varint(&mut reader)?,
                    varint(&mut reader)?,
                    varint(&mut reader)?,
                );
                let more = if kind == 3 { 3 } else { 0 };
                // Each has an octet at least, so this ends with the packet.
                for _ in 0..ranges.saturating_mul(2).saturating_add(more) {
                    varint(&mut reader)?;
                }
            }
            6 => {
                let offset = varint(&mut reader)?;
                let length = varint(&mut reader)?;
                let data = reader.take(usize::try_from(length).ok()?)?;
                crypto.insert(usize::try_from(offset).ok()?, data);
            }
            // CONNECTION_CLOSE, or what must not be here.
            _ => return None,
        }
    }
    Some(())
}

const MIN_IDENTIFIER: usize = 8;
const MIN_DATAGRAM: usize = 1200;
/// A packet number of four octets as sampled, and the sample.
const MIN_PROTECTED: usize = 20;
/// Longer ones are not opened: no path on the Internet takes them.
const MAX_PACKET: usize = 2048;
const MAX_COALESCED: usize = 4;
