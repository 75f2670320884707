//! What a file is, and reading it.

use std::collections::HashMap;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use sonde_wire::capture::Record;
use sonde_wire::flow::{LinkType, parse_cut};
use sonde_wire::ipfix;
use sonde_wire::ipv4::PROTOCOL_UDP;

use super::csv;
use super::messages::Exporters;
use super::observed::ObservedFlow;
use crate::capture_file::{
    self, CaptureFiles, LOOK_AROUND, NextPiece, describe, octets, unreadable,
};
use crate::error::RunError;
use crate::running::Stop;

/// Reads a file of whatever kind, as session `session` << 16 and up, until an urgent end is asked
/// for; `-` is standard input.
pub(super) fn read(
    path: &Path,
    session: u32,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&ObservedFlow),
    stop: &Stop,
) -> Result<(), RunError> {
    let name = path.display().to_string();
    let what = || unreadable(path);
    let mut file = octets(path)?;
    let mut magic = [0; 4];
    let got = fill(&mut file, &mut magic).with_context(what)?;
    let file = Cursor::new(magic).take(got as u64).chain(file);
    match &magic[..got] {
        [] => Ok(()),
        [0x0A, 0x0D, 0x0D, 0x0A]
        | [0xA1, 0xB2, 0xC3 | 0x3C, 0xD4 | 0x4D]
        | [0xD4 | 0x4D, 0xC3 | 0x3C, 0xB2, 0xA1] => {
            Ok(capture(CaptureFiles::of(&name, file)?, session << 16, exporters, take, stop)?)
        }
        [0, 10, ..] => {
            let mut file = BufReader::with_capacity(1 << 20, file);
            if !messages(&mut file, session << 16, exporters, take, stop).with_context(what)? {
                exporters.unreadable();
            }
            Ok(())
        }
        [first, ..] if first.is_ascii_alphabetic() => csv::read(Box::new(file), &name, take, stop),
        _ => Err(RunError::Host(anyhow!(
            "{name} is no IPFIX file, no capture and no CSV of flows; give what an \
                         exporter wrote or sent"
        ))),
    }
}

/// A stream of IPFIX messages to its end, or an urgent one; false: it ends within a message, or is
/// none.
pub(super) fn messages(
    stream: &mut impl Read,
    session: u32,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&ObservedFlow),
    stop: &Stop,
) -> std::io::Result<bool> {
    let mut message = vec![0; usize::from(u16::MAX)];
    loop {
        let got = fill(stream, &mut message[..ipfix::HEADER_LEN])?;
        if got == 0 || stop.is_urgent() {
            return Ok(true);
        }
        let header = match ipfix::Header::parse(&message[..got]) {
            Ok(header) => header,
            Err(_) => return Ok(false),
        };
        let length = usize::from(header.length);
        let rest = &mut message[ipfix::HEADER_LEN..length];
        if fill(stream, rest)? < rest.len() {
            return Ok(false);
        }
        exporters.message(session, &message[..length], take);
    }
}

/// As much as there is.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let (got, error) = capture_file::fill(stream, buffer);
    error.map_or(Ok(got), Err)
}

/// UDP datagrams that begin as messages do; all else in the capture is left alone. Each pair
/// of ends is a session.
fn capture(
    mut input: CaptureFiles,
    first_session: u32,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&ObservedFlow),
    stop: &Stop,
) -> anyhow::Result<()> {
    let mut sessions = HashMap::new();
    loop {
        let piece = match input.next(LOOK_AROUND)? {
            NextPiece::Piece(piece) => piece,
            NextPiece::Wait if stop.is_urgent() => return Ok(()),
            NextPiece::Wait => continue,
            NextPiece::Broken(why) => return Err(anyhow!(why)),
            NextPiece::End => return Ok(()),
        };
        if stop.is_urgent() {
            return Ok(());
        }
        for record in piece.reader() {
            let record = record.map_err(|e| anyhow!(describe(&piece.name, e)))?;
            let Some((ends, message)) = message(&record) else { continue };
            let next = sessions.len().min(0xFFFF) as u32;
            let session = *sessions.entry(ends).or_insert(next);
            exporters.message(first_session | session, message, take);
        }
    }
}

type Ends = ([u8; 16], u16, [u8; 16], u16);

fn message<'a>(record: &Record<'a>) -> Option<(Ends, &'a [u8])> {
    let link = LinkType::from_capture(record.link_type)?;
    let packet = parse_cut(record.data, record.original_len as usize, link, false).ok()?;
    let message = record.data.get(packet.payload.clone())?;
    let begins = packet.protocol == PROTOCOL_UDP
        && !packet.fragment
        && matches!(message, [0, 5 | 9 | 10, ..])
        && message.len() >= ipfix::HEADER_LEN;
    let source = (packet.source, packet.source_port);
    let ends = (source.0, source.1, packet.destination, packet.destination_port);
    begins.then_some((ends, message))
}
