//! What a file is, and reading it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use sonde_wire::capture::{LINKTYPE_ETHERNET, LINKTYPE_LINUX_SLL, LINKTYPE_RAW, Reader};
use sonde_wire::{ipfix, parse_udp};

use super::csv;
use super::messages::Exporters;
use super::observed::Observed;
use crate::capture_file;

/// Reads a file of whatever kind, as session `session` << 16 and up.
pub(super) fn read(
    path: &Path,
    session: u32,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&Observed),
) -> Result<()> {
    let what = || format!("cannot read {}", path.display());
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).with_context(what)?);
    let mut magic = [0; 4];
    let mut got = 0;
    while got < magic.len() {
        match file.read(&mut magic[got..]).with_context(what)? {
            0 => break,
            n => got += n,
        }
    }
    match &magic[..got] {
        [] => Ok(()),
        [0x0A, 0x0D, 0x0D, 0x0A]
        | [0xA1, 0xB2, 0xC3 | 0x3C, 0xD4 | 0x4D]
        | [0xD4 | 0x4D, 0xC3 | 0x3C, 0xB2, 0xA1] => capture(path, session << 16, exporters, take),
        [0, 10, ..] => {
            drop(file);
            let file = File::open(path).with_context(what)?;
            let mut file = BufReader::with_capacity(1 << 20, file);
            if !messages(&mut file, session << 16, exporters, take).with_context(what)? {
                exporters.unreadable();
            }
            Ok(())
        }
        [first, ..] if first.is_ascii_alphabetic() => csv::read(path, take),
        _ => Err(anyhow!("{} is no IPFIX file, no capture and no CSV of flows", path.display())),
    }
}

/// A stream of IPFIX messages to its end; false: it ends within a message, or is none.
pub(super) fn messages(
    stream: &mut impl Read,
    session: u32,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&Observed),
) -> std::io::Result<bool> {
    let mut message = vec![0; usize::from(u16::MAX)];
    loop {
        let got = fill(stream, &mut message[..ipfix::HEADER_LEN])?;
        if got == 0 {
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
    let mut got = 0;
    while got < buffer.len() {
        match stream.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// UDP datagrams that begin as messages do; all else in the capture is left alone. Each pair
/// of ends is a session.
fn capture(
    path: &Path,
    first_session: u32,
    exporters: &mut Exporters,
    take: &mut dyn FnMut(&Observed),
) -> Result<()> {
    let mapping = capture_file::open(path)?;
    let mut sessions = HashMap::new();
    let mut cooked = Vec::new();
    for record in Reader::new(mapping.as_slice()).map_err(|e| capture_file::unreadable(path, e))? {
        let record = record.map_err(|e| capture_file::unreadable(path, e))?;
        let frame = match (record.link_type, record.data) {
            (LINKTYPE_ETHERNET, data) => data,
            // The parser wants an Ethernet header.
            (LINKTYPE_LINUX_SLL, [head @ .., _, _]) if head.len() >= 14 => {
                cooked.clear();
                cooked.extend([0; 12]);
                cooked.extend(&record.data[14..]);
                &cooked
            }
            (LINKTYPE_RAW, data @ [first, ..]) => {
                cooked.clear();
                cooked.extend([0; 12]);
                cooked.extend(if first >> 4 == 6 { [0x86, 0xDD] } else { [8, 0] });
                cooked.extend(data);
                &cooked
            }
            _ => continue,
        };
        let Ok(udp) = parse_udp(frame) else { continue };
        let Some(message) = frame.get(udp.payload.clone()) else { continue };
        if !matches!(message, [0, 5 | 9 | 10, ..]) || message.len() < ipfix::HEADER_LEN {
            continue;
        }
        let ends = (udp.source, udp.source_port, udp.destination, udp.destination_port);
        let next = sessions.len().min(0xFFFF) as u32;
        let session = *sessions.entry(ends).or_insert(next);
        exporters.message(first_session | session, message, take);
    }
    Ok(())
}
